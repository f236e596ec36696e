"""The coarse graph of output capsules: how strongly the input capsules of two output capsules are connected."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import needs_plain_operations, select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.propagation.adjacency_tiles import adjacency_tiles
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.ops.ragged.tiles import segment_product, to_tiles
from graphcaps.types import EdgeTable, Segments

__all__ = ["clamp_adjacency", "coarsen", "dense_coarsen"]


@full_precision
def coarsen(assignment: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
    """CᵀAC of every graph as Cᵀ(AC): one sparse product with J columns and one ragged reduction.

    Args:
        assignment (Tensor): C, ``[*lead, V, J]``, zero at padding.
        edges (EdgeTable): A.
        segments (Segments): Which node belongs to which graph.

    Returns:
        Tensor: ``[*lead, B, J, J]``.
    """
    matrices = adjacency_tiles(edges, segments, assignment.dtype)
    if matrices is None:
        return segment_product(assignment, neighbour_sum(assignment, edges), segments)
    C = to_tiles(assignment, matrices.tiles)
    A = matrices.adjacency.view(*C.shape[:-1], C.size(-2))
    return C.mT @ (A @ C)


@full_precision
def dense_coarsen(assignment: Tensor, adjacency: Tensor) -> Tensor:
    """CᵀAC above the first level, ``assignment [*lead, B, I, J]``, ``adjacency [*lead, B, I, I]``."""
    return assignment.mT @ (adjacency @ assignment)


def clamp_adjacency(adjacency: Tensor) -> Tensor:
    """The coarse adjacency of the released program: entries at most 1, zeros on the diagonal."""
    return select("clamp_adjacency", _clamp_adjacency, adjacency)(adjacency)


def _clamp_adjacency(adjacency: Tensor) -> Tensor:
    if adjacency.requires_grad or needs_plain_operations():
        diagonal = torch.eye(adjacency.size(-1), dtype=torch.bool, device=adjacency.device)
        return adjacency.clamp_max(1).masked_fill(diagonal, 0)
    clamped = adjacency.clamp_max(1)
    clamped.diagonal(dim1=-2, dim2=-1).zero_()
    return clamped
