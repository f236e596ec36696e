"""A linear map with normalised activation in the passes of the map and of the activation.

The product computes the statistics of its rows while it has them (:mod:`.row_product_triton`). Its gradient adds that
of the residual connection where the residual is what the map reads, as in a residual layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.activated_product.activated_norm_triton import (
    NormedRows,
    activate_rows,
    activated_gradients,
)
from graphcaps.ops.activated_product.activated_product import Parts
from graphcaps.ops.activated_product.row_product_triton import (
    input_gradients,
    matrix_gradient,
    row_product,
)
from graphcaps.ops.batch_norm.batch_norm_triton import (
    combine_statistics,
    mask_bytes,
    row_statistics,
    running_statistics,
)

__all__ = ["activated_product"]


def activated_product(
    parts: Parts,
    matrix: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    residual: Tensor | None,
    *,
    gated: bool,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """As :func:`graphcaps.ops.activated_product.activated_product.activated_product`, in float32."""
    other = parts[1] if len(parts) == 2 else None
    own = residual is parts[0]  # one input for autograd, which then has nothing to add
    running = running if training else running_statistics(running)
    y: Tensor = _ActivatedProduct.apply(
        parts[0], other, None if own else residual, matrix, weight, bias, mask_bytes(mask), running,
        own, gated, training, momentum, epsilon,
    )  # fmt: skip
    return y


class _ActivatedProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        one: Tensor,
        two: Tensor | None,
        residual: Tensor | None,
        matrix: Tensor,
        weight: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        running: tuple[Tensor, Tensor],
        own: bool,
        gated: bool,
        training: bool,
        momentum: float,
        epsilon: float,
    ) -> Tensor:
        parts = [part.contiguous() for part in (one, two) if part is not None]
        matrix, precision = matrix.contiguous(), dot_precision()
        x, tables = row_product(parts, matrix, mask, precision, statistics=training)
        if not training:
            (mean, var), count = running, None
        elif tables is None:
            mean, var, count = row_statistics(x, mask, running, momentum)
        else:
            mean, var, count = combine_statistics(*tables, running, momentum)
        rows = NormedRows(epsilon, x, mask, mean, var, count, weight.contiguous(), bias.contiguous())
        ctx.save_for_backward(*rows[1:], matrix, *parts)
        ctx.own, ctx.gated, ctx.epsilon, ctx.precision = own, gated, epsilon, precision
        return activate_rows(rows, parts[0] if own else residual, gated)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        saved, count = ctx.saved_tensors, len(NormedRows._fields) - 1
        rows, (matrix, *parts) = NormedRows(ctx.epsilon, *saved[:count]), saved[count:]
        grad, needs = grad.contiguous(), ctx.needs_input_grad
        of_rows = needs[0] or needs[1] or needs[3]
        dx, dweight, dbias = activated_gradients(rows, grad, ctx.gated, of_rows=of_rows)
        dparts: list[Tensor | None] = [None, None]
        if dx is not None and (needs[0] or needs[1]):
            dparts[: len(parts)] = input_gradients(
                dx, matrix, len(parts), grad if ctx.own else None, ctx.precision
            )
        dmatrix = matrix_gradient(parts, dx, ctx.precision) if dx is not None and needs[3] else None
        return *dparts, grad if needs[2] else None, dmatrix, dweight, dbias, *[None] * 7
