"""Features of a whole store, looked through once: where they are not zero, and their sums over every graph."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ShapeError
from graphcaps.types import FeatureTable

__all__ = ["feature_table"]

_FEW = 16
"""Entries of a row, on average, that are always worth walking one by one."""

_PART = 1 / 8
"""Or this part of its columns."""

_FAR = 4
"""Square of a mean, in variances, from which on a column is shifted by it."""

_COLUMNS = 32
"""Columns that are added up at a time, in float64."""


def feature_table(x: Tensor, store: GraphStore) -> FeatureTable:
    """The features ``x [N, in]`` of all nodes of a store as a :class:`FeatureTable`, on their device.

    Made once for a training: rows are then projected from their few entries, and statistics of a batch are sums
    over its graphs. A column whose mean is large against its deviation, and which is therefore mostly filled, is
    shifted by it, so that the mean costs no digits; a column with one value throughout has no entry at all.
    """
    N, C = x.shape
    if store.num_nodes != N:
        raise ShapeError("feature_table", "x", f"have one row per node, {store.num_nodes}", N)
    x = x.detach().contiguous()
    shift = _shift(x) if N else x.new_zeros(C)
    sums, squares = (x.new_zeros(len(store), C, dtype=torch.float64) for _ in range(2))
    left = x - shift
    for first in range(0, C, _COLUMNS):
        wide = left[:, first : first + _COLUMNS].double()
        for table, power in ((sums, wide), (squares, wide.square())):
            table[:, first : first + _COLUMNS] = torch.segment_reduce(power, "sum", lengths=store.sizes)
    counts = left.count_nonzero(-1)
    entries = int(counts.sum())
    sparse = entries <= N * max(_FEW, _PART * C) and entries < 2**31
    if not sparse:  # nobody walks them
        left, counts = left[:, :0], counts * 0
    rows, columns = left.nonzero(as_tuple=True)
    ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    return FeatureTable(
        x, shift, ptr, columns.int(), left[rows, columns], sums, squares, store.node_ptr, sparse
    )


def _shift(x: Tensor) -> Tensor:
    """Means of the columns that are far from zero, 0 for the others."""
    parts = []
    for some in x.split(_COLUMNS, -1):
        var, mean = torch.var_mean(some.double(), 0, correction=0)
        parts.append(torch.where(mean.square() > _FAR * var, mean, 0))
    # Of equal numbers the mean may be off by a digit; the first of them is not.
    return torch.where(x.amin(0) == x.amax(0), x[0], torch.cat(parts).to(x.dtype))
