"""Sums of loss terms and correct predictions over the steps of an epoch, kept on the device."""

from __future__ import annotations

from torch import Tensor

from graphcaps.ops._triton.dispatch import select

__all__ = ["accumulate_metrics_"]


def accumulate_metrics_(
    values: Tensor, scores: Tensor, y: Tensor, sums: Tensor, finite_steps: Tensor, correct: Tensor
) -> None:
    """Adds one step to the sums of an epoch, in place. A mean over graphs counts as many times as it has graphs.

    Args:
        values (Tensor): Loss terms, means over graphs, ``[T, F]``.
        scores (Tensor): Class scores, ``[F, B, O]``.
        y (Tensor): Classes, −1 at padding graphs, ``[F, B]``.
        sums (Tensor): Sums of the terms over graphs, float64, ``[T, F]``.
        finite_steps (Tensor): Number of steps in which each term was finite, float64, ``[T, F]``.
        correct (Tensor): Number of correct predictions, float64, ``[F]``.
    """
    form = select("accumulate_metrics", _accumulate_metrics_, values, scores)
    form(values, scores, y, sums, finite_steps, correct)


def _accumulate_metrics_(
    values: Tensor, scores: Tensor, y: Tensor, sums: Tensor, finite_steps: Tensor, correct: Tensor
) -> None:
    real = y >= 0
    sums.add_(values.double() * real.sum(-1))
    finite_steps.add_(values.isfinite())
    correct.add_((scores.argmax(-1) == y).sum(-1))  # no prediction is −1, so padding is never correct
