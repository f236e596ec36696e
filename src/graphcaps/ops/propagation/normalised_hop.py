"""Batch normalisation, one hop along the edges, and the mean capsule of every graph, in one operation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.batch_norm.batch_norm import Running, batch_norm
from graphcaps.ops.propagation.adjacency_tiles import adjacency_tiles, tile_hop
from graphcaps.ops.propagation.propagation import propagate
from graphcaps.ops.ragged.reductions import segment_mean
from graphcaps.types import EdgeTable, Segments

__all__ = ["Hop", "normalised_hop"]


@dataclass(frozen=True)
class Hop:
    """Input capsules after normalisation and one hop.

    Args:
        h (Tensor): Âû, ``[*lead, V, d]``, where û are the normalised input capsules.
        mean (Tensor, optional): Mean of û over each graph, ``[*lead, B, d]``.
        inputs (Tensor): The input capsules u. Other readers of u should read this tensor: their gradient then joins
            that of the hop without a further pass over the rows.
    """

    h: Tensor
    mean: Tensor | None
    inputs: Tensor


@full_precision
def normalised_hop(
    u: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    edges: EdgeTable,
    segments: Segments,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
    residual: bool = True,
    divisor: int | None = None,
) -> Hop:
    """Normalises input capsules, propagates them along the edges once, and takes their mean in every graph.

    Args:
        u (Tensor): Input capsules, ``[*lead, V, d]``.
        weight, bias, running, training, momentum, epsilon: As in
            :func:`graphcaps.ops.batch_norm.batch_norm.batch_norm`.
        edges (EdgeTable): A.
        segments (Segments): Which row belongs to which graph.
        residual (bool): Whether the mean is computed. (default: True)
        divisor (int, optional): As in :func:`graphcaps.ops.ragged.reductions.segment_mean`.
    """
    form = select(
        "normalised_hop",
        _normalised_hop,
        u,
        weight,
        edges.node,
        segments.index,
        edges.weight,
        training=training,
    )
    h, mean, inputs = form(
        u, weight, bias, running, edges, segments,
        training=training, momentum=momentum, epsilon=epsilon, residual=residual, divisor=divisor,
    )  # fmt: skip
    return Hop(h, mean, inputs)


def _normalised_hop(
    u: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    edges: EdgeTable,
    segments: Segments,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
    residual: bool,
    divisor: int | None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    hat = batch_norm(
        u, segments.row_mask, weight, bias, running, training=training, momentum=momentum, epsilon=epsilon
    )
    matrices = adjacency_tiles(edges, segments, hat.dtype)
    if matrices is not None:
        return *tile_hop(hat, matrices, segments.sizes, divisor, residual), u
    return propagate(hat, edges), segment_mean(hat, segments, divisor) if residual else None, u
