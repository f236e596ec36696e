"""Tables of text: CSV with the delimiter found out, and Parquet; every row keeps its line for messages."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphcaps._io.optional_imports import require
from graphcaps.data.readers.molecules import read_smiles
from graphcaps.data.readers.row_info import Rows
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError

__all__ = ["TABLES", "Table", "TableData", "open_table", "read_table"]

TABLES = (".csv", ".tsv", ".parquet")
"""Endings of files that are read as tables."""

_DELIMITERS = (",", ";", "\t")
_NO_CLASS = ("nan", "NaN", "NAN", "<NA>")  # as pandas and others write a missing entry


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns.

    Args:
        where (str): What messages call the file.
        columns (tuple): Names of the columns.
        rows (tuple): Entries of each row; an empty text where there is none.
        lines (tuple): Line of each row in a CSV, or its number from 1 in a Parquet file.
    """

    where: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]

    def find(self, name: str) -> int | None:
        """Place of a column by its name; case does not matter where that leaves one."""
        if name in self.columns:
            return self.columns.index(name)
        near = [place for place, column in enumerate(self.columns) if column.lower() == name.lower()]
        return near[0] if len(near) == 1 else None

    def place(self, name: str, fix: str = "") -> int:
        """The same for a column that must be there.

        Raises:
            DataError: If it is not; the message lists the columns.
        """
        found = self.find(name)
        if found is None:
            listed = ", ".join(f"'{column}'" for column in self.columns)
            raise DataError(self.where, f"a column '{name}'", f"the columns {listed}", line=1, fix=fix)
        return found

    def column(self, name: str, *, filled: bool = False) -> tuple[str, ...]:
        """Entries of a column; ``filled`` refuses an empty one with its line."""
        place = self.place(name)
        values = tuple(row[place] for row in self.rows)
        for line, value in zip(self.lines, values, strict=True) if filled else ():
            if not value:
                raise DataError(self.where, f"an entry in column '{name}'", "an empty one", line=line)
        return values

    def classes(self, name: str) -> tuple[str, ...]:
        """Entries of a column of classes: none is empty, and none is how programs write that there is no entry."""
        values = self.column(name, filled=True)
        for line, value in zip(self.lines, values, strict=True):
            if value in _NO_CLASS:
                raise DataError(self.where, f"a class in column '{name}'", f"'{value}'", line=line)
        return values

    def numbers(self, name: str) -> list[float]:
        """A column of finite numbers."""
        values = []
        for line, text in zip(self.lines, self.column(name), strict=True):
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise DataError(self.where, f"a number in column '{name}'", f"'{text}'", line=line)
            values.append(number)
        return values


@dataclass(frozen=True)
class TableData:
    """A store of molecules, and what its table says about each row that became one."""

    store: GraphStore
    rows: Rows


def read_table(
    path: str | Path | Table,
    smiles: str = "smiles",
    label: str | None = None,
    split: str | None = None,
    id: str | None = None,
    *,
    atoms: str = "elements",
    fragments: str = "all",
    bad: str = "refuse",
    class_names: Sequence[str] | None = None,
) -> TableData:
    """Reads molecules from a CSV or Parquet file with a column of SMILES.

    Args:
        path (str, Path or Table): The file, or what :func:`open_table` read of it. A CSV is UTF-8 with or without
            a byte-order mark, its first line names the columns, and they stand apart by comma, semicolon or tab.
        smiles (str): Column with the SMILES. (default: ``"smiles"``)
        label (str, optional): Column with the class, text or numbers; without one there are no classes.
        split (str, optional): Column that names the part of each row, see
            :func:`graphcaps.data.readers.row_info.given_split`.
        id (str, optional): Column with a name for each row. (default: the column ``id`` where its
            entries are all there and all different, else the line of the row)
        atoms, fragments, bad, class_names: As in :func:`graphcaps.data.readers.molecules.read_smiles`.

    Raises:
        DataError: If a column is missing, or at the first row that is no molecule or has no class.
    """
    table = path if isinstance(path, Table) else open_table(path)
    texts = table.column(smiles)
    y = None if label is None else table.classes(label)
    parts = None if split is None else table.column(split, filled=True)
    own = _own_names(table) if id is None else table.column(id, filled=True)
    names = tuple(map(str, table.lines)) if own is None else own
    read = read_smiles(
        texts,
        y,
        atoms=atoms,  # type: ignore[arg-type]
        fragments=fragments,  # type: ignore[arg-type]
        bad=bad,  # type: ignore[arg-type]
        class_names=class_names,
        name=Path(table.where).stem,
        where=table.where,
        lines=table.lines,
    )
    notes: tuple[str, ...] = ()
    if read.skipped:
        count = len(read.skipped)
        listed = ", ".join(str(row.line) for row in read.skipped[:10]) + (", …" if count > 10 else "")
        what = "row is no molecule and was" if count == 1 else "rows are no molecules and were"
        notes = (f"{count:,} {what} left out: line{'' if count == 1 else 's'} {listed}.",)
    return TableData(
        read.store,
        Rows(
            ids=tuple(names[g] for g in read.kept),
            split=None if parts is None else tuple(parts[g] for g in read.kept),
            smiles=read.smiles,
            skipped=read.skipped,
            notes=notes,
            named=own is not None,
            places=read.kept if read.skipped else None,
            skipped_ids=tuple(names[g] for g in sorted(set(range(len(names))) - set(read.kept))),
        ),
    )


