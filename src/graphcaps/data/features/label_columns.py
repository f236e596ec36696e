"""Label columns of a store, and the position of labels among the values that have an input column."""

from __future__ import annotations

import numpy as np

from graphcaps.data.store import GraphStore

__all__ = ["LabelBlocks", "edge_label_columns", "find_values", "node_label_columns"]

LabelBlocks = tuple[tuple[int, ...], ...]
"""Values with an input column, ascending, for each label column."""


def node_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The node label columns, ``[N]`` each."""
    return [] if store.node_labels is None else list(store.node_labels.cpu().long().T.numpy())


def edge_label_columns(store: GraphStore) -> list[np.ndarray]:
    """The edge label columns, with an entry per direction of an edge, ``[M]`` each."""
    return [] if store.edge_labels is None else list(store.edge_labels.cpu().long().T.numpy())


def find_values(values: tuple[int, ...], labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each label among the ascending values, and whether it is one of them."""
    codes = np.asarray(values, dtype=np.int64)
    index = np.searchsorted(codes, labels).clip(max=len(codes) - 1)
    return index, codes[index] == labels
