"""Margin loss on the lengths of class capsules."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.graph_mean import mean_over_graphs, weight_graphs

__all__ = ["margin_loss"]


def margin_loss(
    class_scores: Tensor,
    y: Tensor,
    upper: float | Tensor,
    lower: float | Tensor,
    absent_weight: float,
    class_weight: Tensor | None = None,
    graph_weight: Tensor | None = None,
) -> Tensor:
    r"""Margin loss (HGCN, Eq. 6), mean over real graphs.

    .. math::
        \sum_o T_o \max(0, m^+ - \|u_o\|)^2 + \lambda (1 - T_o) \max(0, \|u_o\| - m^-)^2

    Args:
        class_scores (Tensor): Lengths of the class capsules, ``[*lead, B, O]``.
        y (Tensor): True classes, −1 at padding graphs, ``[*lead, B]``.
        upper, lower (float or Tensor): :math:`m^+` and :math:`m^-`; both one per replica, ``[*lead]``, or neither.
        absent_weight (float): :math:`\lambda`.
        class_weight (Tensor, optional): Weight of each class, ``[O]`` or ``[*lead, O]``. (default: 1 each)
        graph_weight (Tensor, optional): Weight of each graph, ``[*lead, B]``. (default: 1 each)

    Returns:
        Tensor: One number per replica, ``[*lead]``.
    """
    form = select("margin_loss", _margin_loss, class_scores, class_weight, graph_weight)
    return form(class_scores, y, upper, lower, absent_weight, class_weight, graph_weight)


def _margin_loss(
    class_scores: Tensor,
    y: Tensor,
    upper: float | Tensor,
    lower: float | Tensor,
    absent_weight: float,
    class_weight: Tensor | None = None,
    graph_weight: Tensor | None = None,
) -> Tensor:
    true = torch.nn.functional.one_hot(y.clamp_min(0), class_scores.size(-1)).bool()
    if isinstance(upper, Tensor) and isinstance(lower, Tensor):
        upper, lower = (margin[..., None, None].to(class_scores) for margin in (upper, lower))
    present = (upper - class_scores).clamp_min(0).square()
    absent = absent_weight * (class_scores - lower).clamp_min(0).square()
    loss = torch.where(true, present, absent).sum(-1)
    return mean_over_graphs(weight_graphs(loss, y, class_weight, graph_weight), y)