def _own_names(table: Table) -> tuple[str, ...] | None:
    """The column ``id``, if it names every row, and no two alike."""
    names = table.column("id") if table.find("id") is not None else ()
    return names if all(names) and len(set(names)) == len(table.rows) else None


def open_table(path: str | Path) -> Table:
    """All rows of a CSV or Parquet file as text.

    Raises:
        DataError: If it cannot be read, has no rows, or a row has more or fewer entries than the first line.
    """
    path = Path(path)
    table = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    if not table.rows:
        raise DataError(table.where, "at least one row under the names of the columns", "none")
    return table


def _csv(path: Path) -> Table:
    where = path.name
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(path, "a file that can be read", f"'{error.strerror or error}'") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        fix = "Save the file as UTF-8."
        raise DataError(where, "text in UTF-8", "other bytes", line=line, fix=fix) from error
    if "\0" in text:
        raise DataError(where, "a table of text", "bytes that are no text")
    read = _lines(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True), where)
    header = next(read, None)
    if header is None:
        raise DataError(where, "the names of the columns", "an empty file", line=1)
    columns = tuple(name.strip() for name in header[1])
    if twice := [name for name in columns if name and columns.count(name) > 1]:
        raise DataError(where, "every column once", f"'{twice[0]}' twice", line=1)
    rows, lines = [], []
    for line, row in read:
        if len(row) != len(columns):
            found = f"{len(row)} entr{'y' if len(row) == 1 else 'ies'}"
            raise DataError(where, f"{len(columns)} entries, as in the first line", found, line=line)
        rows.append(tuple(entry.strip() for entry in row))
        lines.append(line)
    return Table(where, columns, tuple(rows), tuple(lines))


def _lines(reader: Iterator[list[str]], where: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line they begin on; empty lines are passed over."""
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
    """The one that parts the first line into the most columns, outside of quotes; a comma where none does."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    counts = {}
    for mark in _DELIMITERS:
        with_quotes = csv.reader([first], delimiter=mark)
        counts[mark] = len(next(with_quotes, []))
    return max(_DELIMITERS, key=lambda mark: counts[mark])


def _parquet(path: Path) -> Table:
    parquet = require("pyarrow.parquet", extra="tables", purpose="Reading Parquet files")
    try:
        read = parquet.read_table(path)
    except OSError as error:  # pyarrow's own errors are among these
        raise DataError(path, "a Parquet file that can be read", f"'{str(error).splitlines()[0]}'") from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "pyarrow":
            raise
        raise DataError(path, "a Parquet file", f"'{str(error).splitlines()[0]}'") from error
    columns = tuple(str(name) for name in read.column_names)
    entries = [[_text(value) for value in read.column(place).to_pylist()] for place in range(len(columns))]
    rows = tuple(zip(*entries, strict=True))
    return Table(path.name, columns, rows, tuple(range(1, len(rows) + 1)))


def _text(value: object) -> str:
    """An entry as a CSV file would have it; 1.0 is 1, as pandas writes whole numbers beside empty entries."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()
