"""Docstrings of properties as they are written.

Napoleon reads "What it holds: and more" on a property as "type: description". Ours never mean that.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

__all__ = ["setup"]

_NAPOLEON = 500  # the priority at which it listens


def setup(app: Sphinx) -> dict[str, Any]:
    put_aside: dict[str, list[str]] = {}

    def before(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        if what in ("attribute", "data", "property"):
            put_aside[name] = lines[:]
            lines.clear()

    def after(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        lines[:] = put_aside.pop(name, lines)

    app.connect("autodoc-process-docstring", before, priority=_NAPOLEON - 1)
    app.connect("autodoc-process-docstring", after, priority=_NAPOLEON + 1)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
