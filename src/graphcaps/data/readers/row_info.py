"""What a user's own file knows about its graphs beside the graphs themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from graphcaps.data.splits.folds import Split
from graphcaps.errors import ArgumentError

__all__ = ["BadRow", "Rows", "given_split"]

# How people write the three parts.
_PARTS = {
    "train": ("train", "training", "tr"),
    "validation": ("valid", "validation", "val", "dev"),
    "test": ("test", "testing", "te", "holdout", "hold-out"),
}


@dataclass(frozen=True)
class BadRow:
    """A row that is no graph: its ``line`` in the file, its ``text``, and the ``reason`` in words."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class Rows:
    """One entry per graph of the store, in its order, where the source has such a thing.

    Args:
        ids (tuple): What the source calls each graph: an id column, a file, or the line of its row.
        split (tuple, optional): The entry of the split column, as written.
        smiles (tuple, optional): Canonical SMILES of each molecule; atom i of it is node i of the graph.
        skipped (tuple): Rows that were left out because they are no molecule.
        label_names (dict): Text that a number among the node or edge labels stands for.
        columns (dict): Names of the label and attribute columns of nodes and edges.
        notes (tuple): What a reader should know, one sentence each.
        named (bool): Whether ``ids`` are names, and not just the lines of the rows.
        places (tuple, optional): Place of each graph among all rows, from 0, where rows were left out.
        skipped_ids (tuple): What the source calls each of ``skipped``.
    """

    ids: tuple[str, ...]
    split: tuple[str, ...] | None = None
    smiles: tuple[str, ...] | None = None
    skipped: tuple[BadRow, ...] = ()
    label_names: dict[int, str] = field(default_factory=dict)
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    named: bool = True
    places: tuple[int, ...] | None = None
    skipped_ids: tuple[str, ...] = ()


def given_split(names: Sequence[str]) -> Split:
    """Graphs to learn from, to choose by and to test on, from a column that names the part of each.

    Case does not matter. Train may be written train or training; validation: valid, validation, val or dev;
    test: test, testing or holdout. Without a validation part ``validation`` is ``None``.

    Raises:
        ArgumentError: At another name, or where no graph is to learn from or to test on.
    """
    owner = "given_split"
    part_of = {name: part for part, names in _PARTS.items() for name in names}
    members: dict[str, list[int]] = {part: [] for part in _PARTS}
    for graph, name in enumerate(names):
        part = part_of.get(name.strip().lower())
        if part is None:
            expected = "say train, valid or test for each graph"
            raise ArgumentError(owner, "names", expected, f"'{name}' for graph {graph}")
        members[part].append(graph)
    for part in ("train", "test"):
        if not members[part]:
            raise ArgumentError(owner, "names", f"name at least one graph for {part}", "none")
    parts = {part: torch.tensor(graphs, dtype=torch.long) for part, graphs in members.items()}
    return Split(parts["train"], parts["validation"] if members["validation"] else None, parts["test"])
