"""The classes of the labelled graphs of a batch, and means over these graphs."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.batch_shard import current_shard

__all__ = ["class_mask", "mean_over_graphs", "weight_graphs"]


def class_mask(y: Tensor, num_classes: int) -> Tensor:
    """True at the class of each graph, ``[*lead, B]`` to ``[*lead, B, O]``; padding graphs, −1, count as class 0."""
    return y.clamp_min(0).unsqueeze(-1) == torch.arange(num_classes, device=y.device)


def mean_over_graphs(loss: Tensor, y: Tensor) -> Tensor:
    """Mean of ``loss [*lead, B]`` over the graphs with a class; padding graphs, −1 in ``y``, are left out.

    In a :class:`~graphcaps.ops.batch_shard.BatchShard`, the share of its graphs in the mean over the whole batch.
    """
    real, shard = y >= 0, current_shard()
    count = real.sum(-1) if shard is None else shard.num_graphs
    return loss.masked_fill(~real, 0).sum(-1) / count.clamp_min(1)


def weight_graphs(
    loss: Tensor, y: Tensor, class_weight: Tensor | None, graph_weight: Tensor | None = None
) -> Tensor:
    """``loss [*lead, B]`` of each graph times the weight of its class, ``class_weight [O]`` or ``[*lead, O]``, and
    its own weight, ``graph_weight [*lead, B]``.

    The divisor of a mean over graphs stays the number of graphs, not the sum of the weights.
    """
    if class_weight is not None:
        weight, classes = class_weight.to(loss.dtype), y.clamp_min(0)
        loss = loss * (weight[classes] if weight.dim() == 1 else weight.gather(-1, classes))
    return loss if graph_weight is None else loss * graph_weight.to(loss.dtype)
