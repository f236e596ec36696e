"""Names for the classes of a TU data set, whose own files know numbers only.

``NAME_class_names.txt`` has a line per class, the number that stands for it in ``NAME_graph_labels.txt``, a
comma and its name: ``0, ring-star``. The first line is class 0 of the store, whatever its number. A class
may be named that no graph has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from graphcaps.errors import ArgumentError, DataError

__all__ = ["read_class_names", "write_class_names"]

_EXPECTED = "a class, a comma and its name"


def read_class_names(pieces: Iterable[bytes], where: str) -> dict[int, str]:
    """Names by the number that stands for the class, in the order of the file.

    Raises:
        DataError: At an empty file, a line that is none of these, or a number or name that comes again.
    """
    try:
        text = b"".join(pieces).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(where, "text in UTF-8", "other bytes") from error
    names: dict[int, str] = {}
    seen: set[str] = set()
    for number, line in enumerate(text.rstrip("\r\n").split("\n"), start=1):
        value, comma, name = line.partition(",")
        try:
            label = int(value)
        except ValueError:
            label = None
        if label is None or not comma or not name.strip():
            raise DataError(where, _EXPECTED, repr(line.rstrip("\r")), line=number)
        if label in names:
            raise DataError(where, "every class once", f"class {label} again", line=number)
        name = name.strip()
        if name in seen:
            raise DataError(where, "every name once", f"{name!r} again", line=number)
        seen.add(name)
        names[label] = name
    return names


def write_class_names(values: Sequence[int], names: Sequence[str], owner: str) -> str:
    """The text that :func:`read_class_names` reads back.

    Raises:
        ArgumentError: If a name does not fit on a line, is empty, has blanks at its ends, or comes again.
    """
    for name in names:
        if not name or name != name.strip() or "\n" in name or not _encodes(name):
            expected = "be class names of one line, without blanks at their ends"
            raise ArgumentError(owner, "class_names", expected, repr(name))
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ArgumentError(owner, "class_names", "be different names", f"{twice[0]!r} twice")
    return "".join(f"{value}, {name}\n" for value, name in zip(values, names, strict=True))


def _encodes(name: str) -> bool:
    """Half of a surrogate pair is no text."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
