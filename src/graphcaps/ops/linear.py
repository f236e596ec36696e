"""Linear maps of very many rows: a weight gradient that is fast on a GPU, and a norm folded into a map."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.dispatch import needs_plain_operations, uses_reference
from graphcaps.ops.autocast import autocast_enabled

__all__ = ["fold_norm", "matmul_rows"]

# Side of a tile, number of tiles that occupy a large GPU, and least number of rows of a chunk.
_TILE, _MANY_TILES, _LEAST_ROWS = 64, 512, 256


def matmul_rows(x: Tensor, weight: Tensor) -> Tensor:
    """``x [*lead, V, in]`` times ``weight [*lead, in, out]``.

    The gradient of the weight is a small matrix, summed over all V rows: as one product it would use few cores of a
    GPU. There the rows are split into chunks; their products are computed in parallel and added in a fixed order.
    Inside autocast torch decides the precision of the product and of its gradients.
    """
    plain = x.device.type == "cpu" or autocast_enabled(x) or uses_reference()
    if plain or x.requires_grad or not weight.requires_grad:
        return x @ weight
    y: Tensor = _MatmulRows.apply(x, weight)
    return y


def weight_gradient(x: Tensor, grad: Tensor, chunks: int) -> Tensor:
    """xᵀ grad as the sum over ``chunks`` chunks of equal length, ``[*lead, in, out]``."""
    if chunks == 1:
        return x.mT @ grad
    products = x.unflatten(-2, (chunks, -1)).mT @ grad.unflatten(-2, (chunks, -1))
    return products.sum(-3)


def chunks_of_rows(x: Tensor, out: int) -> int:
    """Number of chunks: a power of two that divides the rows, enough for a GPU, with chunks of many rows."""
    *lead, V, width = x.shape
    tiles = torch.Size(lead).numel() * -(-width // _TILE) * -(-out // _TILE)
    chunks = 1
    while V % (2 * chunks) == 0 and V // (2 * chunks) >= _LEAST_ROWS and tiles * chunks < _MANY_TILES:
        chunks *= 2
    return chunks


class _MatmulRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return None, weight_gradient(x, grad, chunks_of_rows(x, grad.size(-1)))


def fold_norm(scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Weight and bias of a linear map after ``x̂ γ + β``: γ W, ``[*lead, in, out]``, and β W + e, ``[*lead, out]``.

    Args:
        scale, shift (Tensor): γ and β, ``[*lead, in]``.
        weight (Tensor): W, ``[*lead, in, out]``.
        bias (Tensor): e, ``[*lead, out]``.
    """
    if needs_plain_operations() or autocast_enabled(weight):
        return scale.unsqueeze(-1) * weight, (shift.unsqueeze(-2) @ weight).squeeze(-2) + bias
    folded_weight, folded_bias = _FoldNorm.apply(scale, shift, weight, bias)
    return folded_weight, folded_bias


class _FoldNorm(torch.autograd.Function):
    """Both products, and their gradients written out; these are functions of the inputs that autograd records."""

    @staticmethod
    def forward(ctx: Any, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor) -> Any:
        ctx.save_for_backward(scale, shift, weight)
        return scale.unsqueeze(-1) * weight, (shift.unsqueeze(-2) @ weight).squeeze(-2) + bias

    @staticmethod
    def backward(ctx: Any, dweight: Tensor, dbias: Tensor) -> Any:
        scale, shift, weight = ctx.saved_tensors
        row = dbias.unsqueeze(-2)
        dshift = (weight @ row.mT).squeeze(-1)
        return (
            (dweight * weight).sum(-1),
            dshift,
            torch.addcmul(dweight * scale.unsqueeze(-1), shift.unsqueeze(-1), row),
            dbias,
        )
