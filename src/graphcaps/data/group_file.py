"""Groups and parts of graphs in a table: written by ``graphcaps data check --groups``, read back for folds."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphcaps.data.duplicates import Duplicates
from graphcaps.data.store import GraphStore
from graphcaps.data.tables import open_table
from graphcaps.errors import DataError
from graphcaps.files import write_atomically

__all__ = ["read_groups", "read_parts", "write_groups"]

_COLUMNS = ("graph", "id", "class", "group", "size", "confirmed")


def write_groups(path: str | Path, store: GraphStore, found: Duplicates, ids: Sequence[str] = ()) -> None:
    """Writes a row per graph: its number from 1, its id, class and group, the group's size, and whether it is sure.

    ``confirmed`` is ``yes`` for a graph with a confirmed copy, ``unsure`` where that is not decided, and empty for
    a graph that stands alone.
    """
    groups = found.group_ids()
    sizes = np.bincount(groups)
    said = np.full(len(store), "", dtype=object)
    for group in found.unsure:
        said[group] = "unsure"
    for group in found.groups:
        said[group] = "yes"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for graph in range(len(store)):
        name = "" if store.y is None else store.class_names[int(store.y[graph])]
        own = ids[graph] if ids else ""
        number = int(groups[graph])
        writer.writerow((graph + 1, own, name, number, int(sizes[number]), said[graph]))
    write_atomically(path, text.getvalue())


def read_groups(path: str | Path, graphs: int) -> NDArray[np.int64]:
    """The group of each graph, ``[G]``, for ``stratified_folds(…, groups=…)``.

    Any CSV with the columns ``graph`` (from 1 or from 0, in order) and ``group`` will do.

    Raises:
        DataError: If the file is of another number of graphs, or of another order.
    """
    names = np.array(_column(path, graphs, "group"))
    ids: NDArray[np.int64] = np.unique(names, return_inverse=True)[1].reshape(-1)
    return ids


def read_parts(path: str | Path, graphs: int) -> tuple[str, ...]:
    """The part of each graph as written, for ``given_split``, from the columns ``graph`` (from 1 or from 0, in
    order) and ``split``.

    Raises:
        DataError: If the file is of another number of graphs, or of another order.
    """
    return _column(path, graphs, "split")


def _column(path: str | Path, graphs: int, name: str) -> tuple[str, ...]:
    """An entry for each graph of a table that numbers them in order."""
    table = open_table(path)
    found = table.column(name, filled=True)  # a file of another kind is told by its columns first
    numbers = table.column("graph")
    if len(numbers) != graphs:
        raise DataError(table.where, f"a row for each of {graphs:,} graphs", f"{len(numbers):,}")
    first = 0 if numbers[:1] == ("0",) else 1
    for place, (number, line) in enumerate(zip(numbers, table.lines, strict=True), first):
        if number != str(place):
            raise DataError(table.where, f"graph {place}", f"'{number}'", line=line)
    return found
