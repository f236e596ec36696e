"""Sphinx: how docs/*.md and the docstrings become pages.

    sphinx-build -W -b html docs build/docs

Everything the pages need is in them: no script, font or picture comes from another place.
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

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "links", "properties"]
exclude_patterns = ["_ext", "_build"]
nitpicky = False  # docstrings name types of torch and numpy, whose pages are not read here

# ---------------------------------------------------------------- Markdown
myst_heading_anchors = 3
highlight_language = "text"  # blocks that say no language are commands and what they print

# ---------------------------------------------------------------- docstrings
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch says little about our forward
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


# ---------------------------------------------------------------- the table of contents
def setup(app: Any) -> None:
    """Fits the table of contents in index.md to the pages that are there.

    Lines of pages that do not exist are left out, and pages that no line names come last, under "More", so that
    a page may be written before or after its line.
    """

    def fit_contents(app: Any, page: str, text: list[str]) -> None:
        if page != "index":
            return
        there = {path.stem for path in HERE.glob("*.md")} - {"index"}
        kept, inside = [], False
        for line in text[0].split("\n"):
            inside = line.startswith("```{toctree}") or (inside and line != "```")
            name = line.split("<")[-1].rstrip(">")
            named = inside and line and not line.startswith(("```", ":"))
            if not named or "/" in name or name in there:
                kept.append(line)
            if named:
                there.discard(name)
        if there:
            kept += ["```{toctree}", ":caption: More", ":hidden:", "", *sorted(there), "```", ""]
        text[0] = "\n".join(kept)

    app.connect("source-read", fit_contents)
    app.connect("env-get-outdated", lambda *_: ["index"])
