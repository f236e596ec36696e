"""From graphs to what a model reads: columns first, then the cut to a largest number of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.features.truncate import truncate_nodes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ShapeError
from graphcaps.ops.projection.projection import CPU_ZEROS_PER_ENTRY
from graphcaps.types import FeatureTable

__all__ = ["EncodedGraphs", "compact_features", "encode_graphs", "feature_table"]


_FEW = 16
"""Entries of a row, on average, that are always worth walking one by one."""

_PART = 1 / 8
"""Or this part of its columns."""

_FAR = 4
"""Square of a mean, in variances, from which on a column is shifted by it."""

_COLUMNS = 32
"""Columns that are added up at a time, in float64."""

_ROWS = 1 << 16
"""Rows that are looked through at a time."""


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
    for first in range(0, C, _COLUMNS):
        some = slice(first, first + _COLUMNS)
        wide = (x[:, some] - shift[some]).double()
        for table, power in ((sums, wide), (squares, wide.square())):
            table[:, some] = torch.segment_reduce(power, "sum", lengths=store.sizes)
    counts = torch.cat([(some - shift).count_nonzero(-1) for some in x.split(_ROWS)])
    entries = int(counts.sum())
    sparse = entries <= N * max(_FEW, _PART * C) and entries < 2**31
    columns, values = x.new_empty(0, dtype=torch.int32), x.new_empty(0)
    if sparse:  # else nobody walks them
        columns, values = _entries(x, shift)
    else:
        counts = counts * 0
    ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    return FeatureTable(x, shift, ptr, columns, values, sums, squares, store.node_ptr, sparse)


def compact_features(x: Tensor, store: GraphStore) -> Tensor | FeatureTable:
    """What a training reads features from: a table where their entries are walked, else ``x`` itself.

    A CPU gathers rows unless entries are very rare; a table would be made for nothing.
    """
    entries = sum(int(some.count_nonzero()) for some in x.split(_ROWS))
    share = CPU_ZEROS_PER_ENTRY if x.device.type == "cpu" else 1
    few = share * entries <= x.numel() and entries <= x.size(0) * max(_FEW, _PART * x.size(1))
    return feature_table(x, store) if few else x


def _entries(x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Column and value of what is not zero, some rows at a time: x as a whole is not copied."""
    columns, values = [], []
    for some in x.split(_ROWS):
        left = some - shift
        row, column = left.nonzero(as_tuple=True)
        columns.append(column.int())
        values.append(left[row, column])
    return torch.cat(columns), torch.cat(values)


def _shift(x: Tensor) -> Tensor:
    """Means of the columns that are far from zero, 0 for the others."""
    parts = []
    for some in x.split(_COLUMNS, -1):
        var, mean = torch.var_mean(some.double(), 0, correction=0)
        parts.append(torch.where(mean.square() > _FAR * var, mean, 0))
    # Of equal numbers the mean may be off by a digit; the first of them is not.
    return torch.where(x.amin(0) == x.amax(0), x[0], torch.cat(parts).to(x.dtype))


@dataclass(frozen=True)
class EncodedGraphs:
    """Graphs with their input columns.

    Args:
        store (GraphStore): The graphs, cut where a cap was given.
        x (Tensor): Features of all its nodes, ``[N, in]``; degrees and hops are those of the whole graphs.
        recipe (FeatureRecipe): The fitted recipe that made them.
    """

    store: GraphStore
    x: Tensor
    recipe: FeatureRecipe


def encode_graphs(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    max_nodes: int | None = None,
    unseen: Literal["refuse", "ignore"] = "refuse",
    dtype: torch.dtype = torch.float32,
) -> EncodedGraphs:
    """Applies a recipe, after fitting it where it is not fitted yet, and cuts graphs over ``max_nodes``."""
    fitted = recipe if recipe.is_fitted else recipe.fit(store)
    x = fitted.apply(store, unseen=unseen, dtype=dtype)
    if max_nodes is None:
        return EncodedGraphs(store, x, fitted)
    capped = truncate_nodes(store, max_nodes, x)
    assert capped.x is not None
    return EncodedGraphs(capped.store, capped.x, fitted)
