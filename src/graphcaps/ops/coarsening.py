"""The coarse graph of output capsules: how strongly the input capsules of two output capsules are connected."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.autocast import full_precision
from graphcaps.ops.propagation.propagation import neighbour_sum
from graphcaps.ops.ragged.tiles import segment_product
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
    return segment_product(assignment, neighbour_sum(assignment, edges), segments)


@full_precision
def dense_coarsen(assignment: Tensor, adjacency: Tensor) -> Tensor:
    """CᵀAC above the first level, ``assignment [*lead, B, I, J]``, ``adjacency [*lead, B, I, I]``."""
    return assignment.mT @ (adjacency @ assignment)


def clamp_adjacency(adjacency: Tensor) -> Tensor:
    """The coarse adjacency of the released program: entries at most 1, zeros on the diagonal."""
    J = adjacency.size(-1)
    diagonal = torch.eye(J, dtype=torch.bool, device=adjacency.device)
    return adjacency.clamp_max(1).masked_fill(diagonal, 0)
