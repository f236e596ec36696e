"""Covariance of the rows of each graph."""

from __future__ import annotations

from torch import Tensor

from graphcaps.ops.ragged.tiles import segment_broadcast, segment_product
from graphcaps.types import Segments

__all__ = ["segment_covariance"]


def segment_covariance(x: Tensor, mean: Tensor, segments: Segments) -> Tensor:
    r"""Covariance of the rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d, d]``.

    .. math:: \frac{1}{n} \sum_i (x_i - \mu)(x_i - \mu)^\top

    Padding rows are left out; a graph without rows, and one with a single row, has 0.

    Args:
        x (Tensor): Rows, ``[*lead, V, d]``.
        mean (Tensor): Their mean in each graph, ``[*lead, B, d]``.
        segments (Segments): Graph of each row.
    """
    centred = x - segment_broadcast(mean, segments)
    sizes = segments.sizes.to(x.dtype).clamp_min(1)
    return segment_product(centred, centred, segments) / sizes[..., None, None]
