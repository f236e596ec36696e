"""Tables of text: CSV files with an automatic delimiter, and Parquet files. Every row keeps its line for messages."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcaps._io.optional_imports import require
from graphcaps._io.read_limit import check_memory, read_bounded, read_limit
from graphcaps.errors import DataError, GraphcapsError, shorten

__all__ = ["TABLE_SUFFIXES", "Table", "open_table"]

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
"""Suffixes of files that are read as tables."""

_DELIMITERS = (",", ";", "\t")
# Bytes that a row and an entry take besides their text.
_ROW_BYTES, _ENTRY_BYTES = 110, 60
_MAX_BATCH = 4096  # rows of a Parquet file that are unpacked at once


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns.

    Args:
        where (str): Path of the file for messages, as the user named it.
        columns (tuple): Column names.
        rows (tuple): Entries of each row; an empty string for a missing entry.
        lines (tuple): Line of each row in a CSV file, or its number from 1 in a Parquet file.
    """

    where: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def find_column(self, name: str) -> int | None:
        """Index of the column ``name``, or ``None``. Case is ignored where that is unambiguous."""
        if name in self.columns:
            return self.columns.index(name)
        similar = [index for index, column in enumerate(self.columns) if column.lower() == name.lower()]
        return similar[0] if len(similar) == 1 else None

    def column_index(self, name: str, fix: str = "") -> int:
        """Index of the column ``name``, which must exist.

        Raises:
            DataError: If there is no such column; the message lists the columns.
        """
        index = self.find_column(name)
        if index is None:
            listed = ", ".join(f"'{shorten(column, 60)}'" for column in self.columns)
            raise DataError(self.where, f"a column '{name}'", f"the columns {listed}", line=1, fix=fix)
        return index

    def column(self, name: str, *, filled: bool = False) -> tuple[str, ...]:
        """Entries of a column.

        Args:
            name (str): Name of the column.
            filled (bool): Whether an empty entry is an error. (default: ``False``)

        Raises:
            DataError: If there is no such column, or, with ``filled``, at the first empty entry.
        """
        index = self.column_index(name)
        values = tuple(row[index] for row in self.rows)
        for line, value in zip(self.lines, values, strict=True) if filled else ():
            if not value:
                raise DataError(
                    self.where, f"an entry in column '{shorten(name, 60)}'", "an empty one", line=line
                )
        return values

    def numbers(self, name: str) -> list[float]:
        """Entries of a column of finite numbers.

        Raises:
            DataError: At the first entry that is not a finite number.
        """
        values = []
        for line, text in zip(self.lines, self.column(name), strict=True):
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise DataError(
                    self.where, f"a number in column '{shorten(name, 60)}'", f"'{text}'", line=line
                )
            values.append(number)
        return values


def open_table(path: str | Path) -> Table:
    """Reads all rows of a CSV or Parquet file as text.

    A CSV file is UTF-8, with or without a byte-order mark. Its first line names the columns; the delimiter is a
    comma, a semicolon or a tab. Empty lines are skipped.

    Raises:
        DataError: If the file cannot be read, has no rows, or a row has more or fewer entries than the first line.
    """
    path = Path(path)
    table = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    if not table.rows:
        raise DataError(table.where, "at least one row below the column names", "none")
    return table


