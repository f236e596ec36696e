"""Mean and maximum over the rows of each graph, and rows without the values of padding."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.ragged.tiles import flat_index, segment_sum
from graphcaps.types import Segments

__all__ = ["clear_padding", "segment_max", "segment_mean"]


def segment_mean(x: Tensor, segments: Segments, divisor: float | None = None) -> Tensor:
    """Mean over the rows of each graph, or their sum over ``divisor``, ``[*lead, V, d]`` to ``[*lead, B, d]``.

    Padding rows are left out; a graph without rows has 0.
    """
    total = segment_sum(x, segments)
    return total / (divisor or segments.sizes.to(x.dtype).clamp_min(1).unsqueeze(-1))


def segment_max(x: Tensor, segments: Segments) -> Tensor:
    """Maximum over the rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d]``, for each column separately.

    Padding rows are left out; a graph without rows has 0. Rows that share a maximum share its gradient equally.
    """
    lead, B, d = segments.index.shape[:-1], segments.num_graphs, x.size(-1)
    mask = segments.row_mask
    graphs = B if mask is None else B + 1  # padding rows belong to one more graph, which is dropped
    if mask is not None:
        x = x.masked_fill(~mask.unsqueeze(-1), -torch.inf)
    index = flat_index(segments.index, graphs).unsqueeze(-1).expand(-1, d)
    # The lowest number is a start value that no row equals. With include_self=False, torch would count a start
    # value that equals the maximum among the rows that share the gradient.
    start = x.new_full((lead.numel() * graphs, d), -torch.inf)
    maximum = start.scatter_reduce(0, index, x.reshape(-1, d), "amax").reshape(*lead, graphs, d)[..., :B, :]
    return maximum if mask is None else maximum.masked_fill((segments.sizes == 0).unsqueeze(-1), 0)


def clear_padding(x: Tensor, segments: Segments) -> Tensor:
    """``x [*lead, V, d]`` with zeros at padding rows, whatever they held."""
    mask = segments.row_mask
    return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0)
