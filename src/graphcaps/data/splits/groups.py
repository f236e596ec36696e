"""Groups and splits by the names that a user writes after ``--groups`` and ``--split``.

A name is a keyword (``copies``, ``scaffolds``, ``scaffold``, ``random``), a table beside the data or, for a split, a
column of the data file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.csv_cells import csv_text
from graphcaps.data.quality.duplicates import Duplicates, find_duplicates
from graphcaps.data.readers.graph_metadata import GraphMetadata
from graphcaps.data.readers.text_tables import TABLE_SUFFIXES, open_table
from graphcaps.data.splits.folds import Split, split_from_names
from graphcaps.data.splits.scaffolds import scaffold_groups, scaffold_split
from graphcaps.data.splits.seeded_splits import FRACTIONS, random_split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

__all__ = [
    "BY_DUPLICATES",
    "BY_SCAFFOLD",
    "RANDOM",
    "Grouping",
    "is_seeded",
    "is_table_path",
    "read_groups",
    "read_split_names",
    "resolve_groups",
    "resolve_split",
    "resolve_splits",
    "split_column",
    "write_groups",
]

BY_DUPLICATES = "copies"
"""Keyword for groups of duplicates."""

BY_SCAFFOLD = ("scaffolds", "scaffold")
"""Keywords for groups and for a split by scaffold; either is accepted for both."""

RANDOM = "random"
"""Keyword for a random split."""

_GROUP_COLUMNS = ("graph", "id", "class", "group", "size", "confirmed")


# ---------------------------------------------------------------------- groups
@dataclass(frozen=True, eq=False)
class Grouping:
    """Group index of each graph, ``ids [G]``, and what the groups are made ``by``, for messages and records."""

    ids: NDArray[np.int64]
    by: str


def resolve_groups(name: str | Path, store: GraphStore) -> Grouping:
    """Groups of graphs for folds that keep groups together.

    Args:
        name (str or Path): ``"copies"``: groups of duplicates, including undecided ones; ``"scaffolds"``: groups of
            molecules with the same ring system (:func:`graphcaps.data.splits.scaffolds.scaffold_groups`); else a table
            with the columns ``graph`` and ``group``, as ``graphcaps data check --groups`` writes it.
        store (GraphStore): The graphs; molecules, for scaffolds.

    Raises:
        ArgumentError: If there is no such file, or ``"scaffolds"`` is used for graphs that are not molecules.
        DataError: If the table does not fit the graphs.
    """
    if name == BY_DUPLICATES:
        return Grouping(find_duplicates(store).group_ids(), BY_DUPLICATES)
    if name not in BY_SCAFFOLD:
        if not Path(name).is_file():
            expected = "be 'copies', 'scaffolds' or an existing file"
            raise ArgumentError(store.name, "groups", expected, f"'{name}'")
        return Grouping(read_groups(name, len(store)), f"file {Path(name).name}")
    smiles = _require_smiles("groups", "be 'copies' or a file", store)
    return Grouping(scaffold_groups(smiles), BY_SCAFFOLD[0])


def write_groups(
    path: str | Path, store: GraphStore, duplicates: Duplicates, ids: Sequence[str] = ()
) -> None:
    """Writes a CSV with a row per graph: number from 1, id, class, group, size of the group, confirmed.

    ``confirmed`` is ``yes`` for a graph with a confirmed duplicate, ``unsure`` for an undecided one, and empty for a
    graph without duplicates. Ids and classes that a spreadsheet could read as a formula get an apostrophe in front.
    """
    groups = duplicates.group_ids()
    sizes = np.bincount(groups)
    confirmed = np.full(len(store), "", dtype=object)
    for group in duplicates.undecided:
        confirmed[group] = "unsure"
    for group in duplicates.groups:
        confirmed[group] = "yes"
    table: list[Sequence[object]] = [_GROUP_COLUMNS]
    for graph in range(len(store)):
        class_name = "" if store.y is None else store.class_names[int(store.y[graph])]
        graph_id = ids[graph] if ids else ""
        number = int(groups[graph])
        table.append((graph + 1, graph_id, class_name, number, int(sizes[number]), confirmed[graph]))
    write_atomically(path, csv_text(table))


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
    return None if name is None or is_seeded(name) or is_table_path(name) else name


def is_seeded(name: str) -> bool:
    """Whether a split of this name depends on a seed."""
    return name in (*BY_SCAFFOLD, RANDOM)


def is_table_path(name: str | Path) -> bool:
    """Whether a name is the path of a table, judged by its suffix."""
    return Path(name).suffix.lower() in TABLE_SUFFIXES


def resolve_split(
    name: str,
    store: GraphStore,
    metadata: GraphMetadata | None = None,
    *,
    seed: int = 0,
    fractions: Sequence[float] = FRACTIONS,
) -> Split:
    """Training, validation and test set.

    Args:
        name (str): ``"scaffold"`` (no ring system in two sets, :func:`graphcaps.data.splits.scaffolds.scaffold_split`),
            ``"random"`` (with the class proportions of the whole set), a table with the columns ``graph`` and
            ``split``, or the column that ``metadata.split`` was read from.
        store (GraphStore): The graphs, with classes for ``"scaffold"`` and ``"random"``.
        metadata (GraphMetadata, optional): Metadata of the graphs from their file.
        seed (int): Seed of ``"scaffold"`` and ``"random"``. (default: 0)
        fractions (sequence): Fractions of the three sets of ``"scaffold"`` and ``"random"``. (default: 0.8, 0.1, 0.1)

    Raises:
        ArgumentError: If a set has an unknown name, there are no training or test graphs, or a set of ``"scaffold"`` or
            ``"random"`` would lack one of the classes.
        DataError: If the table does not fit the graphs.
    """
    return resolve_splits(name, store, metadata, seeds=(seed,), fractions=fractions)[0]


def resolve_splits(
    name: str,
    store: GraphStore,
    metadata: GraphMetadata | None = None,
    *,
    seeds: Sequence[int] = (0,),
    fractions: Sequence[float] = FRACTIONS,
) -> tuple[Split, ...]:
    """One :func:`resolve_split` per seed; a split by column or table is one, whatever the seeds."""
    if is_seeded(name):
        return tuple(_seeded_splits(name, store, seeds, fractions))
    if is_table_path(name):
        set_names, source = read_split_names(name, len(store)), f"file {Path(name).name}"
    else:
        set_names, source = (() if metadata is None else metadata.split or ()), f"column '{name}'"
    try:
        return (replace(split_from_names(set_names), name=source),)
    except ArgumentError as error:
        raise ArgumentError(store.name, "split", error.expected, f"{error.got} in {source}") from error


def _seeded_splits(
    name: str, store: GraphStore, seeds: Sequence[int], fractions: Sequence[float]
) -> Iterator[Split]:
    if store.y is None:
        expected = "be a column or a file for graphs without classes"
        raise ArgumentError(store.name, "split", expected, f"'{name}'")
    smiles, groups = None, None
    if name != RANDOM:
        smiles = _require_smiles("split", "be random, a column or a file", store)
        groups = scaffold_groups(smiles)
    for seed in seeds:
        try:
            if smiles is None:
                yield random_split(store.y, fractions, seed, class_names=store.class_names)
            else:
                yield scaffold_split(
                    smiles, store.y, fractions, seed, groups=groups, class_names=store.class_names
                )
        except ArgumentError as error:
            raise ArgumentError(store.name, error.name, error.expected, error.got, error.fix) from error


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


def _require_smiles(argument: str, expected: str, store: GraphStore) -> tuple[str, ...]:
    if store.smiles is None:
        raise ArgumentError(
            store.name, argument, f"{expected} for graphs that are not read from SMILES", "scaffolds"
        )
    return store.smiles
