"""Fast and strict parser for tables of numbers in text files.

A row is a line. Its numbers are separated by a comma, by blanks, or by both; lines end with ``\\n`` or ``\\r\\n``. A
byte-order mark at the start and empty lines at the end are ignored. An empty line before the last row is an error, so
that row i of a table is always line i + 1 of its file.

The text is split into blocks at line ends. A vectorised parser handles blocks in the common layout. Any other block
goes through :class:`LineReader`, which parses line by line and reports the first error with its line.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphcaps._io.read_limit import check_memory
from graphcaps.errors import DataError

__all__ = ["LineReader", "MemoryBudget", "read_integers", "read_numbers"]

BLOCK_BYTES = 1 << 19  # the temporary arrays of a block of this size fit into the processor's cache
MAX_LINE_BYTES = 1 << 24  # a longer line cannot be a row of numbers, and is not collected in memory
_COMMA, _BLANK, _TAB, _NEWLINE, _RETURN, _MINUS, _PLUS = b", \t\n\r-+"
_FLOAT_BYTES = b"0123456789+-.eE, \t\r\n"
_SEPARATOR = re.compile(rb"[ \t]*,[ \t]*|[ \t]+")
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_NOT_TEXT = re.compile(rb"[^\t\x20-\x7e]")
_SMALLEST, _LARGEST, _TOO_LARGE = -(2**63), 2**63 - 1, 2**64
_MAX_SHOWN = 40  # characters of a line in a message


def read_integers(
    text: bytes | Iterable[bytes],
    where: str,
    row: str,
    *,
    columns: int | None = None,
    integral_floats: bool = False,
    budget: MemoryBudget | None = None,
) -> NDArray[np.signedinteger]:
    """Parses a table of integers.

    Args:
        text (bytes or iterable of bytes): Content of the file, whole or in chunks of any size.
        where (str): File name for messages.
        row (str): Description of a row for messages ("two node ids").
        columns (int, optional): Numbers per row. (default: as in the first row)
        integral_floats (bool): Whether 3.0 is read as 3. (default: ``False``)
        budget (MemoryBudget, optional): Counts the bytes of the table while it is read.

    Returns:
        ndarray: ``[rows, columns]``, int32 if all numbers have at most nine digits, otherwise int64.

    Raises:
        DataError: If the file is empty, or at the first invalid line.
    """
    lines = LineReader(where, row, columns, kind="label" if integral_floats else "integer")
    return _read(text, lines, _fast_integers, budget)


def read_numbers(
    text: bytes | Iterable[bytes],
    where: str,
    row: str,
    *,
    columns: int | None = None,
    budget: MemoryBudget | None = None,
) -> NDArray[np.float64]:
    """Parses a table of finite numbers ``[rows, columns]``; the arguments are those of :func:`read_integers`.

    Raises:
        DataError: If the file is empty, or at the first invalid line; NaN and infinity are invalid.
    """
    return _read(text, LineReader(where, row, columns, kind="number"), _fast_numbers, budget)


class MemoryBudget:
    """Counts the memory that the tables of a data set take, while they are read.

    Attributes:
        factor (int): Bytes that the store and its construction take per byte of the table that is read now.
    """

    def __init__(self) -> None:
        self.needed, self.factor = 0, 1

    def add(self, size: int, where: str) -> None:
        """Adds ``size`` bytes of a table.

        Raises:
            DataError: If the tables together exceed :func:`graphcaps._io.read_limit.read_limit`.
        """
        self.needed += self.factor * size
        check_memory(where, self.needed)


class LineReader:
    """Parses the lines of a file in order and counts them for messages.

    Args:
        where (str): File name for messages.
        row (str): Description of a row for messages ("two node ids").
        columns (int, optional): Numbers per row. ``None`` takes the count of the first row.
        kind (str): ``"integer"``; ``"label"``, an integer that can be written as 3.0; or ``"number"``, a finite
            number.
    """

    def __init__(
        self, where: str, row: str, columns: int | None, *, kind: Literal["integer", "label", "number"]
    ) -> None:
        self.where, self.row, self.columns, self.kind = where, row, columns, kind
        self.lines = 0  # lines read so far
        self.first_empty: int | None = None  # line number of the first empty line

    def set_columns(self, block: bytes) -> None:
        """Sets the number of columns from the first line of ``block``, unless that line is empty."""
        line = block[: block.index(b"\n")].removesuffix(b"\r").strip(b" \t")
        if line:
            self.columns = len(_SEPARATOR.split(line))

    def skip(self, rows: int) -> None:
        """Counts rows that were parsed elsewhere."""
        self.lines += rows

    def read(self, block: bytes) -> NDArray:
        """Parses a block that ends with a newline to an array ``[rows, columns]``.

        Raises:
            DataError: At the first line that is not a valid row.
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
                rows.append(self._parse_row(line))
        dtype = np.float64 if self.kind == "number" else np.int64
        return np.array(rows, dtype).reshape(len(rows), self.columns or 1)

    def _parse_row(self, line: bytes) -> list[int] | list[float]:
        invalid = _NOT_TEXT.search(line)
        if invalid:
            raise self._error(f"a byte that is not text (0x{invalid.group()[0]:02x})")
        tokens = _SEPARATOR.split(line)
        for token in tokens:
            if _NOT_FINITE.fullmatch(token):
                raise self._error(f"{_quote(token)}, which is not a finite number")
            if token and not (_INTEGER if self.kind == "integer" else _NUMBER).fullmatch(token):
                raise self._error(_quote(token))
        if self.columns is None:
            self.columns = len(tokens)
        if b"" in tokens or len(tokens) < self.columns:
            raise self._error(f"an incomplete row, {_quote(line)}")
        if len(tokens) > self.columns:
            raise self._error(f"{len(tokens)} numbers, {_quote(line)}")
        if self.kind == "number":
            return [self._parse_float(token) for token in tokens]
        return [self._parse_int(token) for token in tokens]

    def _parse_float(self, token: bytes) -> float:
        value = float(token)
        if math.isinf(value):
            raise self._error(f"a number that is too large, {_quote(token)}")
        return value

    def _parse_int(self, token: bytes) -> int:
        if _INTEGER.fullmatch(token):
            # Python does not convert thousands of digits, and 20 exceed int64 already.
            digits = token.lstrip(b"+-").lstrip(b"0") or b"0"
            value = int(digits) if len(digits) < 20 else _TOO_LARGE
            value = -value if token.startswith(b"-") else value
        else:
            number = self._parse_float(token)
            if not number.is_integer():
                raise self._error(_quote(token))
            value = int(number) if abs(number) < 2**53 else _TOO_LARGE
        if not _SMALLEST <= value <= _LARGEST:
            raise self._error(f"a number that is too large, {_quote(token)}")
        return value

    def _error(self, found: str) -> DataError:
        return DataError(self.where, self.row, found, line=self.lines)


