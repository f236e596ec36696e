"""Tables of numbers in text, read fast and strictly.

A row is a line, its numbers stand apart by a comma, by blanks, or by both; lines end with ``\\n`` or
``\\r\\n``. A byte-order mark at the start and empty lines at the end are passed over. Because no empty line
is allowed before the last row, row i of a table is line i + 1 of its file.

Text arrives in blocks cut at line ends. Each block first goes through a parser that works on all of its
bytes at once and knows the usual layout only; a block that does not fit goes, line by line, through
:mod:`graphcaps.data.readers.number_tables`, which either reads it or says what is wrong and where.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphcaps.errors import DataError

__all__ = ["LineReader", "read_integers", "read_numbers"]


_SEPARATOR = re.compile(rb"[ \t]*,[ \t]*|[ \t]+")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_NO_TEXT = re.compile(rb"[^\t\x20-\x7e]")
_SMALLEST, _LARGEST, _TOO_LARGE = -(2**63), 2**63 - 1, 2**64
_SHOWN = 40  # characters of a line that a message repeats


class LineReader:
    """Reads the lines of one file in order, and remembers where in the file it stands.

    Args:
        where (str): What messages call the file.
        row (str): What messages say that a row holds ("two node ids").
        columns (int, optional): Numbers in a row; ``None`` takes the first row as the pattern.
        kind (str): ``"integer"``; ``"label"``, an integer that may be written 3.0; or ``"number"``, finite.
    """

    def __init__(
        self, where: str, row: str, columns: int | None, *, kind: Literal["integer", "label", "number"]
    ) -> None:
        self.where, self.row, self.columns, self.kind = where, row, columns, kind
        self.lines = 0  # lines read so far
        self.first_empty: int | None = None  # line number of the first empty line

    def set_columns(self, block: bytes) -> None:
        """Takes the number of columns from the first line of ``block``, if that line is a row."""
        line = block[: block.index(b"\n")].removesuffix(b"\r").strip(b" \t")
        if line:
            self.columns = len(_SEPARATOR.split(line))

    def skip(self, rows: int) -> None:
        """Counts rows that were read elsewhere."""
        self.lines += rows

    def read(self, block: bytes) -> NDArray:
        """The rows of a block that ends with a newline, ``[rows, columns]``.

        Raises:
            DataError: At the first line that is not a row of numbers.
        """
        rows: list[list[int] | list[float]] = []
        for line in block.split(b"\n")[:-1]:
            self.lines += 1
            line = line.removesuffix(b"\r").strip(b" \t")
            if not line:
                if self.first_empty is None:
                    self.first_empty = self.lines
            elif self.first_empty is not None:
                raise DataError(self.where, self.row, "an empty line", line=self.first_empty)
            else:
                rows.append(self._row(line))
        dtype = np.float64 if self.kind == "number" else np.int64
        return np.array(rows, dtype).reshape(len(rows), self.columns or 1)

    def _row(self, line: bytes) -> list[int] | list[float]:
        junk = _NO_TEXT.search(line)
        if junk:
            raise self._refusal(f"a byte that is not text (0x{junk.group()[0]:02x})")
        tokens = _SEPARATOR.split(line)
        for token in tokens:
            if _NOT_FINITE.fullmatch(token):
                raise self._refusal(f"{_shown(token)}, which is not a finite number")
            if token and not (_INTEGER if self.kind == "integer" else _NUMBER).fullmatch(token):
                raise self._refusal(_shown(token))
        if self.columns is None:
            self.columns = len(tokens)
        if b"" in tokens or len(tokens) < self.columns:
            raise self._refusal(f"half a row, {_shown(line)}")
        if len(tokens) > self.columns:
            raise self._refusal(f"{len(tokens)} numbers, {_shown(line)}")
        if self.kind == "number":
            return [self._float(token) for token in tokens]
        return [self._int(token) for token in tokens]

    def _float(self, token: bytes) -> float:
        value = float(token)
        if math.isinf(value):
            raise self._refusal(f"a number too large, {_shown(token)}")
        return value

    def _int(self, token: bytes) -> int:
        if _INTEGER.fullmatch(token):
            # Python refuses to convert thousands of digits, and 20 are too many already.
            digits = token.lstrip(b"+-").lstrip(b"0") or b"0"
            value = int(digits) if len(digits) < 20 else _TOO_LARGE
            value = -value if token.startswith(b"-") else value
        else:
            number = self._float(token)
            if not number.is_integer():
                raise self._refusal(_shown(token))
            value = int(number) if abs(number) < 2**53 else _TOO_LARGE
        if not _SMALLEST <= value <= _LARGEST:
            raise self._refusal(f"a number too large, {_shown(token)}")
        return value

    def _refusal(self, found: str) -> DataError:
        return DataError(self.where, self.row, found, line=self.lines)


def _shown(text: bytes) -> str:
    shown = text.decode("ascii")
    return f"'{shown}'" if len(shown) <= _SHOWN else f"'{shown[:_SHOWN]}…'"


BLOCK_BYTES = 1 << 19  # the temporaries of a block this size stay in the processor's cache
LONGEST_LINE = 1 << 24  # a longer line is no row of numbers, and is not gathered in memory
_COMMA, _BLANK, _TAB, _NEWLINE, _RETURN, _MINUS, _PLUS = b", \t\n\r-+"
_FLOAT_BYTES = b"0123456789+-.eE, \t\r\n"


def read_integers(
    text: bytes | Iterable[bytes],
    where: str,
    row: str,
    *,
    columns: int | None = None,
    integral_floats: bool = False,
) -> NDArray[np.signedinteger]:
    """Reads a table of whole numbers, ``[rows, columns]``, as int32 where all are short, else as int64.

    Args:
        text (bytes or iterable of bytes): The file, in pieces of any size.
        where (str): What messages call the file.
        row (str): What messages say that a row holds ("two node ids").
        columns (int, optional): Numbers in a row. (default: as many as in the first row)
        integral_floats (bool): Whether 3.0 is read as 3. (default: ``False``)

    Raises:
        DataError: At an empty file or the first line that is not such a row.
    """
    lines = LineReader(where, row, columns, kind="label" if integral_floats else "integer")
    return _read(text, lines, _fast_integers)


def read_numbers(
    text: bytes | Iterable[bytes], where: str, row: str, *, columns: int | None = None
) -> NDArray[np.float64]:
    """Reads a table of finite numbers, ``[rows, columns]``; arguments as in :func:`read_integers`.

    Raises:
        DataError: At an empty file or the first line that is not such a row, NaN and infinity included.
    """
    return _read(text, LineReader(where, row, columns, kind="number"), _fast_numbers)


def _read(
    text: bytes | Iterable[bytes], lines: LineReader, fast: Callable[[bytes, int], NDArray | None]
) -> NDArray:
    tables: list[NDArray] = []
    for block in _blocks([text] if isinstance(text, bytes) else text, lines.where):
        table = None
        if lines.columns is None:
            lines.set_columns(block)
        if lines.columns is not None and lines.first_empty is None:
            table = fast(block, lines.columns)
        if table is None:
            table = lines.read(block)
        else:
            lines.skip(len(table))
        if len(table):
            tables.append(table)
    if not tables:
        raise DataError(lines.where, lines.row, "an empty file", line=1)
    return np.concatenate(tables)


def _blocks(pieces: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Joins and cuts ``pieces`` into blocks that end with a newline."""
    rest, lines_before, first = b"", 0, True
    for piece in pieces:
        for start in range(0, len(piece), BLOCK_BYTES):
            part = piece[start : start + BLOCK_BYTES]
            cut = part.rfind(b"\n") + 1
            if cut:
                block = rest + part[:cut]
                rest = part[cut:]
                lines_before += block.count(b"\n")
                yield block.removeprefix(b"\xef\xbb\xbf") if first else block
                first = False
            else:
                rest += part
            if len(rest) > LONGEST_LINE:
                found = f"a line of more than {LONGEST_LINE >> 20} MB"
                raise DataError(where, "lines of numbers", found, line=lines_before + 1)
    if first:
        rest = rest.removeprefix(b"\xef\xbb\xbf")
    if rest:
        yield rest + b"\n"


