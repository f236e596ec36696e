"""What a capsule layer over nodes computes of its parts before it routes them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from graphcaps.nn.ragged_batch_norm import RaggedBatchNorm
from graphcaps.ops._triton.dispatch import kernels_serve
from graphcaps.ops.propagation.propagation import propagate
from graphcaps.ops.ragged.tiles import segment_sum
from graphcaps.types import EdgeTable, Segments

__all__ = ["Hop", "mean_part", "normalised_hop"]


@dataclass(frozen=True)
class Hop:
    """Parts after one hop.

    Args:
        h (Tensor): Âû, ``[*lead, V, d]``, where û are the normalised parts.
        mean (Tensor, optional): The mean part of each graph, ``[*lead, B, d]``.
        parts (Tensor): u, the parts as they were given, for whatever else reads them: their gradient then
            joins the hop's without a pass of its own.
    """

    h: Tensor
    mean: Tensor | None
    parts: Tensor


def normalised_hop(
    u: Tensor,
    norm: RaggedBatchNorm,
    edges: EdgeTable,
    segments: Segments,
    *,
    residual: bool = True,
    divisor: int | None = None,
) -> Hop:
    """Normalises parts, passes them along the edges once, and takes their mean in every graph.

    Args:
        u (Tensor): Parts, ``[*lead, V, d]``.
        norm (RaggedBatchNorm): Over the parts.
        edges (EdgeTable): A.
        segments (Segments): Which part belongs to which graph.
        residual (bool): Whether the mean part is asked for. (default: True)
        divisor (int, optional): As in :func:`mean_part`.
    """
    if norm.training and _kernels_serve(u, norm, edges, segments):
        from graphcaps.ops.propagation import normalised_hop_triton

        h, mean, parts = normalised_hop_triton.normalised_hop(
            u,
            norm.weight,
            norm.bias,
            (norm.running_mean, norm.running_var),
            edges,
            segments,
            momentum=norm.momentum,
            epsilon=norm.epsilon,
            divisor=float(divisor or 0) if residual else None,
        )
        return Hop(h, mean, parts)
    hat = norm(u, segments.row_mask)
    return Hop(propagate(hat, edges), mean_part(hat, segments, divisor) if residual else None, u)


def mean_part(u: Tensor, segments: Segments, divisor: int | None = None) -> Tensor:
    """Sum of the parts of each graph over ``divisor``, or over their number, ``[*lead, B, d]``."""
    own = segments.sizes.to(u.dtype).clamp_min(1).unsqueeze(-1)
    return segment_sum(u, segments) / (float(divisor) if divisor else own)


def _kernels_serve(u: Tensor, norm: RaggedBatchNorm, edges: EdgeTable, segments: Segments) -> bool:
    fits = u.shape[:-1] == edges.node.shape == segments.index.shape and u.numel() > 0
    lead = tuple(u.shape[:-2]) == tuple(norm.lead)
    return fits and lead and edges.weight is None and kernels_serve(u, norm.weight)
