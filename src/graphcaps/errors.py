"""One grammar for everything that can go wrong through a user's hand.

A :class:`GraphcapsError` is a mistake its reader can mend. The command line prints it as one sentence
and ends with exit code 2; any other exception is a defect of the program.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["ArgumentError", "DataError", "GraphcapsError", "MissingExtraError", "ShapeError"]


class GraphcapsError(Exception):
    """A mistake that a user can mend."""


class ArgumentError(GraphcapsError, ValueError):
    """An argument that does not fit: ``owner: 'name' must …, got …. fix``."""

    def __init__(self, owner: str, name: str, expected: str, got: object, fix: str = "") -> None:
        self.owner, self.name, self.expected, self.got, self.fix = owner, name, expected, got, fix
        sentence = f"{owner}: '{name}' must {expected}, got {got}."
        super().__init__(f"{sentence} {fix}" if fix else sentence)


class ShapeError(ArgumentError):
    """A tensor of the wrong size."""


class DataError(GraphcapsError, ValueError):
    """A file that does not hold what it should: ``where, line n: expected …, found …. fix``."""

    def __init__(
        self, where: str | Path, expected: str, found: object, *, line: int | None = None, fix: str = ""
    ) -> None:
        self.where, self.expected, self.found, self.line, self.fix = str(where), expected, found, line, fix
        place = f"{where}, line {line}" if line is not None else f"{where}"
        sentence = f"{place}: expected {expected}, found {found}."
        super().__init__(f"{sentence} {fix}" if fix else sentence)


class MissingExtraError(GraphcapsError, ImportError):
    """An optional part that is not installed, with the line that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{purpose} needs {package}: install it with: pip install 'graphcaps[{extra}]'")
