"""Rows of numbers read line by line: the exact reader behind :mod:`graphcaps.data.text`, and its messages."""

from __future__ import annotations

import math
import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphcaps.errors import DataError

__all__ = ["LineReader"]

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
