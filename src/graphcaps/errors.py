"""Errors that a user can fix, in one grammar, and warnings that point to the user's code.

The command line prints a :class:`GraphcapsError` as one sentence and exits with code 2; any other exception is a bug
in graphcaps. A message names the owner or the file, what was expected, what was found and what to do, in that order.

Names and values in a message come from files of unknown origin: control characters are escaped (:func:`printable`), and
values are cut at 200 characters (:func:`shorten`).
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

__all__ = [
    "CONTROL_CHARACTERS",
    "ArgumentError",
    "DataError",
    "GraphcapsError",
    "MissingExtraError",
    "ShapeError",
    "UsageError",
    "check_at_least",
    "check_fraction",
    "check_probability",
    "count_noun",
    "printable",
    "shorten",
    "warn_user",
]

_LIBRARIES = ("graphcaps", "sklearn", "joblib")  # scikit-learn calls the classifier for the user
_GIVEN: set[tuple[str, type[Warning], str, int]] = set()  # warnings, with the file and line of each

_MAX_VALUE = 200  # characters of a value in a message
_MAX_MESSAGE = 2000
_QUOTED = re.compile(r"(?<!\w)'([^']*)'(?!\w)")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, except tab and line feed: C0, DEL, C1, line separators, directions of text."""


def printable(text: str) -> str:
    r"""The text with control characters as ``\x1b``, so that a terminal shows them and does not obey them.

    Tabs and line feeds stay.
    """
    return CONTROL_CHARACTERS.sub(lambda found: ascii(found[0])[1:-1], text)


def shorten(text: str, limit: int = _MAX_VALUE) -> str:
    """The first ``limit`` characters of a longer text, with an ellipsis and the quotation mark that ends it."""
    if len(text) <= limit:
        return text
    is_quoted = text[0] == text[-1] and text[0] in "'\""
    return f"{text[:limit]}…{text[-1] if is_quoted else ''}"


def count_noun(count: int, noun: str, plural: str = "s") -> str:
    """A count with its noun: ``"1 graph"``, ``"1,200 graphs"``; ``plural`` is the ending of the noun."""
    return f"{count:,} {noun}{'' if count == 1 else plural}"


class GraphcapsError(Exception):
    """Base class of all errors that a user can fix.

    Args:
        message (str): One sentence or more. Its control characters are escaped, quoted values have at most 200
            characters, and the whole has at most 2,000.
    """

    def __init__(self, message: str) -> None:
        message = _QUOTED.sub(lambda found: f"'{shorten(found[1])}'", message)
        super().__init__(shorten(printable(message), _MAX_MESSAGE))


class UsageError(GraphcapsError, ValueError):
    """A request that cannot be carried out, as one complete sentence that says what to do instead.

    For messages that do not fit the pattern of :class:`ArgumentError`, such as
    ``No CUDA device is available; use device='cpu' or 'auto'.``
    """


class ArgumentError(GraphcapsError, ValueError):
    """An invalid argument: ``owner: 'name' must …, got …. fix``."""

    def __init__(self, owner: str, name: str, expected: str, got: object, fix: str = "") -> None:
        self.owner, self.name, self.expected, self.got, self.fix = owner, name, expected, got, fix
        sentence = f"{owner}: '{name}' must {expected}, got {shorten(str(got))}."
        super().__init__(f"{sentence} {fix}" if fix else sentence)


class ShapeError(ArgumentError):
    """A tensor of the wrong shape."""


def check_at_least(owner: str, least: float, **options: float | tuple[float, ...]) -> None:
    """Rejects options of a class or function ``owner`` that are below a bound.

    Args:
        owner (str): Owner that messages name.
        least (float): Smallest value.
        options: Values by name; a tuple must hold at least one value, and every one counts. NaN is refused.

    Raises:
        ArgumentError: If a value is below ``least``.
    """
    for name, value in options.items():
        if isinstance(value, tuple | list):
            if not value or not all(each >= least for each in value):
                expected = f"name at least one number, each at least {least}"
                raise ArgumentError(owner, name, expected, value)
        elif not value >= least:
            raise ArgumentError(owner, name, f"be at least {least}", value)


def check_probability(owner: str, **options: float) -> None:
    """Rejects options that are not a probability at least 0 and below 1, as that of a dropout is.

    Raises:
        ArgumentError: If a value is out of this range.
    """
    for name, value in options.items():
        if not 0 <= value < 1:
            raise ArgumentError(owner, name, "be at least 0 and below 1", value)


def check_fraction(owner: str, **options: float) -> None:
    """Rejects options that are not a fraction above 0 and at most 1.

    Raises:
        ArgumentError: If a value is out of this range.
    """
    for name, value in options.items():
        if not 0 < value <= 1:
            raise ArgumentError(owner, name, "be above 0 and at most 1", value)


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
        problem = expected if found is None else f"expected {expected}, found {shorten(str(found))}"
        sentence = f"{location}: {problem}."
        super().__init__(f"{sentence} {fix}" if fix else sentence)


class MissingExtraError(GraphcapsError, ImportError):
    """A missing optional dependency, with the command that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{purpose} needs {package}: install it with: pip install 'graphcaps[{extra}]'")


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Gives a warning at the line of the user's code, the innermost one outside graphcaps and scikit-learn.

    An equal warning at the same line is given once, unless the user's filters say otherwise. Python forgets which
    warnings were given whenever filters change, as scikit-learn does between two fits of a search.

    Args:
        message (str): One or more sentences; the first names the function that the user called.
        category (type): Class of the warning. (default: ``UserWarning``)
    """
    message = shorten(printable(message), _MAX_MESSAGE)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    place = (message, category, frame.f_code.co_filename, frame.f_lineno)
    action = _filter_action(message, category, frame.f_globals.get("__name__", ""), frame.f_lineno)
    if place in _GIVEN and action in ("default", "module", "once"):
        return
    _GIVEN.add(place)
    warnings.warn(message, category, stacklevel=level)


def _filter_action(message: str, category: type[Warning], module: str, line: int) -> str:
    """What the first of Python's warning filters that matches says: "default", "error", "ignore", "always", …"""
    for action, text, kind, name, number in warnings.filters:
        if (
            (text is None or text.match(message))
            and issubclass(category, kind)
            and (name is None or name.match(module))
            and number in (0, line)
        ):
            return action
    return "default"
