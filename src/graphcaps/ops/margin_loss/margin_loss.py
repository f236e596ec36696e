"""Margin loss on the lengths of class capsules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import needs_plain_operations, select
from graphcaps.ops.graph_mean import class_mask, mean_over_graphs, weight_graphs

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
    true = class_mask(y, class_scores.size(-1))
    if isinstance(upper, Tensor) and isinstance(lower, Tensor):
        upper, lower = (margin[..., None, None].to(class_scores) for margin in (upper, lower))
    if needs_plain_operations():
        present = (upper - class_scores).clamp_min(0).square()
        absent = absent_weight * (class_scores - lower).clamp_min(0).square()
        loss = torch.where(true, present, absent).sum(-1)
    else:
        loss = _GraphLoss.apply(class_scores, true, upper, lower, absent_weight)
    return mean_over_graphs(weight_graphs(loss, y, class_weight, graph_weight), y)


class _GraphLoss(torch.autograd.Function):
    """The sum over the classes of each graph, ``[*lead, B]``, and its gradient written out."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        class_scores, true, upper, lower, absent_weight = inputs
        excess = torch.where(true, upper - class_scores, class_scores - lower).clamp_min_(0)
        weighted = excess * torch.where(true, 1.0, absent_weight)
        ctx.save_for_backward(class_scores, true, weighted)
        ctx.others = (upper, lower, absent_weight)
        return (weighted * excess).sum(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        class_scores, true, weighted = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            upper, lower, absent_weight = ctx.others
            excess = torch.where(true, upper - class_scores, class_scores - lower).clamp_min(0)
            weighted = excess * torch.where(true, 1.0, absent_weight)
        slope = torch.where(true, -2.0, 2.0)
        return weighted * slope * grad.unsqueeze(-1), None, None, None, None
