"""Errors that a user can fix, in one grammar, and warnings that point to the user's code.

The command line prints a :class:`GraphcapsError` as one sentence and exits with code 2; any other exception is a bug
in graphcaps. A message names the owner or the file, what was expected, what was found and what to do, in that order.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

__all__ = [
    "ArgumentError",
    "DataError",
    "GraphcapsError",
    "MissingExtraError",
    "ShapeError",
    "UsageError",
    "warn_user",
]

_LIBRARIES = ("graphcaps", "sklearn", "joblib")  # scikit-learn calls the classifier for the user


class GraphcapsError(Exception):
    """Base class of all errors that a user can fix."""


class UsageError(GraphcapsError, ValueError):
    """A request that cannot be carried out, as one complete sentence that says what to do instead.

    For messages that do not fit the pattern of :class:`ArgumentError`, such as
    ``No CUDA device is available; use device='cpu' or 'auto'.``
    """


class ArgumentError(GraphcapsError, ValueError):
    """An invalid argument: ``owner: 'name' must …, got …. fix``."""

    def __init__(self, owner: str, name: str, expected: str, got: object, fix: str = "") -> None:
        self.owner, self.name, self.expected, self.got, self.fix = owner, name, expected, got, fix
        sentence = f"{owner}: '{name}' must {expected}, got {got}."
        super().__init__(f"{sentence} {fix}" if fix else sentence)


class ShapeError(ArgumentError):
    """A tensor of the wrong shape."""


class DataError(GraphcapsError, ValueError):
    """Invalid content of a file: ``where, line n: expected …, found …. fix``.

    Args:
        where (str or Path): The file.
        expected (str): What the file should hold there; with ``found=None`` a complete statement of the problem, as in
            ``model.safetensors: file not found.``
        found (object): What it holds.
        line (int, optional): Line of the file, counted from 1.
        fix (str): What to do about it, as a sentence of its own.
    """

    def __init__(
        self,
        where: str | Path,
        expected: str,
        found: object = None,
        *,
        line: int | None = None,
        fix: str = "",
    ) -> None:
        self.where, self.expected, self.found, self.line, self.fix = str(where), expected, found, line, fix
        location = f"{where}, line {line}" if line is not None else f"{where}"
        problem = expected if found is None else f"expected {expected}, found {found}"
        sentence = f"{location}: {problem}."
        super().__init__(f"{sentence} {fix}" if fix else sentence)


class MissingExtraError(GraphcapsError, ImportError):
    """A missing optional dependency, with the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{purpose} needs {package}: install it with: pip install 'graphcaps[{extra}]'")


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Gives a warning at the line of the user's code, the innermost one outside graphcaps and scikit-learn.

    Args:
        message (str): One or more sentences; the first names the function that the user called.
        category (type): Class of the warning. (default: ``UserWarning``)
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
