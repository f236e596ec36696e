"""Softmax over the rows of each graph."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.autocast import full_precision
from graphcaps.ops.ragged.reductions import segment_max
from graphcaps.ops.ragged.tiles import segment_broadcast, segment_sum
from graphcaps.types import Segments

__all__ = ["segment_softmax"]


@full_precision
def segment_softmax(x: Tensor, segments: Segments) -> Tensor:
    r"""Softmax over the rows of each graph, for each column separately.

    .. math:: y_i = \frac{\exp(x_i)}{\sum_{j \in g} \exp(x_j)}

    Args:
        x (Tensor): Rows, ``[*lead, V, d]``; padding rows must be finite.
        segments (Segments): Graph of each row.

    Returns:
        Tensor: ``[*lead, V, d]``, 0 at padding rows.
    """
    with torch.no_grad():  # subtracting a number from all rows of a graph changes neither value nor gradient
        highest = segment_broadcast(segment_max(x, segments), segments)
    shifted = (x - highest).exp()
    mask = segments.row_mask
    if mask is not None:
        shifted = shifted.masked_fill(~mask.unsqueeze(-1), 0)
    # A padding row has a sum of 0.
    total = segment_broadcast(segment_sum(shifted, segments), segments)
    return shifted / (total if mask is None else total.masked_fill(~mask.unsqueeze(-1), 1))
