"""Which graph ``--graph`` names, and how messages and pages name graphs of a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphcaps.cli.data_options import display_names, graph_label
from graphcaps.cli.output import note
from graphcaps.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset

__all__ = ["SelectedGraph", "label_of", "page_ids", "select_graph"]

_ID = "id:"  # before an id that could also be a number


@dataclass(frozen=True)
class SelectedGraph:
    """The graph that ``--graph`` names.

    Args:
        index (int): Index in the store.
        number (int): Number in the source, counted from 1.
        name (str, optional): Id, if the source has names.
    """

    index: int
    number: int
    name: str | None

    @property
    def label(self) -> str:
        """How messages name the graph."""
        return f"{self.number:,}" if self.name is None else f"{self.number:,} ({self.name})"


def select_graph(text: str, loaded: LoadedDataset, *, count_skipped: bool) -> SelectedGraph:
    """Finds the graph that ``--graph`` names; a valid number is a number, any other text an id.

    A note is printed if the number is also the id of another graph.

    Args:
        text (str): A number, counted from 1, or an id, also as ``id:ID``.
        loaded (LoadedDataset): The graphs.
        count_skipped (bool): Whether skipped rows are counted too, as ``predict`` does.

    Raises:
        ArgumentError: If there is no such graph, or several have that id.
        DataError: If that row has no valid molecule.
    """
    text, metadata = text.strip(), loaded.metadata
    rows, ids = list(range(len(loaded.store))), [] if metadata is None else list(metadata.ids)
    skipped: dict[int, tuple[int, str]] = {}  # row -> line and reason
    if metadata is not None and metadata.row_indices is not None and count_skipped:
        rows = list(metadata.row_indices)
        total = len(rows) + len(metadata.skipped)
        skipped = {
            row: (entry.line, f"{entry.text!r}: {entry.reason}")
            for row, entry in zip(sorted(set(range(total)) - set(rows)), metadata.skipped, strict=True)
        }
        kept_ids, skipped_ids = iter(ids), iter(metadata.skipped_ids)
        ids = [next(skipped_ids) if row in skipped else next(kept_ids) for row in range(total)]
    names = display_names(metadata, ids) if ids else None
    row = _find_row(text, len(rows) + len(skipped), names)
    if row in skipped:
        line, found = skipped[row]
        where = loaded.store.name if loaded.source is None else loaded.source.name
        raise DataError(where, "a molecule in SMILES", found, line=line)
    return SelectedGraph(rows.index(row), row + 1, None if names is None else names[row])


def _find_row(text: str, total: int, names: Sequence[str] | None) -> int:
    """The row, counted from 0, with this number or id."""
    try:
        number: int | None = int(text)
    except ValueError:
        number = None
    if number is not None and 1 <= number <= total:
        _note_same_id(text, number - 1, names)
        return number - 1
    matches = _rows_of(text.removeprefix(_ID).strip(), names) or _rows_of(text, names)
    if len(matches) == 1:
        return matches[0]
    expected = f"be a number from 1 to {total}"
    got: object = f"'{text}'" if number is None else number
    if names is not None:
        expected += f" or an id, such as {names[0]}"
    if matches:
        expected = "name one graph"
        got = f"'{text}', the id of {len(matches)}, such as {graph_label(matches[0], names)}"
    raise ArgumentError("explain", "--graph", expected, got)


def _rows_of(name: str, names: Sequence[str] | None) -> list[int]:
    """The rows with this id, counted from 0."""
    return [row for row, each in enumerate(names or ()) if each == name]


def _note_same_id(text: str, row: int, names: Sequence[str] | None) -> None:
    """Says which graph a number means that is also the id of another graph, and how to name that one."""
    others = _rows_of(text, names)
    if names is not None and others and row not in others:
        note(
            f"--graph {text} is graph {row + 1:,}, whose id is {names[row]}; "
            f"--graph {_ID}{text} explains graph {others[0] + 1:,}, whose id is {text}."
        )


def label_of(graph: int, loaded: LoadedDataset, count_skipped: bool) -> str:
    """How messages name a graph of the store: its number, counted as by :func:`select_graph`, and its name."""
    metadata = loaded.metadata
    rows = metadata.row_indices if metadata is not None and count_skipped else None
    names = display_names(metadata, None if metadata is None else metadata.ids)
    number = f"{(graph if rows is None else rows[graph]) + 1:,}"
    return number if names is None else f"{number} ({names[graph]})"


def page_ids(loaded: LoadedDataset) -> Sequence[str] | None:
    """Names of the graphs of a page; their rows if they have none and rows were left out."""
    metadata = loaded.metadata
    names = display_names(metadata, None if metadata is None else metadata.ids)
    if names is None and metadata is not None and metadata.row_indices is not None:
        return [f"row {row + 1}" for row in metadata.row_indices]
    return names
