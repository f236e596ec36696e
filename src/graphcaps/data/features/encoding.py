"""Encodes graphs as model inputs: input columns, truncation of large graphs, and sparse feature tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.data.features.compatibility import UnseenPolicy, check_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.features.truncate import truncate_nodes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ShapeError
from graphcaps.ops.projection.projection import CPU_ZEROS_PER_ENTRY
from graphcaps.types import FeatureTable

__all__ = ["EncodedGraphs", "compact_features", "encode_checked", "encode_graphs", "feature_table"]

_SPARSE_ENTRIES = 16  # mean number of nonzero entries per row up to which sparse rows always pay off
_SPARSE_FRACTION = 1 / 8  # or this fraction of the columns
_SHIFT_RATIO = 4  # mean² in variances, from which on a column is shifted by its mean
_COLUMNS_PER_STEP = 32  # columns summed at a time, in float64
_ROWS_PER_STEP = 1 << 16  # rows scanned at a time


# ---------------------------------------------------------------------- graphs to inputs
@dataclass(frozen=True)
class EncodedGraphs:
    """Graphs with their input columns.

    Args:
        store (GraphStore): The graphs, truncated if ``max_nodes`` was given, with the kinds of their edges if the
            recipe computes them.
        x (Tensor): Input columns of all nodes, ``[N, in]``; degrees and propagated columns are those of the graphs
            before truncation.
        recipe (FeatureRecipe): The fitted recipe.
        nodes (Tensor, optional): Kept nodes as rows of the graphs before truncation, if any graph was truncated.
    """

    store: GraphStore
    x: Tensor
    recipe: FeatureRecipe
    nodes: Tensor | None = None


def encode_graphs(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    max_nodes: int | None = None,
    unseen: UnseenPolicy = "refuse",
    dtype: torch.dtype = torch.float32,
    owner: str = "encode_graphs",
) -> EncodedGraphs:
    """Fits a recipe if necessary, checks the graphs, and encodes them as :func:`encode_checked` does.

    Args:
        store (GraphStore): Graphs.
        recipe (FeatureRecipe): A recipe, fitted or not.
        max_nodes (int, optional): Limit of :func:`graphcaps.data.truncate_nodes`. (default: no limit)
        unseen (str): Handling of labels without an input column, see :meth:`FeatureRecipe.apply`.
        dtype (torch.dtype): Type of ``x``. (default: ``torch.float32``)
        owner (str): Name that error messages begin with.
    """
    fitted = recipe if recipe.is_fitted else recipe.fit(store)
    checked = check_graphs(store, fitted, unseen=unseen, dtype=dtype, owner=owner, argument="store")
    return encode_checked(checked.require(), fitted, max_nodes=max_nodes, dtype=dtype)


def encode_checked(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    max_nodes: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> EncodedGraphs:
    """Applies a fitted recipe, then truncates graphs over ``max_nodes``.

    Args:
        store (GraphStore): Graphs that :func:`graphcaps.data.features.compatibility.check_graphs` checked; labels
            without an input column are encoded as zeros.
        recipe (FeatureRecipe): A fitted recipe.
        max_nodes, dtype: As in :func:`encode_graphs`.
    """
    x, kind = recipe.encode(store, dtype), recipe.edge_kind(store)
    if kind is not None:
        store = store.with_edge_kind(kind)
    if max_nodes is None or store.max_size <= max_nodes:
        return EncodedGraphs(store, x, recipe)
    truncated = truncate_nodes(store, max_nodes, x)
    assert truncated.x is not None
    return EncodedGraphs(truncated.store, truncated.x, recipe, truncated.nodes)


# ---------------------------------------------------------------------- tables of features
def compact_features(x: Tensor, store: GraphStore) -> Tensor | FeatureTable:
    """The features in the form that training reads fastest: on a GPU a table, on a CPU one if entries are very sparse.

    Else rows of ``x`` are gathered.
    """
    if x.device.type == "cpu":
        entries = sum(int(rows.count_nonzero()) for rows in x.split(_ROWS_PER_STEP))
        if CPU_ZEROS_PER_ENTRY * entries > x.numel() or entries > x.size(0) * _max_entries(x.size(1)):
            return x
    return feature_table(x, store)


def feature_table(x: Tensor, store: GraphStore) -> FeatureTable:
    """Makes a :class:`FeatureTable` of the features ``x [N, in]`` of all nodes of a store, on their device.

    It is made once per training: rows are then projected without a copy, and from their nonzero entries if these are
    few; statistics of a batch are sums over its graphs. A column whose mean is large compared with its deviation is
    shifted by the mean, so that the variance loses no digits. A constant column has no entries.

    Raises:
        ShapeError: If ``x`` does not have one row per node.
    """
    N, C = x.shape
    if store.num_nodes != N:
        raise ShapeError("feature_table", "x", f"have one row per node, {store.num_nodes}", N)
    x = x.detach().contiguous()
    shift = _column_shift(x) if N else x.new_zeros(C)
    sums, squares = (x.new_zeros(len(store), C, dtype=torch.float64) for _ in range(2))
    for first in range(0, C, _COLUMNS_PER_STEP):
        columns = slice(first, first + _COLUMNS_PER_STEP)
        shifted = (x[:, columns] - shift[columns]).double()
        for table, power in ((sums, shifted), (squares, shifted.square())):
            table[:, columns] = torch.segment_reduce(power, "sum", lengths=store.sizes)
    counts = torch.cat([(rows - shift).count_nonzero(-1) for rows in x.split(_ROWS_PER_STEP)])
    entries = int(counts.sum())
    sparse = entries <= N * _max_entries(C) and entries < 2**31
    column_index, values = x.new_empty(0, dtype=torch.int32), x.new_empty(0)
    if sparse:
        column_index, values = _nonzero_entries(x, shift)
    else:  # entries would not be read
        counts = counts * 0
    ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).int()
    return FeatureTable(x, shift, ptr, column_index, values, sums, squares, store.node_ptr, sparse)


def _max_entries(num_columns: int) -> float:
    """Mean number of nonzero entries per row up to which a table is sparse."""
    return max(_SPARSE_ENTRIES, _SPARSE_FRACTION * num_columns)


def _nonzero_entries(x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Column and value of the nonzero entries of x − shift, computed in steps, without a copy of all of x."""
    columns, values = [], []
    for rows in x.split(_ROWS_PER_STEP):
        shifted = rows - shift
        row, column = shifted.nonzero(as_tuple=True)
        columns.append(column.int())
        values.append(shifted[row, column])
    return torch.cat(columns), torch.cat(values)


def _column_shift(x: Tensor) -> Tensor:
    """Mean of each column whose mean is large compared with its deviation, 0 for the others, ``[in]``."""
    shifts = []
    for columns in x.split(_COLUMNS_PER_STEP, -1):
        var, mean = torch.var_mean(columns.double(), 0, correction=0)
        shifts.append(torch.where(mean.square() > _SHIFT_RATIO * var, mean, 0))
    # The mean of a constant column may be rounded; its first value is exact.
    return torch.where(x.amin(0) == x.amax(0), x[0], torch.cat(shifts).to(x.dtype))
