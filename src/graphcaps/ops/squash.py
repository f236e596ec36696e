"""Squash: keeps the direction of a vector and maps its length to between 0 and 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import needs_plain_operations
from graphcaps.ops.autocast import full_precision

__all__ = [
    "RELEASED_EPSILON",
    "Squashed",
    "plain_squash",
    "squash",
    "squash_backward",
    "squash_with_derivative",
]

RELEASED_EPSILON = 1e-7
"""Added to the squared norm inside the square root, as in the released program."""

_CHUNK = 1 << 18
"""Size of a temporary tensor on a CPU that stays in its cache; inputs below eight times this are not chunked."""


@full_precision
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
    if z.device.type != "cpu" or needs_plain_operations():
        return plain_squash(z, epsilon)
    if z.numel() >= 8 * _CHUNK:
        u: Tensor = _SquashRows.apply(z, epsilon)
        return u
    if not (z.requires_grad and torch.is_grad_enabled()):
        return plain_squash(z, epsilon)
    u = _Squash.apply(z, epsilon)
    return u


@dataclass(frozen=True)
class Squashed:
    """Squashed vectors, and what their gradient needs.

    Args:
        u (Tensor): The vectors, ``[…, d]``.
        factor (Tensor): Their factor f, ``u = f z``, ``[…, 1]``.
        derivative (Tensor): Twice the derivative of f in the squared norm, ``[…, 1]``.
    """

    u: Tensor
    factor: Tensor
    derivative: Tensor


def squash_with_derivative(z: Tensor, epsilon: float) -> Squashed:
    """:func:`squash` without autograd, for operations that write out their gradient."""
    factor, derivative = _factor(_row_dots(z, z), epsilon)
    return Squashed(z * factor, factor, derivative)


def squash_backward(z: Tensor, factor: Tensor, derivative: Tensor, grad: Tensor) -> Tensor:
    """Gradient in z, from the gradient in u and two results of :func:`squash_with_derivative`."""
    return (grad * factor).addcmul_(z, derivative * _row_dots(z, grad))


def plain_squash(z: Tensor, epsilon: float) -> Tensor:
    """:func:`squash` as standard tensor operations, on any device and in any mode."""
    squared = z.square().sum(-1, keepdim=True)
    if epsilon > 0:
        return z * (squared / ((1 + squared) * (squared + epsilon).sqrt()))
    # The root has no finite gradient at zero, the product has: keep zero out of the root.
    zero = squared == 0
    length = squared.masked_fill(zero, 1).sqrt()
    return z * (length / (1 + squared)).masked_fill(zero, 0)


class _Squash(torch.autograd.Function):
    """The same with its gradient written out, which takes a quarter of the operations."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float) -> Tensor:
        squashed = squash_with_derivative(z, epsilon)
        ctx.save_for_backward(z, squashed.factor, squashed.derivative)
        ctx.epsilon = epsilon
        return squashed.u

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        z, factor, derivative = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return torch.autograd.grad(plain_squash(z, ctx.epsilon), z, grad, create_graph=True)[0], None
        return squash_backward(z, factor, derivative, grad), None


class _SquashRows(torch.autograd.Function):
    """The same for very many vectors, chunk by chunk: the result is the only tensor of that size."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.epsilon = epsilon
        rows = z.reshape(-1, z.size(-1))
        result = torch.empty_like(rows)
        for chunk, out in zip(_chunks(rows), _chunks(result), strict=True):
            torch.mul(chunk, _factor(_row_dots(chunk, chunk), epsilon)[0], out=out)
        return result.reshape(z.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (z,) = ctx.saved_tensors
        # A second derivative is rare and not worth its own form.
        if torch.is_grad_enabled():
            return torch.autograd.grad(plain_squash(z, ctx.epsilon), z, grad, create_graph=True)[0], None
        rows, grads = z.reshape(-1, z.size(-1)), grad.reshape(-1, z.size(-1))
        result = torch.empty_like(rows)
        for chunk, g, out in zip(_chunks(rows), _chunks(grads), _chunks(result), strict=True):
            factor, derivative = _factor(_row_dots(chunk, chunk), ctx.epsilon)
            torch.mul(g, factor, out=out).addcmul_(chunk, derivative.mul_(_row_dots(chunk, g)))
        return result.reshape(z.shape), None


def _chunks(rows: Tensor) -> tuple[Tensor, ...]:
    return rows.split(max(1, _CHUNK // max(1, rows.size(-1))))


def _row_dots(one: Tensor, two: Tensor) -> Tensor:
    """Dot product of each row with the same row of the other tensor, ``[rows, 1]``."""
    return (one * two).sum(-1, keepdim=True)


def _factor(s: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    r"""Of a squared norm s: :math:`f = s / ((1 + s) \sqrt{s + \epsilon})`, and twice its derivative in s."""
    inner = s + epsilon if epsilon > 0 else s.masked_fill(s == 0, 1)  # keeps zero out of the root
    one = 1 + s
    divisor = one * inner.sqrt()
    return s / divisor, (2 / one - s / inner) / divisor
