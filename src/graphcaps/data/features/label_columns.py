"""Label columns of a store, and the position of labels among the values that have an input column."""

from __future__ import annotations

import numpy as np

from graphcaps.data.store import GraphStore

__all__ = ["LabelBlocks", "edge_label_columns", "find_values", "node_label_columns"]

_MANY = 1 << 10  # labels of one byte that are looked up in a table
LabelBlocks = tuple[tuple[int, ...], ...]
"""Values with an input column, ascending, for each label column."""


def node_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The node label columns, ``[N]`` each, of the width that they have in the store."""
    return [] if store.node_labels is None else list(store.node_labels.cpu().T.contiguous().numpy())


def edge_label_columns(store: GraphStore, start: int = 0, end: int | None = None) -> list[np.ndarray]:
    """The edge label columns, with an entry per direction of an edge, ``[M]`` each, likewise.

    Args:
        store (GraphStore): Graphs.
        start, end (int): First entry, and that behind the last one. (default: all entries)
    """
    labels = store.edge_labels
    return [] if labels is None else list(labels[start:end].cpu().T.contiguous().numpy())


def find_values(values: tuple[int, ...], labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each label among the ascending values, and whether it is one of them."""
    if labels.itemsize == 1 and len(labels) > _MANY:  # each of 256 labels once
        every = np.arange(1 << 8, dtype=np.uint8)
        index, is_value = find_values(values, every.view(labels.dtype).astype(np.int64))
        return index[labels.view(np.uint8)], is_value[labels.view(np.uint8)]
    codes = np.asarray(values, dtype=np.int64)
    index = np.minimum(np.searchsorted(codes, labels), len(codes) - 1)
    return index, codes[index] == labels
