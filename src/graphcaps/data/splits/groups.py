"""What a user calls a grouping or a split, as groups of graphs and parts of a data set.

A word (``copies``, ``scaffolds``, ``scaffold``), a table beside the data, or for a split a column of the data itself.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphcaps._io.atomic_write import write_atomically
from graphcaps.data.quality.duplicates import Duplicates, find_duplicates
from graphcaps.data.readers.graph_metadata import GraphMetadata, split_from_names
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table
from graphcaps.data.splits.folds import Split
from graphcaps.data.splits.scaffolds import murcko_scaffolds, scaffold_split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

__all__ = [
    "BY_DUPLICATES",
    "BY_SCAFFOLD",
    "Grouping",
    "is_table_path",
    "read_groups",
    "read_split_names",
    "resolve_groups",
    "resolve_split",
    "split_column",
    "write_groups",
]


_COLUMNS = ("graph", "id", "class", "group", "size", "confirmed")


def write_groups(path: str | Path, store: GraphStore, found: Duplicates, ids: Sequence[str] = ()) -> None:
    """Writes a row per graph: its number from 1, its id, class and group, the group's size, and whether it is sure.

    ``confirmed`` is ``yes`` for a graph with a confirmed copy, ``unsure`` where that is not decided, and empty for
    a graph that stands alone.
    """
    groups = found.group_ids()
    sizes = np.bincount(groups)
    said = np.full(len(store), "", dtype=object)
    for group in found.undecided:
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


def read_split_names(path: str | Path, graphs: int) -> tuple[str, ...]:
    """The part of each graph as written, for ``split_from_names``, from the columns ``graph`` (from 1 or from 0, in
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


BY_DUPLICATES = "copies"
BY_SCAFFOLD = ("scaffolds", "scaffold")  # for groups and for a split; either word does for both
_SHARES = (0.8, 0.1, 0.1)
_FAR = 0.05  # a share that is off by more is told


@dataclass(frozen=True, eq=False)
class Grouping:
    """The group of each graph, ``ids`` ``[G]``, and where they come from, in words."""

    ids: NDArray[np.int64]
    by: str


def resolve_groups(what: str | Path, store: GraphStore, smiles: Sequence[str] | None = None) -> Grouping:
    """The group of each graph, for folds that keep groups together.

    Args:
        what (str or Path): ``"copies"``: graphs that are the same up to the order of nodes, and those of which that
            could not be decided; ``"scaffolds"``: molecules of one ring system; else a file with the columns
            ``graph`` and ``group``, as ``graphcaps data check --groups`` writes it.
        store (GraphStore): The graphs.
        smiles (sequence, optional): SMILES of each graph, which scaffolds need.

    Raises:
        ArgumentError: If scaffolds are asked of graphs without SMILES.
        DataError: If the file is of other graphs.
    """
    if what == BY_DUPLICATES:
        return Grouping(find_duplicates(store).group_ids(), BY_DUPLICATES)
    if what not in BY_SCAFFOLD:
        if not Path(what).is_file():
            expected = "be 'copies', 'scaffolds' or a file that exists"
            raise ArgumentError(store.name, "groups", expected, f"'{what}'")
        return Grouping(read_groups(what, len(store)), f"file {Path(what).name}")
    known = _molecules("groups", "be 'copies' or a file", store, smiles)
    # Without rings there is no scaffold to share. And copies stay together whatever their SMILES say of charge,
    # isotope or arrangement in space, which graphs need not show.
    copies = find_duplicates(store).group_ids()
    shared = [scaffold or f"alone {place}" for place, scaffold in enumerate(murcko_scaffolds(known))]
    return Grouping(_joined(copies, np.unique(np.array(shared), return_inverse=True)[1]), BY_SCAFFOLD[0])


def _joined(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Groups of graphs that a chain of shared groups, of one kind or the other, leads between."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    G, one, two = len(first), first.reshape(-1), second.reshape(-1)
    ends = np.concatenate([G + one, G + one.max(initial=-1) + 1 + two])
    size = int(ends.max(initial=G - 1)) + 1
    graphs = np.tile(np.arange(G), 2)
    joins = coo_matrix((np.ones(2 * G, dtype=np.int8), (graphs, ends)), shape=(size, size))
    found: NDArray[np.int64] = connected_components(joins, directed=False)[1][:G].astype(np.int64)
    return np.unique(found, return_inverse=True)[1].reshape(-1).astype(np.int64)


def split_column(what: str | None) -> str | None:
    """The column that a split is read from with the data, or ``None`` where it is none of its columns."""
    return None if what is None or what in BY_SCAFFOLD or is_table_path(what) else what


def is_table_path(what: str | Path) -> bool:
    """Whether a text names a table rather than a column."""
    return Path(what).suffix.lower() in TABLE_SUFFIXES


def resolve_split(what: str, store: GraphStore, rows: GraphMetadata | None) -> Split:
    """The graphs to learn from, to choose by and to test on, as a user names them.

    Args:
        what (str): ``"scaffold"`` (80, 10 and 10 % of the molecules, no ring system in two parts; a molecule without
            rings stands alone but for its copies), a table with the columns ``graph`` and ``split``, or the column
            that ``rows.split`` was read from. Where ring systems are too large for these shares, the name of the
            split says the real ones.
        store (GraphStore): The graphs.
        rows (GraphMetadata, optional): What their source says about each.

    Raises:
        ArgumentError: If a part has another name, or there is nothing to learn from or to test on.
        DataError: If the file is of other graphs.
    """
    if what in BY_SCAFFOLD:
        known = _molecules("split", "be a column or a file", store, None if rows is None else rows.smiles)
        split = scaffold_split(known, _SHARES, groups=resolve_groups(what, store, known).ids)
        return replace(split, name=f"by scaffold{_real_shares(split)}")
    if is_table_path(what):
        names, name = read_split_names(what, len(store)), f"file {Path(what).name}"
    else:
        names, name = (() if rows is None else rows.split or ()), f"column '{what}'"
    try:
        return replace(split_from_names(names), name=name)
    except ArgumentError as error:
        raise ArgumentError(store.name, "split", error.expected, f"{error.got} in {name}") from error


def _real_shares(split: Split) -> str:
    """The shares of the parts where they are not the usual ones, else ""."""
    parts = (split.train, split.validation, split.test)
    counts = np.array([0 if part is None else part.numel() for part in parts])
    shares = counts / counts.sum()
    if counts.all() and np.abs(shares - _SHARES).max() <= _FAR:
        return ""
    train, valid, test = (f"{100 * share:.0f}" for share in shares)
    return f": {train}, {valid} and {test} % of the molecules, as the ring systems allow"


def _molecules(name: str, expected: str, store: GraphStore, smiles: Sequence[str] | None) -> Sequence[str]:
    if smiles is None:
        where = f"{expected} for graphs that are not read from SMILES"
        raise ArgumentError(store.name, name, where, "scaffolds")
    return smiles
