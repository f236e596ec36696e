"""Resolves links that Sphinx cannot resolve by itself.

* A docstring may refer to an object by any of its names: a class is defined in ``graphcaps.data.store`` and
  documented as ``graphcaps.GraphStore``. The link leads to the documented entry.
* A page may link to a folder of the repository. The link works in a repository browser and is plain text here.
* A page may link to a Markdown file outside ``docs``. Here the link downloads the file.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

__all__ = ["setup"]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("missing-reference", _resolve_other_name)
    app.connect("doctree-read", _replace_repository_links)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _replace_repository_links(app: Sphinx, doctree: nodes.document) -> None:
    source = Path(doctree["source"])
    for link in list(doctree.findall(addnodes.pending_xref)):
        target = link.get("reftarget", "")
        if link.get("reftype") != "myst":
            continue
        if link.get("refdomain") == "doc":
            file = (app.srcdir / f"{target}.md").resolve()
            if file.is_file() and not file.is_relative_to(app.srcdir):
                link.replace_self(_download(app, file, link))
        elif "/" in target and (source.parent / target).is_dir():
            link.replace_self(link.children)


def _download(app: Sphinx, file: Path, link: nodes.Element) -> nodes.Element:
    docname, name = app.env.docname, str(file)
    app.env.note_dependency(name)
    copied = Path(app.env.dlfiles.add_file(docname, name)).as_posix()
    return addnodes.download_reference(
        "", "", *link.children, reftarget=name, filename=copied, refdoc=docname
    )


def _resolve_other_name(
    app: Sphinx, env: Any, node: nodes.Element, content: nodes.Element
) -> nodes.Element | None:
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target:
        return None
    value = _import_object(target) or _import_object(f"{node.get('py:module') or 'graphcaps'}.{target}")
    if value is None:
        return None
    domain = env.get_domain("py")
    for name, entry in domain.objects.items():
        if entry.objtype != "module" and _import_object(name) is value:
            link = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)
            return link if isinstance(link, nodes.Element) else None
    return None


@cache
def _import_object(name: str) -> Any:
    """The object with a dotted name inside the package, or ``None``; every link asks for all documented names."""
    if not name.startswith("graphcaps."):
        return None
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:split]))
            for part in parts[split:]:
                value = getattr(value, part)
        except (ImportError, AttributeError):
            continue
        return value
    return None
