"""Groups and splits by the names that a user writes after ``--groups`` and ``--split``.

A name is a keyword (``copies``, ``scaffolds``, ``scaffold``), a table beside the data or, for a split, a column of
the data file.
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
from graphcaps.data.readers.graph_metadata import GraphMetadata
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table
from graphcaps.data.splits.folds import Split, split_from_names
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

BY_DUPLICATES = "copies"
"""Keyword for groups of duplicates."""

BY_SCAFFOLD = ("scaffolds", "scaffold")
"""Keywords for groups and for a split by scaffold; either is accepted for both."""

_FRACTIONS = (0.8, 0.1, 0.1)  # training, validation and test fraction of a scaffold split
_FRACTION_TOLERANCE = 0.05  # larger deviations are stated in the name of the split
_GROUP_COLUMNS = ("graph", "id", "class", "group", "size", "confirmed")


# ---------------------------------------------------------------------- groups
@dataclass(frozen=True, eq=False)
class Grouping:
    """Group index of each graph, ``ids [G]``, and what the groups are made ``by``, for messages and records."""

    ids: NDArray[np.int64]
    by: str


def resolve_groups(name: str | Path, store: GraphStore, smiles: Sequence[str] | None = None) -> Grouping:
    """Groups of graphs for folds that keep groups together.

    Args:
        name (str or Path): ``"copies"``: groups of duplicates, including undecided ones; ``"scaffolds"``: groups of
            molecules with the same ring system, joined with their duplicates; else a table with the columns ``graph``
            and ``group``, as ``graphcaps data check --groups`` writes it.
        store (GraphStore): The graphs.
        smiles (sequence, optional): SMILES of each graph, required for scaffolds.

    Raises:
        ArgumentError: If there is no such file, or ``"scaffolds"`` is used without SMILES.
        DataError: If the table does not fit the graphs.
    """
    if name == BY_DUPLICATES:
        return Grouping(find_duplicates(store).group_ids(), BY_DUPLICATES)
    if name not in BY_SCAFFOLD:
        if not Path(name).is_file():
            expected = "be 'copies', 'scaffolds' or an existing file"
            raise ArgumentError(store.name, "groups", expected, f"'{name}'")
        return Grouping(read_groups(name, len(store)), f"file {Path(name).name}")
    molecules = _require_smiles("groups", "be 'copies' or a file", store, smiles)
    # Molecules without rings share no scaffold. Duplicates stay together even where their SMILES differ in charge,
    # isotope or stereochemistry, which the graphs need not represent.
    duplicates = find_duplicates(store).group_ids()
    names = [scaffold or f"alone {index}" for index, scaffold in enumerate(murcko_scaffolds(molecules))]
    by_scaffold = np.unique(np.array(names), return_inverse=True)[1]
    return Grouping(_union_of_groups(duplicates, by_scaffold), BY_SCAFFOLD[0])


def _union_of_groups(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Finest grouping that keeps the groups of both together: connected components of graphs and groups."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    G, one, two = len(first), first.reshape(-1), second.reshape(-1)
    groups = np.concatenate([G + one, G + one.max(initial=-1) + 1 + two])
    size = int(groups.max(initial=G - 1)) + 1
    graphs = np.tile(np.arange(G), 2)
    adjacency = coo_matrix((np.ones(2 * G, dtype=np.int8), (graphs, groups)), shape=(size, size))
    components: NDArray[np.int64] = connected_components(adjacency, directed=False)[1][:G].astype(np.int64)
    return np.unique(components, return_inverse=True)[1].reshape(-1).astype(np.int64)


def write_groups(
    path: str | Path, store: GraphStore, duplicates: Duplicates, ids: Sequence[str] = ()
) -> None:
    """Writes a CSV with a row per graph: number from 1, id, class, group, size of the group, confirmed.

    ``confirmed`` is ``yes`` for a graph with a confirmed duplicate, ``unsure`` for an undecided one, and empty for a
    graph without duplicates.
    """
    groups = duplicates.group_ids()
    sizes = np.bincount(groups)
    confirmed = np.full(len(store), "", dtype=object)
    for group in duplicates.undecided:
        confirmed[group] = "unsure"
    for group in duplicates.groups:
        confirmed[group] = "yes"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_GROUP_COLUMNS)
    for graph in range(len(store)):
        class_name = "" if store.y is None else store.class_names[int(store.y[graph])]
        graph_id = ids[graph] if ids else ""
        number = int(groups[graph])
        writer.writerow((graph + 1, graph_id, class_name, number, int(sizes[number]), confirmed[graph]))
    write_atomically(path, text.getvalue())


def read_groups(path: str | Path, num_graphs: int) -> NDArray[np.int64]:
    """Group index of each graph, ``[G]``, for ``stratified_folds(…, groups=…)``.

    Args:
        path (str or Path): A table with the columns ``graph`` (from 1 or from 0, in order) and ``group``.
        num_graphs (int): Number of graphs G.

    Raises:
        DataError: If the table has another number or another order of graphs.
    """
    names = np.array(_read_graph_column(path, num_graphs, "group"))
    ids: NDArray[np.int64] = np.unique(names, return_inverse=True)[1].reshape(-1)
    return ids


# ---------------------------------------------------------------------- splits
def split_column(name: str | None) -> str | None:
    """The column of the data file that a split is read from; ``None`` for a keyword or a table."""
    return None if name is None or name in BY_SCAFFOLD or is_table_path(name) else name


def is_table_path(name: str | Path) -> bool:
    """Whether a name is the path of a table, judged by its suffix."""
    return Path(name).suffix.lower() in TABLE_SUFFIXES


def resolve_split(name: str, store: GraphStore, metadata: GraphMetadata | None) -> Split:
    """Training, validation and test set.

    Args:
        name (str): ``"scaffold"`` (80, 10 and 10 % of the molecules, no ring system in two sets; a molecule without
            rings is only kept with its duplicates), a table with the columns ``graph`` and ``split``, or the column
            that ``metadata.split`` was read from. If ring systems are too large for these fractions, the name of the
            returned split states the actual ones.
        store (GraphStore): The graphs.
        metadata (GraphMetadata, optional): Metadata of the graphs from their file.

    Raises:
        ArgumentError: If a set has an unknown name, or there are no training or test graphs.
        DataError: If the table does not fit the graphs.
    """
    if name in BY_SCAFFOLD:
        smiles = None if metadata is None else metadata.smiles
        molecules = _require_smiles("split", "be a column or a file", store, smiles)
        split = scaffold_split(molecules, _FRACTIONS, groups=resolve_groups(name, store, molecules).ids)
        return replace(split, name=f"by scaffold{_actual_fractions(split)}")
    if is_table_path(name):
        set_names, source = read_split_names(name, len(store)), f"file {Path(name).name}"
    else:
        set_names, source = (() if metadata is None else metadata.split or ()), f"column '{name}'"
    try:
        return replace(split_from_names(set_names), name=source)
    except ArgumentError as error:
        raise ArgumentError(store.name, "split", error.expected, f"{error.got} in {source}") from error


def _actual_fractions(split: Split) -> str:
    """The fractions of a scaffold split in words where they deviate from 80, 10 and 10 %, else ""."""
    sets = (split.train, split.validation, split.test)
    counts = np.array([0 if indices is None else indices.numel() for indices in sets])
    fractions = counts / counts.sum()
    if counts.all() and np.abs(fractions - _FRACTIONS).max() <= _FRACTION_TOLERANCE:
        return ""
    train, validation, test = (f"{100 * fraction:.0f}" for fraction in fractions)
    return f": {train}, {validation} and {test} % of the molecules, as the ring systems allow"


def read_split_names(path: str | Path, num_graphs: int) -> tuple[str, ...]:
    """Name of each graph's set as written, for :func:`graphcaps.data.splits.folds.split_from_names`.

    Args:
        path (str or Path): A table with the columns ``graph`` (from 1 or from 0, in order) and ``split``.
        num_graphs (int): Number of graphs.

    Raises:
        DataError: If the table has another number or another order of graphs.
    """
    return _read_graph_column(path, num_graphs, "split")


def _read_graph_column(path: str | Path, num_graphs: int, name: str) -> tuple[str, ...]:
    """A column of a table whose column ``graph`` numbers the graphs in order."""
    table = open_table(path)
    values = table.column(name, filled=True)  # before 'graph': a missing column says most about a wrong file
    numbers = table.column("graph")
    if len(numbers) != num_graphs:
        raise DataError(table.where, f"a row for each of {num_graphs:,} graphs", f"{len(numbers):,}")
    start = 0 if numbers[:1] == ("0",) else 1
    for expected, (number, line) in enumerate(zip(numbers, table.lines, strict=True), start):
        if number != str(expected):
            raise DataError(table.where, f"graph {expected}", f"'{number}'", line=line)
    return values


def _require_smiles(
    argument: str, expected: str, store: GraphStore, smiles: Sequence[str] | None
) -> Sequence[str]:
    if smiles is None:
        raise ArgumentError(
            store.name, argument, f"{expected} for graphs that are not read from SMILES", "scaffolds"
        )
    return smiles
