"""Label columns of a store, and the position of labels among the values that have an input column."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from torch import Tensor

from graphcaps.data.store import GraphStore

__all__ = ["LabelBlocks", "edge_label_columns", "find_values", "label_indices", "node_label_columns"]

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


def label_indices(blocks: LabelBlocks, table: Tensor | None) -> np.ndarray:
    """Index of each label among the values of its column, −1 for any other label, ``[rows, columns]``.

    Args:
        blocks (tuple): The values of each column.
        table (Tensor, optional): Labels, ``[rows, L]``; ``None`` for graphs that have none.

    Returns:
        ndarray: Integers, with as many columns as both have.
    """
    if table is None:
        return np.empty((0, 0), dtype=np.int64)
    labels = table.cpu().numpy()
    columns = min(len(blocks), labels.shape[1])
    if columns and labels.itemsize == 1:  # as those of molecules: all columns at once
        codes = labels[:, :columns].view(np.uint8)
        return _byte_indices(blocks, labels.dtype.str)[np.arange(columns), codes]
    indices = np.empty((len(labels), columns), dtype=np.int64)
    for column in range(columns):
        index, is_value = find_values(blocks[column], np.ascontiguousarray(labels[:, column]))
        indices[:, column] = np.where(is_value, index, -1)
    return indices


@lru_cache(maxsize=64)
def _byte_indices(blocks: LabelBlocks, kind: str) -> np.ndarray:
    """Index of each label of one byte among the values of each column, or −1, int16, ``[columns, 256]``."""
    every = np.arange(1 << 8, dtype=np.uint8).view(kind).astype(np.int64)
    found = [find_values(values, every) for values in blocks]
    return np.stack([np.where(is_value, index, -1) for index, is_value in found]).astype(np.int16)
