"""Squash: a vector's direction kept, its length brought between 0 and 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["RELEASED_EPSILON", "squash"]

RELEASED_EPSILON = 1e-7
"""What the released program adds to the squared norm inside the square root."""

_CHUNK = 1 << 18
"""Numbers that a temporary tensor may hold on a CPU, to stay in its cache; fewer than eight such are one chunk."""


def squash(z: Tensor, epsilon: float = RELEASED_EPSILON) -> Tensor:
    r"""Squashes vectors along the last axis (HGCN, Eq. 3).

    .. math:: \mathrm{squash}(z) = \frac{\|z\|^2}{1 + \|z\|^2} \frac{z}{\sqrt{\|z\|^2 + \epsilon}}

    Args:
        z (Tensor): Vectors, ``[…, d]``.
        epsilon (float): Added inside the root as the released program does; with 0 the paper's formula,
            completed by squash(0) = 0 with gradient 0. (default: 1e-7)

    Returns:
        Tensor: Vectors of length below 1, ``[…, d]``.
    """
    if z.device.type == "cpu" and z.numel() >= 8 * _CHUNK:
        found: Tensor = _SquashRows.apply(z, epsilon)
        return found
    return _squash(z, epsilon)


def _squash(z: Tensor, epsilon: float) -> Tensor:
    squared = z.square().sum(-1, keepdim=True)
    if epsilon > 0:
        return z * (squared / ((1 + squared) * (squared + epsilon).sqrt()))
    # The root has no finite slope at zero, the product has: keep zero out of the root.
    zero = squared == 0
    length = squared.masked_fill(zero, 1).sqrt()
    return z * (length / (1 + squared)).masked_fill(zero, 0)


class _SquashRows(torch.autograd.Function):
    """The same of very many vectors, chunk by chunk: the result is the only tensor of their size."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.epsilon = epsilon
        rows = z.reshape(-1, z.size(-1))
        found = torch.empty_like(rows)
        for part, out in zip(_chunks(rows), _chunks(found), strict=True):
            torch.mul(part, _factor(_squared(part, part), epsilon)[0], out=out)
        return found.reshape(z.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (z,) = ctx.saved_tensors
        # A slope of the slope is asked for: rare, and not worth a form of its own.
        if torch.is_grad_enabled():
            return torch.autograd.grad(_squash(z, ctx.epsilon), z, grad, create_graph=True)[0], None
        rows, slope = z.reshape(-1, z.size(-1)), grad.reshape(-1, z.size(-1))
        found = torch.empty_like(rows)
        for part, g, out in zip(_chunks(rows), _chunks(slope), _chunks(found), strict=True):
            factor, growth = _factor(_squared(part, part), ctx.epsilon)
            torch.mul(g, factor, out=out).addcmul_(part, growth.mul_(_squared(part, g)))
        return found.reshape(z.shape), None


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    return rows.split(max(1, _CHUNK // max(1, rows.size(-1))))


def _squared(one: Tensor, two: Tensor) -> Tensor:
    """Product of each row with its own of the other, ``[rows, 1]``."""
    return (one * two).sum(-1, keepdim=True)


def _factor(s: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    r"""Of a squared norm s: :math:`f = s / ((1 + s) \sqrt{s + \epsilon})`, and twice its slope in s."""
    within = s + epsilon if epsilon > 0 else s.masked_fill(s == 0, 1)  # zero is kept out of the root
    one = 1 + s
    below = one * within.sqrt()
    return s / below, (2 / one - s / within) / below
