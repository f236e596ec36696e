"""Classification losses: margin loss of capsule lengths and cross-entropy of logits."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops.graph_mean import mean_over_graphs, weight_graphs
from graphcaps.ops.margin_loss.margin_loss import margin_loss as margin_loss_op

__all__ = [
    "ABSENT_WEIGHT",
    "LOWER_MARGIN",
    "UPPER_MARGIN",
    "check_class_type",
    "cross_entropy",
    "margin_loss",
]

UPPER_MARGIN, LOWER_MARGIN, ABSENT_WEIGHT = 0.9, 0.1, 0.5
"""Margins of the published loss, and the weight of the classes that are absent."""


def margin_loss(
    class_scores: Tensor,
    y: Tensor,
    *,
    upper: float | Tensor = UPPER_MARGIN,
    lower: float | Tensor = LOWER_MARGIN,
    absent_weight: float = ABSENT_WEIGHT,
    class_weight: Tensor | None = None,
    graph_weight: Tensor | None = None,
) -> Tensor:
    r"""Margin loss on the lengths of class capsules (HGCN, Eq. 6), mean over real graphs.

    .. math::
        \sum_o T_o \max(0, m^+ - \|u_o\|)^2 + \lambda (1 - T_o) \max(0, \|u_o\| - m^-)^2

    Args:
        class_scores (Tensor): Lengths, ``[*lead, B, O]``.
        y (Tensor): True classes, −1 at padding graphs, ``[*lead, B]``.
        upper, lower (float or Tensor): :math:`m^+` and :math:`m^-`; both one per replica, ``[*lead]``, or neither.
            (default: 0.9 and 0.1)
        absent_weight (float): :math:`\lambda`. (default: 0.5)
        class_weight (Tensor, optional): Weight of each class, ``[O]`` or ``[*lead, O]``. (default: 1 each)
        graph_weight (Tensor, optional): Weight of each graph, ``[*lead, B]``. (default: 1 each)

    Returns:
        Tensor: One number per replica, ``[*lead]``.
    """
    _check(class_scores, y)
    return margin_loss_op(class_scores, y, upper, lower, absent_weight, class_weight, graph_weight)


def cross_entropy(
    class_scores: Tensor,
    y: Tensor,
    class_weight: Tensor | None = None,
    graph_weight: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of logits, mean over real graphs.

    Args:
        class_scores (Tensor): Logits, ``[*lead, B, O]``.
        y (Tensor): True classes, −1 at padding graphs, ``[*lead, B]``.
        class_weight (Tensor, optional): Weight of each class, ``[O]`` or ``[*lead, O]``. (default: 1 each)
        graph_weight (Tensor, optional): Weight of each graph, ``[*lead, B]``. (default: 1 each)

    Returns:
        Tensor: One number per replica, ``[*lead]``.
    """
    _check(class_scores, y)
    log_probability = class_scores.log_softmax(-1).gather(-1, y.clamp_min(0).unsqueeze(-1)).squeeze(-1)
    return mean_over_graphs(weight_graphs(-log_probability, y, class_weight, graph_weight), y)


def check_class_type(owner: str, y: Tensor) -> None:
    """Rejects classes that are not 64-bit integers, which indexing by class needs.

    Raises:
        ShapeError: With what to convert them by.
    """
    if y.dtype != torch.int64:
        fix = "Convert it with y.long()."
        raise ShapeError(owner, "y", "hold class indices, torch.int64", y.dtype, fix)


def _check(class_scores: Tensor, y: Tensor) -> None:
    check_class_type("loss", y)
    if class_scores.shape[:-1] != y.shape:
        raise ShapeError(
            "loss", "y", f"have one class per graph, {list(class_scores.shape[:-1])}", list(y.shape)
        )
