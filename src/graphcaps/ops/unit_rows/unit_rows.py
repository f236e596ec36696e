"""Rows scaled to length 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select, uses_reference
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.compilation import is_traced

__all__ = ["unit_rows"]

_SHORTEST = 1e-12


@full_precision
def unit_rows(x: Tensor) -> Tensor:
    r"""Divides each row by its length, as :func:`torch.nn.functional.normalize`.

    .. math:: y = \frac{x}{\max(\|x\|, 10^{-12})}

    The gradient :math:`(g - y \, (g \cdot y)) / \|x\|` needs a third of the passes over the rows that automatic
    differentiation makes.

    Args:
        x (Tensor): Rows, ``[…, d]``.
    """
    if is_traced() or uses_reference():
        return torch.nn.functional.normalize(x, dim=-1)
    return select("unit_rows", _unit_rows, x)(x)


def _unit_rows(x: Tensor) -> Tensor:
    y: Tensor = _UnitRows.apply(x)
    return y


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = length.clamp_min(_SHORTEST).reciprocal()
        y = x * inverse
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, inverse = ctx.saved_tensors
        along = (grad * y).sum(-1, keepdim=True)
        return torch.addcmul(grad, y, along, value=-1) * inverse