def _fast_integers(block: bytes, columns: int) -> NDArray | None:
    """All numbers of a block in the usual layout, or ``None`` where the layout is another.

    Usual are: numbers of up to 18 digits with or without a sign, ``","``, ``", "``, a blank or a tab
    between two of them, a line end after the last of a row, and nothing else.
    """
    text = np.frombuffer(block, np.uint8)
    digit = text - np.uint8(ord("0"))  # wraps around: other bytes become 10 or more
    is_digit = np.zeros(text.size + 2, np.bool_)
    np.less(digit, 10, out=is_digit[1:-1])
    borders = np.flatnonzero(is_digit[1:] != is_digit[:-1])
    first, end = borders[0::2], borders[1::2]  # number k is text[first[k] : end[k]]
    if not first.size or first.size % columns:
        return None
    length = end - first
    longest, shortest = int(length.max()), int(length.min())
    if longest > 18:
        return None

    negative = None
    if (text == _MINUS).any() or (text == _PLUS).any():
        before = text[np.maximum(first - 1, 0)]
        negative = before == _MINUS
        first = first - (negative | (before == _PLUS))
    if first[0] != 0 or not _usual_gaps(text, first, end, columns):
        return None

    values = digit[end - 1].astype(np.int32 if longest <= 9 else np.int64)
    for place in range(1, longest):
        part = digit.take(end - (place + 1), mode="wrap").astype(values.dtype)
        if place >= shortest:
            part[length <= place] = 0  # this number is shorter
        part *= 10**place
        np.add(values, part, out=values)
    if negative is not None:
        np.negative(values, out=values, where=negative)
    return values.reshape(-1, columns)


def _usual_gaps(text: NDArray, first: NDArray, end: NDArray, columns: int) -> bool:
    """Whether the bytes after every number are a usual separator, or a line end at the end of a row."""
    gap = np.append(first[1:], text.size) - end
    if gap.max() > 2:
        return False
    lead = text[end].reshape(-1, columns)  # a sign where the gap is 0, as in 5-6
    last = text[end + (gap - 1)].reshape(-1, columns)  # the byte before the next number
    two = (gap == 2).reshape(-1, columns)
    inside, after = (np.s_[:, :-1], np.s_[:, -1])
    single = (lead[inside] == _COMMA) | (lead[inside] == _BLANK) | (lead[inside] == _TAB)
    double = (lead[inside] == _COMMA) & (last[inside] == _BLANK)
    if not np.where(two[inside], double, single).all():
        return False
    if not (last[after] == _NEWLINE).all():
        return False
    return bool((~two[after] | (lead[after] == _RETURN)).all())


def _fast_numbers(block: bytes, columns: int) -> NDArray | None:
    """All numbers of a block through numpy's reader, or ``None`` where that may not be exact."""
    if block.translate(None, _FLOAT_BYTES):
        return None
    rows, commas = block.count(b"\n"), block.count(b",")
    if commas not in (0, rows * (columns - 1)) or block.isspace():
        return None
    try:
        table = np.loadtxt(
            io.StringIO(block.decode("ascii")), delimiter="," if commas else None, comments=None, ndmin=2
        )
    except ValueError:
        return None
    # numpy passes over empty lines, which would shift the numbers of the lines after them.
    return table if table.shape == (rows, columns) and np.isfinite(table).all() else None