def _quote(text: bytes) -> str:
    shown = text.decode("ascii")
    return f"'{shown}'" if len(shown) <= _MAX_SHOWN else f"'{shown[:_MAX_SHOWN]}…'"


def _read(
    text: bytes | Iterable[bytes],
    lines: LineReader,
    fast: Callable[[bytes, int], NDArray | None],
    budget: MemoryBudget | None,
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
        if budget is not None:
            budget.add(table.nbytes, lines.where)
    if not tables:
        raise DataError(lines.where, lines.row, "an empty file", line=1)
    return np.concatenate(tables)


def _blocks(chunks: Iterable[bytes], where: str) -> Iterator[bytes]:
    """Regroups ``chunks`` into blocks that end with a newline."""
    rest, lines_before, first = b"", 0, True
    for chunk in chunks:
        for start in range(0, len(chunk), BLOCK_BYTES):
            part = chunk[start : start + BLOCK_BYTES]
            cut = part.rfind(b"\n") + 1
            if cut:
                block = rest + part[:cut]
                rest = part[cut:]
                lines_before += block.count(b"\n")
                yield block.removeprefix(b"\xef\xbb\xbf") if first else block
                first = False
            else:
                rest += part
            if len(rest) > MAX_LINE_BYTES:
                found = f"a line of more than {MAX_LINE_BYTES >> 20} MB"
                raise DataError(where, "lines of numbers", found, line=lines_before + 1)
    if first:
        rest = rest.removeprefix(b"\xef\xbb\xbf")
    if rest:
        yield rest + b"\n"


def _fast_integers(block: bytes, columns: int) -> NDArray | None:
    """Parses a block in the common layout to ``[rows, columns]``; ``None`` if the block has another layout.

    The common layout has numbers of up to 18 digits with or without a sign, separated by ``","``, ``", "``, a blank or
    a tab, a line end after each row, and nothing else.
    """
    text = np.frombuffer(block, np.uint8)
    digit = text - np.uint8(ord("0"))  # unsigned: other bytes become 10 or more
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
    if first[0] != 0 or not _common_separators(text, first, end, columns):
        return None

    values = digit[end - 1].astype(np.int32 if longest <= 9 else np.int64)
    for position in range(1, longest):
        digits = digit.take(end - (position + 1), mode="wrap").astype(values.dtype)
        if position >= shortest:
            digits[length <= position] = 0  # shorter numbers have no digit at this position
        digits *= 10**position
        np.add(values, digits, out=values)
    if negative is not None:
        np.negative(values, out=values, where=negative)
    return values.reshape(-1, columns)


def _common_separators(text: NDArray, first: NDArray, end: NDArray, columns: int) -> bool:
    """Whether every number is followed by a common separator, or by a line end at the end of a row."""
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
    """Parses a block with numpy to ``[rows, columns]``; ``None`` if :class:`LineReader` could differ."""
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
    # numpy skips empty lines, which would shift the line numbers of later messages.
    return table if table.shape == (rows, columns) and np.isfinite(table).all() else None
