"""What a reader returns beside the graphs: names, split column, SMILES, skipped rows and notes."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphcaps.data.store import GraphStore

__all__ = ["GraphMetadata", "SkippedRow", "StoreWithMetadata"]


@dataclass(frozen=True)
class SkippedRow:
    """A row without a valid graph: its ``line`` in the file, its ``text`` and the ``reason``."""

    line: int
    text: str
    reason: str


@dataclass(frozen=True)
class GraphMetadata:
    """Metadata of the graphs of a store. Tuples have one entry per graph, in the order of the store.

    Args:
        ids (tuple): Identifier of each graph: an entry of an id column, a file name, or the line of its row.
        split (tuple, optional): Entry of the split column, as written.
        smiles (tuple, optional): Canonical SMILES of each molecule; atom i is node i of the graph.
        skipped (tuple): Rows that were skipped because they hold no valid molecule.
        columns (dict): Names of the label and attribute columns of nodes and edges.
        notes (tuple): Remarks on what was not read, apart from skipped rows, one sentence each.
        has_names (bool): Whether ``ids`` are names rather than line numbers.
        row_indices (tuple, optional): Row of each graph among all rows, from 0; ``None`` if no row was skipped.
        skipped_ids (tuple): Identifier of each row in ``skipped``.
    """

    ids: tuple[str, ...]
    split: tuple[str, ...] | None = None
    smiles: tuple[str, ...] | None = None
    skipped: tuple[SkippedRow, ...] = ()
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    has_names: bool = True
    row_indices: tuple[int, ...] | None = None
    skipped_ids: tuple[str, ...] = ()

    @property
    def all_notes(self) -> tuple[str, ...]:
        """``notes``, and a sentence on skipped rows if there are any."""
        count = len(self.skipped)
        if not count:
            return self.notes
        lines = ", ".join(str(row.line) for row in self.skipped[:10]) + (", …" if count > 10 else "")
        subject = (
            "row holds no valid molecule and was" if count == 1 else "rows hold no valid molecule and were"
        )
        return (*self.notes, f"{count:,} {subject} skipped: line{'' if count == 1 else 's'} {lines}.")


@dataclass(frozen=True)
class StoreWithMetadata:
    """Graphs read from a user's file, and their metadata."""

    store: GraphStore
    metadata: GraphMetadata
