"""A linear map of very many rows, whose weight gradient keeps a whole GPU busy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["matmul_rows"]

# Tiles of a product that fill a large GPU a few times, and the fewest rows that are worth a product of their own.
_TILE, _TILES, _ROWS = 64, 512, 256


def matmul_rows(x: Tensor, weight: Tensor) -> Tensor:
    """``x [*lead, V, in]`` times ``weight [*lead, in, out]``.

    The gradient of the weight is a small matrix, summed over all V rows: as one product it would run on a few
    cores of a GPU. There the rows are cut into chunks whose products run side by side and are then added, in
    order.
    """
    if x.device.type == "cpu" or x.requires_grad or not weight.requires_grad:
        return x @ weight
    found: Tensor = _MatmulRows.apply(x, weight)
    return found


def weight_gradient(x: Tensor, grad: Tensor, chunks: int) -> Tensor:
    """xᵀ grad over the rows, cut into ``chunks`` equal parts, ``[*lead, in, out]``."""
    if chunks == 1:
        return x.mT @ grad
    parts = x.unflatten(-2, (chunks, -1)).mT @ grad.unflatten(-2, (chunks, -1))
    return parts.sum(-3)


def chunks_of_rows(x: Tensor, out: int) -> int:
    """A power of two that divides the rows, as large as a GPU needs and as the rows allow."""
    *lead, V, width = x.shape
    tiles = torch.Size(lead).numel() * -(-width // _TILE) * -(-out // _TILE)
    chunks = 1
    while V % (2 * chunks) == 0 and V // (2 * chunks) >= _ROWS and tiles * chunks < _TILES:
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