def _read_csv(path: Path) -> Table:
    where = str(path)
    try:
        content = read_bounded(path)
        _check_entries(content, where)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise DataError(path, f"the file cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        fix = "Save the file as UTF-8."
        raise DataError(where, "text in UTF-8", "other bytes", line=line, fix=fix) from error
    if "\0" in text:
        raise DataError(where, "a table of text", "binary data")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    numbered = _numbered_rows(reader, where)
    header = next(numbered, None)
    if header is None:
        raise DataError(where, "the column names", "an empty file", line=1)
    columns = tuple(name.strip() for name in header[1])
    if repeated := [name for name in columns if name and columns.count(name) > 1]:
        raise DataError(where, "distinct column names", f"'{repeated[0]}' twice", line=1)
    rows, lines = [], []
    for line, row in numbered:
        if len(row) != len(columns):
            found = f"{len(row)} entr{'y' if len(row) == 1 else 'ies'}"
            raise DataError(where, f"{len(columns)} entries, as in the first line", found, line=line)
        rows.append(tuple(entry.strip() for entry in row))
        lines.append(line)
    return Table(where, columns, tuple(rows), tuple(lines))


def _check_entries(content: bytes, where: str) -> None:
    """Checks what a CSV file takes when it is parsed, by its delimiters and line ends."""
    rows = content.count(b"\n") + content.count(b"\r")
    delimiters = max(content.count(delimiter.encode()) for delimiter in _DELIMITERS)
    check_memory(where, 6 * len(content) + _ROW_BYTES * rows + _ENTRY_BYTES * (rows + delimiters))


def _numbered_rows(reader: Iterator[list[str]], where: str) -> Iterator[tuple[int, list[str]]]:
    """Yields each row with the line on which it begins; empty lines are skipped."""
    begin = 1
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataError(where, "a row of a CSV file", f"'{error}'", line=begin) from error
        if row is None:
            return
        if row and not (len(row) == 1 and not row[0].strip()):
            yield begin, row
        begin = reader.line_num + 1  # type: ignore[attr-defined]


def _delimiter(text: str) -> str:
    """The delimiter that gives the most columns in the first line, outside quotes; a comma in case of a tie."""
    lines = (found.group() for found in re.finditer(r"[^\r\n]+", text))  # not all of them at once
    first = next((line for line in lines if line.strip()), "")
    counts = {delimiter: len(next(csv.reader([first], delimiter=delimiter), [])) for delimiter in _DELIMITERS}
    return max(_DELIMITERS, key=lambda delimiter: counts[delimiter])


def _read_parquet(path: Path) -> Table:
    parquet = require("pyarrow.parquet", extra="tables", purpose="Reading Parquet files")
    try:
        with parquet.ParquetFile(path) as file:
            columns, rows = _parquet_rows(file, path)
    except GraphcapsError:
        raise
    except OSError as error:  # includes pyarrow's own input errors
        raise DataError(path, "a Parquet file that can be read", f"'{str(error).splitlines()[0]}'") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "pyarrow":
            raise DataError(path, "a Parquet file", f"'{str(error).splitlines()[0]}'") from error
        if isinstance(
            error, ValueError | OverflowError
        ):  # text that is not UTF-8, dates that Python cannot hold
            raise DataError(path, "entries that can be read", f"'{error}'") from error
        raise
    return Table(str(path), columns, tuple(rows), tuple(range(1, len(rows) + 1)))


def _parquet_rows(file: Any, path: Path) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Column names and rows, unpacked in steps.

    A dictionary stores an entry once for all rows, so that neither the file nor the sizes that it states bound the
    content. No entry is larger than the stated size of its column, which bounds the rows that are unpacked at once.
    """
    metadata = file.metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    chunks = [
        group.column(index).total_uncompressed_size for group in groups for index in range(group.num_columns)
    ]
    columns = tuple(str(name) for name in file.schema_arrow.names)
    needed = metadata.num_rows * (_ROW_BYTES + 8 * len(columns))
    check_memory(path, needed + 2 * max([0, *(group.total_byte_size for group in groups)]))
    batch = max(1, min(_MAX_BATCH, read_limit() // 8 // max([1, *chunks])))
    rows: list[tuple[str, ...]] = []
    for part in file.iter_batches(batch_size=batch):
        entries = [[_entry(value) for value in column.to_pylist()] for column in part.columns]
        needed += sum(_ENTRY_BYTES + len(entry) for column in entries for entry in column)
        check_memory(path, needed)
        rows += zip(*entries, strict=True)
    return columns, rows


def _entry(value: object) -> str:
    """An entry as a CSV file holds it. 1.0 becomes 1: pandas stores whole numbers so where entries are missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
