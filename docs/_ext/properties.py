"""Keeps the docstrings of properties as they are written.

Napoleon would read "Name: text" on the first line of a property's docstring as "type: description".
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup"]

_NAPOLEON_PRIORITY = 500


def setup(app: Sphinx) -> dict[str, Any]:
    docstrings: dict[str, list[str]] = {}

    def hide(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        if what in ("attribute", "data", "property"):
            docstrings[name] = lines[:]
            lines.clear()

    def restore(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = docstrings.pop(name, lines)

    app.connect("autodoc-process-docstring", hide, priority=_NAPOLEON_PRIORITY - 1)
    app.connect("autodoc-process-docstring", restore, priority=_NAPOLEON_PRIORITY + 1)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
