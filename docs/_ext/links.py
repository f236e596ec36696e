"""Links that Sphinx cannot follow by itself.

* A docstring may call an object by any of its names: a class lives in ``graphcaps.data.store`` and is documented
  as ``graphcaps.GraphStore``. The link leads to that entry.
* A page may link to a folder of the source tree. That is a link where the source is browsed, and plain text here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

__all__ = ["setup"]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("missing-reference", _other_name)
    app.connect("doctree-read", _folders)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


def _folders(app: Sphinx, doctree: nodes.document) -> None:
    here = Path(doctree["source"]).parent
    for link in list(doctree.findall(addnodes.pending_xref)):
        target = link.get("reftarget", "")
        if link.get("reftype") == "myst" and "/" in target and (here / target).is_dir():
            link.replace_self(link.children)


def _other_name(app: Sphinx, env: Any, node: nodes.Element, content: nodes.Element) -> nodes.Element | None:
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target:
        return None
    wanted = _found(target) or _found(f"{node.get('py:module') or 'graphcaps'}.{target}")
    if wanted is None:
        return None
    domain = env.get_domain("py")
    for name, entry in domain.objects.items():
        if entry.objtype != "module" and _found(name) is wanted:
            made = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)
            return made if isinstance(made, nodes.Element) else None
    return None


def _found(name: str) -> Any:
    """The object of a dotted name inside the package, ``None`` where there is none."""
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
