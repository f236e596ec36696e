"""Labels of edges as input columns of nodes: how many incident edges carry each label.

The published model drops edge labels. Counted at both ends of an edge they become numbers of nodes, do not
depend on the order of anything, and pass through the same propagation as node labels.
"""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["count_edge_labels", "edge_label_columns", "report_unseen_edges", "unseen_edges"]

_Blocks = tuple[tuple[int, ...], ...]


def edge_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The columns of the edge labels, one entry per direction of an edge, ``[M]`` each."""
    if store.edge_labels is None:
        return []
    return list(store.edge_labels.cpu().long().T.numpy())


def count_edge_labels(store: GraphStore, blocks: _Blocks) -> np.ndarray:
    """Incident edges of each node with each known label, in float64, ``[N, columns]``; others are not counted."""
    N = store.num_nodes
    counts = np.zeros((N, sum(len(values) for values in blocks)))
    source = np.repeat(np.arange(N), store.degree.cpu().numpy())
    place = 0
    for known, values in zip(
        blocks, edge_label_columns(store), strict=False
    ):  # none where no graph has edges
        index, hit = _find(known, values)
        flat = source[hit] * len(known) + index[hit]
        block = np.bincount(flat, minlength=N * len(known)).reshape(N, len(known))
        counts[:, place : place + len(known)] = block
        place += len(known)
    return counts


def unseen_edges(store: GraphStore, blocks: _Blocks) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Per label column with labels that have no input column: its number, their entries, and all values."""
    found = []
    for column, (known, values) in enumerate(zip(blocks, edge_label_columns(store), strict=False)):
        rows = np.flatnonzero(~_find(known, values)[1])
        if len(rows):
            found.append((column, rows, values))
    return found


def report_unseen_edges(store: GraphStore, blocks: _Blocks, unseen: Literal["refuse", "ignore"]) -> None:
    """Raises, or warns, about edge labels that have no input column: which, on how many edges, and where first."""
    for column, rows, values in unseen_edges(store, blocks):
        strangers = np.unique(values[rows])
        named = ", ".join(str(value) for value in strangers[:3]) + (", …" if len(strangers) > 3 else "")
        count = len(rows) // 2  # both directions are entries
        graph = int(np.searchsorted(store.host_entry_ptr.numpy(), rows[0], side="right")) - 1
        found = (
            f"{named} on {count} {'edge' if count == 1 else 'edges'}, first in graph {graph} of {store.name}"
        )
        if unseen == "ignore":
            told = f"FeatureRecipe.apply: labels of edges that have no input column are not counted: {found}."
            warnings.warn(told, stacklevel=4)
            continue
        raise ArgumentError(
            "FeatureRecipe.apply",
            "store",
            f"hold only edge labels that have an input column, in label column {column}",
            found,
            "Fit the recipe on graphs with these labels, or pass unseen='ignore'.",
        )


def _find(known: tuple[int, ...], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Place of each value among the ascending known ones, and whether it is one of them."""
    codes = np.asarray(known, dtype=np.int64)
    index = np.searchsorted(codes, values).clip(max=len(codes) - 1)
    return index, codes[index] == values
