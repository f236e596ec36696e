"""What training minimises."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import kernels_serve

__all__ = ["cross_entropy", "margin_loss", "mean_over_graphs"]


def margin_loss(
    class_scores: Tensor,
    y: Tensor,
    *,
    upper: float = 0.9,
    lower: float = 0.1,
    absent_weight: float = 0.5,
    class_weight: Tensor | None = None,
) -> Tensor:
    r"""Margin loss on the lengths of class capsules (HGCN, Eq. 6), mean over real graphs.

    .. math::
        \sum_o T_o \max(0, m^+ - \|u_o\|)^2 + \lambda (1 - T_o) \max(0, \|u_o\| - m^-)^2

    Args:
        class_scores (Tensor): Lengths, ``[*lead, B, O]``.
        y (Tensor): True classes, −1 at padding graphs, ``[*lead, B]``.
        upper (float): :math:`m^+`. (default: 0.9)
        lower (float): :math:`m^-`. (default: 0.1)
        absent_weight (float): :math:`\lambda`. (default: 0.5)
        class_weight (Tensor, optional): What a graph of each class counts, ``[O]``. (default: 1 each)

    Returns:
        Tensor: One number per replica, ``[*lead]``.
    """
    _check(class_scores, y)
    if class_weight is None and kernels_serve(class_scores):
        from graphcaps.ops.margin_loss import margin_loss_triton

        return margin_loss_triton.margin_loss(class_scores, y, upper, lower, absent_weight)
    true = torch.nn.functional.one_hot(y.clamp_min(0), class_scores.size(-1)).bool()
    present = (upper - class_scores).clamp_min(0).square()
    absent = absent_weight * (class_scores - lower).clamp_min(0).square()
    return mean_over_graphs(_weighed(torch.where(true, present, absent).sum(-1), y, class_weight), y)


def cross_entropy(class_scores: Tensor, y: Tensor, class_weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of logits, mean over real graphs, ``[*lead]``; for models without capsules."""
    _check(class_scores, y)
    chosen = class_scores.log_softmax(-1).gather(-1, y.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    return mean_over_graphs(_weighed(-chosen, y, class_weight), y)


def mean_over_graphs(loss: Tensor, y: Tensor) -> Tensor:
    """Mean of ``loss [*lead, B]`` over graphs with a class; padding, −1 in ``y``, counts nothing."""
    real = y >= 0
    return loss.masked_fill(~real, 0).sum(-1) / real.sum(-1).clamp_min(1)


def _weighed(loss: Tensor, y: Tensor, class_weight: Tensor | None) -> Tensor:
    """The loss of each graph times what its class counts; the number of graphs still divides the sum."""
    return loss if class_weight is None else loss * class_weight.to(loss.dtype)[y.clamp_min(0)]


def _check(class_scores: Tensor, y: Tensor) -> None:
    if class_scores.shape[:-1] != y.shape:
        raise ShapeError(
            "loss", "y", f"have one class per graph, {list(class_scores.shape[:-1])}", list(y.shape)
        )
