"""Batch normalisation and the mean of every graph, in few passes over the rows.

Forward: one pass for the statistics and the means, and one that normalises. Backward: both passes of the normalisation
add the gradient of the means while they read that of the rows. The rows are returned for other readers, so that their
gradient is added in the last pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.batch_norm.batch_norm_triton import (
    mask_bytes,
    norm_gradients,
    normalise_rows,
)
from graphcaps.ops.batch_norm.graph_moments_triton import graph_statistics
from graphcaps.ops.ragged.ragged_triton import MeanGradient
from graphcaps.types import Segments

__all__ = ["norm_with_means"]


def norm_with_means(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    segments: Segments,
    *,
    training: bool,
    momentum: float,
    epsilon: float,
    residual: bool,
    divisor: int | None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Normalised rows, their means and the rows, as :func:`graphcaps.ops.batch_norm.norm_with_means.norm_with_means`.

    ``training`` is always true: statistics are those of these rows.
    """
    divide_by = float(divisor or 0) if residual else None
    outputs: tuple[Tensor, Tensor | None, Tensor] = _NormWithMeans.apply(
        x, weight, bias, running, segments, momentum, epsilon, divide_by
    )
    return outputs


class _NormWithMeans(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running: tuple[Tensor, Tensor],
        segments: Segments,
        momentum: float,
        epsilon: float,
        divisor: float | None,
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        ctx.set_materialize_grads(False)
        rows, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        mask = mask_bytes(segments.row_mask)
        moments = graph_statistics(
            rows, segments.ptr.contiguous(), weight, bias, running,
            momentum=momentum, epsilon=epsilon, divisor=divisor, max_size=segments.max_size,
        )  # fmt: skip
        mean, var, count = moments.statistics
        ctx.save_for_backward(rows, weight, mean, var, count, mask)
        ctx.options = segments, epsilon, divisor or 0.0
        normalised = normalise_rows(rows, mask, mean, var, weight, bias, epsilon)
        return normalised, moments.means, x.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, dmeans: Tensor | None, extra_grad: Tensor | None) -> Any:
        rows, weight, mean, var, count, mask = ctx.saved_tensors
        segments, epsilon, divisor = ctx.options
        gradients = norm_gradients(
            rows,
            torch.zeros_like(rows) if grad is None else grad.contiguous(),
            mask,
            weight,
            (mean, var, count),
            epsilon,
            of_rows=ctx.needs_input_grad[0],
            extra_grad=extra_grad,
            means=MeanGradient.of(dmeans, segments, divisor),
        )
        return *gradients, *[None] * 5
