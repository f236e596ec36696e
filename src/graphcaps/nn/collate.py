"""Converts graphs in the form of torch-geometric to a :class:`GraphBatch`, and checks them."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops.edges import edge_table
from graphcaps.types import GraphBatch, Segments

__all__ = ["collate"]


def collate(
    owner: str,
    x: Tensor,
    edge_index: Tensor,
    batch: Tensor | None,
    edge_weight: Tensor | None,
    num_graphs: int | None,
    dtype: torch.dtype,
) -> GraphBatch:
    """A batch for a module ``owner`` with weights of type ``dtype``; the other arguments as in :meth:`HGCN.forward`.

    Raises:
        ShapeError: If shapes or types disagree, ``batch`` is not sorted, or an edge connects two graphs.
    """
    if x.dim() != 2:
        raise ShapeError(owner, "x", "have the shape [V, in]", list(x.shape))
    if x.dtype != dtype:
        fix = f"Convert it with x.to({dtype})."
        raise ShapeError(owner, "x", f"be {dtype}, as the weights are", x.dtype, fix)
    if edge_index.is_floating_point() or (batch is not None and batch.is_floating_point()):
        raise ShapeError(owner, "edge_index, batch", "be integer tensors", "floating point")
    if batch is None:
        batch = edge_index.new_zeros(x.size(0))
    if batch.shape != x.shape[:1]:
        raise ShapeError(owner, "batch", f"have one entry per node, {x.size(0)}", list(batch.shape))
    if bool((batch[1:] < batch[:-1]).any()):
        raise ShapeError(owner, "batch", "be sorted", "an unsorted tensor", "Sort the nodes by graph.")
    if num_graphs is not None and batch.numel() and int(batch[-1]) >= num_graphs:
        raise ShapeError(owner, "batch", f"name graphs below 'num_graphs', {num_graphs}", int(batch[-1]))
    edges = edge_table(edge_index, x.size(0), edge_weight, owner)
    if bool((batch[edge_index[0]] != batch[edge_index[1]]).any()):
        raise ShapeError(owner, "edge_index", "connect nodes of the same graph", "an edge between two graphs")
    return GraphBatch(x, Segments.from_index(batch, num_graphs), edges)
