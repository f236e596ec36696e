"""Class labels of graphs as names: the one rule for tables, files, arrays and objects of other libraries.

* A number is one class by its value, however it is written: 1, 1.0, ``"1"``, ``"1.0"`` and ``"1e0"`` are the class
  ``1``. The name is the shortest decimal form, with all its digits.
* Digits after a leading zero, as in ``"007"``, are a code, and a class as they are written.
* A truth value is the class ``True`` or ``False``, as pandas writes it to CSV. It is not the class ``1`` or ``0``.
* Any other text is a class as it is written, without spaces at its ends; case counts.
* Empty text, ``None``, NaN and the words of :data:`MISSING_WORDS` are missing labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal

import numpy as np

__all__ = [
    "MISSING_WORDS",
    "class_name",
    "classes_alike",
    "describe_quantities",
    "describe_spellings",
    "is_missing",
    "is_missing_label",
    "numbers_beside_text",
]

MISSING_WORDS = frozenset({"nan", "NaN", "NAN", "NA", "N/A", "n/a", "<NA>", "#N/A", "None", "null", "NULL"})
"""Text in a column of class labels that marks a missing label, as other programs write it."""

_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_MIN_QUANTITIES = 5  # so many fractions as classes are a measured quantity
_MAX_DIGITS = 40  # longer numbers are written with an exponent; identifiers of 128 bits have up to 39


def class_name(value: object) -> str:
    """The name of a class label.

    Args:
        value: Text, a number or a truth value, of Python or numpy.

    Example:
        >>> [class_name(value) for value in (1, 1.0, "1.0", "0.50", "007", True, " yes")]
        ['1', '1', '1', '0.5', '007', 'True', 'yes']
    """
    text = str(value.item() if isinstance(value, np.generic) else value).strip()
    return _shortest(Decimal(text)) if _NUMBER.fullmatch(text) else text


def is_missing(value: object) -> bool:
    """Whether a value marks a missing entry, as pandas does: ``None``, NaN, ``NA`` or ``NaT``."""
    is_nan = isinstance(value, float | np.floating) and bool(value != value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def is_missing_label(value: object) -> bool:
    """Whether an entry of a column of class labels is a missing label: a missing value, empty text or such a word."""
    if isinstance(value, str):
        text = value.strip()
        return not text or text in MISSING_WORDS
    return is_missing(value)


def classes_alike(names: Iterable[str]) -> list[list[str]]:
    """Groups of class names that differ in case only: often one class, written in several ways.

    Example:
        >>> classes_alike(["No", "YES", "maybe", "no", "yes"])
        [['No', 'no'], ['YES', 'yes']]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.casefold(), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def numbers_beside_text(names: Iterable[str]) -> tuple[list[str], list[str]] | None:
    """Class names that are numbers, and the others; ``None`` if all are of one kind.

    Example:
        >>> numbers_beside_text(["0", "1", "no", "yes"])
        (['0', '1'], ['no', 'yes'])
    """
    listed = list(names)
    numbers = [name for name in listed if _NUMBER.fullmatch(name)]
    texts = [name for name in listed if not _NUMBER.fullmatch(name)]
    return (numbers, texts) if numbers and texts else None


def describe_spellings(names: Sequence[str]) -> str:
    """A sentence on class names that may be one class written in several ways; "" if there are none."""
    hints = []
    if alike := classes_alike(names):
        hints.append(
            f"{_some([' and '.join(map(repr, group)) for group in alike], '; ')} differ in case only"
        )
    if (kinds := numbers_beside_text(names)) is not None:
        numbers, texts = (_some(list(map(repr, kind))) for kind in kinds)
        hints.append(
            f"{numbers} {'is a number' if len(kinds[0]) == 1 else 'are numbers'} beside the text {texts}"
        )
    if not hints:
        return ""
    return (
        f"One class may be written in several ways: {', and '.join(hints)}; write it in one way in the data."
    )


def describe_quantities(names: Sequence[str]) -> str:
    """A sentence on class names that are mostly fractions, as of a measured quantity; "" if they are not.

    Example:
        >>> describe_quantities(["4.1", "5", "6.25", "7.3", "7.9", "8.8"])
        "The classes are numbers such as '4.1': models predict classes, not quantities; make classes of them, such as \
above and below a threshold."
    """
    fractions = [
        name for name in names if _NUMBER.fullmatch(name) and _decimals(_without_zeros(Decimal(name)))
    ]
    if len(fractions) < max(_MIN_QUANTITIES, len(names) / 2):
        return ""
    return (
        f"The classes are numbers such as {fractions[0]!r}: models predict classes, not quantities; make classes of "
        "them, such as above and below a threshold."
    )


def _some(texts: list[str], separator: str = ", ") -> str:
    return separator.join([*texts[:3], *(["…"] if len(texts) > 3 else [])])


def _without_zeros(number: Decimal) -> Decimal:
    """The same number without trailing zeros. The usual context of ``decimal`` would round it to 28 digits."""
    return number.normalize(Context(prec=len(number.as_tuple().digits)))


def _decimals(number: Decimal) -> int:
    """Number of digits after the decimal point."""
    return max(0, -int(number.as_tuple().exponent))


def _shortest(number: Decimal) -> str:
    """The shortest decimal form, without trailing zeros; −0 is 0."""
    short = _without_zeros(number)
    if not short:
        return "0"
    digits = max(short.adjusted() + 1, _decimals(short))
    return format(short, "f") if digits <= _MAX_DIGITS else str(short)
