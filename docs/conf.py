"""Sphinx configuration: builds HTML pages from docs/*.md and the docstrings.

    sphinx-build -W -b html docs build/docs

The pages load no script, font or picture from another server.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE / "_ext")]

import graphcaps  # noqa: E402

project = "graphcaps"
author = "The graphcaps developers"
project_copyright = "the graphcaps developers"
version = release = graphcaps.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["mathml", "links", "properties", "registered_models"]  # in _ext
exclude_patterns = ["_ext", "_build"]
nitpicky = False  # docstrings refer to types of torch and numpy, whose inventories are not loaded

# ---------------------------------------------------------------- Markdown
myst_heading_anchors = 3
highlight_language = "text"  # blocks without a language are commands and their output

# ---------------------------------------------------------------- docstrings
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch's docstring of forward says nothing specific
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 90
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# ---------------------------------------------------------------- pages
html_theme = "furo"
html_title = f"graphcaps {version}"
html_static_path = ["_static"]
html_css_files = ["graphcaps.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


# ---------------------------------------------------------------- table of contents
def setup(app: Any) -> None:
    """Adapts the table of contents in index.md to the existing pages.

    Entries without a page are removed. Pages without an entry are appended under "More".
    """

    def adapt_contents(app: Any, page: str, text: list[str]) -> None:
        if page != "index":
            return
        missing = {path.stem for path in HERE.glob("*.md")} - {"index"}
        lines, in_toctree = [], False
        for line in text[0].split("\n"):
            in_toctree = line.startswith("```{toctree}") or (in_toctree and line != "```")
            name = line.split("<")[-1].rstrip(">")
            is_entry = in_toctree and line and not line.startswith(("```", ":"))
            if not is_entry or "/" in name or name in missing:
                lines.append(line)
            if is_entry:
                missing.discard(name)
        if missing:
            lines += ["```{toctree}", ":caption: More", ":hidden:", "", *sorted(missing), "```", ""]
        text[0] = "\n".join(lines)

    app.connect("source-read", adapt_contents)
    app.connect("env-get-outdated", lambda *_: ["index"])
