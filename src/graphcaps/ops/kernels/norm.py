"""Batch normalisation over the real rows of every replica: one pass for the statistics, one to normalise.

Each program finds count, mean and squared deviations of its block of rows; a second, small kernel joins the
blocks by Chan's formula, which loses nothing where means are large, and moves the running averages. The
gradient needs two sums per column in the same two steps, and one pass more.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.kernels.norm_passes import (
    add_kernel,
    gradient_kernel,
    join_kernel,
    moments_kernel,
    normalise_kernel,
    slopes_kernel,
)

__all__ = ["add_tables", "batch_norm", "rows_gradient", "standardise"]

_MOST_PARTS = 64
"""Parts of the rows of a replica: what the joining kernel holds at once."""


def batch_norm(
    x: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    *,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """Normalises ``x [*lead, V, C]`` as :class:`graphcaps.nn.RaggedBatchNorm` does.

    Args:
        x (Tensor): Rows, float32; padding rows may hold anything.
        mask (Tensor, optional): True at real rows, ``[*lead, V]``.
        weight, bias (Tensor): γ and β, ``[*lead, C]``.
        running (tuple): Running mean and variance, ``[*lead, C]``; moved in place while training.
        training (bool): Statistics of these rows, or the running ones.
        momentum, epsilon (float): As in the module.

    Returns:
        Tensor: ``[*lead, V, C]``, zero at padding rows.
    """
    x, mask = x.contiguous(), _bytes(mask)
    if training:
        mean, var, count = _statistics(x.detach(), mask, running, momentum)
    else:
        (mean, var), count = running, None
    found: Tensor = _Normalise.apply(x, weight, bias, mask, mean, var, count, epsilon)
    return found


def standardise(
    x: Tensor,
    mask: Tensor | None,
    running: tuple[Tensor, Tensor],
    *,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """(x − mean) / √(variance + ε) without γ, β and gradient; arguments as in :func:`batch_norm`."""
    x, mask = x.detach().contiguous(), _bytes(mask)
    mean, var = _statistics(x, mask, running, momentum)[:2] if training else running
    return _normalised(x, mask, mean, var, None, None, epsilon)


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mask: Tensor | None,
        mean: Tensor,
        var: Tensor,
        count: Tensor | None,
        epsilon: float,
    ) -> Tensor:
        weight = weight.contiguous()
        ctx.save_for_backward(x, weight, mask, mean, var, count)
        ctx.epsilon = epsilon
        return _normalised(x, mask, mean, var, weight, bias.contiguous(), epsilon)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mask, mean, var, count = ctx.saved_tensors
        grad = grad.contiguous()
        g = _Grid(x)
        plain, along = g.table(x), g.table(x)
        given = x if mask is None else mask
        slopes_kernel[g.shape](
            x, grad, given, mean, var, plain, along, g.V, g.units, g.parts, g.tiles, ctx.epsilon,
            UNIT=g.unit, MASKED=mask is not None, ROWS=g.rows, WIDTH=g.width, num_warps=4,
        )  # fmt: skip
        dbias, dweight = (sums.view_as(weight) for sums in add_tables(plain, along))
        dx = None
        if ctx.needs_input_grad[0]:
            dx = _gradient(x, grad, mask, weight, dweight, dbias, (mean, var, count), ctx.epsilon, None)
        return dx, dweight, dbias, None, None, None, None, None


def add_tables(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of two tables ``[replicas, parts, C]`` over their parts, in order, ``[replicas, C]``."""
    replicas, parts, C = one.shape
    sums = one.new_empty(replicas, C), one.new_empty(replicas, C)
    add_kernel[(replicas, triton.cdiv(C, 32))](
        one, two, *sums, C, parts, PARTS=_MOST_PARTS, WIDTH=32, num_warps=4
    )
    return sums


def rows_gradient(
    x: Tensor,
    grad: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    dweight: Tensor,
    dbias: Tensor,
    statistics: tuple[Tensor, Tensor, Tensor],
    epsilon: float,
    *,
    more: Tensor | None = None,
) -> Tensor:
    """Gradient of ``x [*lead, V, C]`` from that of the normalised rows, and ``more`` added to it.

    Args:
        x, grad (Tensor): Rows, and the gradient of the normalised ones.
        mask (Tensor, optional): True at real rows, ``[*lead, V]``.
        weight, dweight, dbias (Tensor): γ and the gradients of γ and β, ``[*lead, C]``.
        statistics (tuple): Mean, variance and count of the rows.
        epsilon (float): Added to the variance.
        more (Tensor, optional): A further gradient of ``x``.
    """
    return _gradient(x, grad, _bytes(mask), weight, dweight, dbias, statistics, epsilon, more)


def _gradient(
    x: Tensor,
    grad: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    dweight: Tensor,
    dbias: Tensor,
    statistics: tuple[Tensor, Tensor, Tensor | None],
    epsilon: float,
    more: Tensor | None,
) -> Tensor:
    dx, g = torch.empty_like(x), _Grid(x)
    mean, var, count = statistics
    gradient_kernel[g.plain](
        x, grad, x if mask is None else mask, mean, var, weight, dweight, dbias,
        x if count is None else count, x if more is None else more.contiguous(), dx,
        g.V, g.units, g.blocks, epsilon,
        UNIT=g.unit, MASKED=mask is not None, TRAINED=count is not None, MORE=more is not None,
        ROWS=g.rows, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    return dx


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


class _Grid:
    """How ``[*lead, V, C]`` is cut: tiles of rows × columns, and ``parts`` runs of ``tiles`` of them."""

    def __init__(self, x: Tensor) -> None:
        self.V, self.C = x.shape[-2:]
        self.unit = math.gcd(self.C, 4)  # numbers that a load may take at once
        self.units = self.C // self.unit
        self.replicas = x.numel() // (self.V * self.C)
        self.width = min(128, max(16, triton.next_power_of_2(self.C)))
        self.rows = 4096 // self.width if self.width > 32 else 128
        self.blocks = triton.cdiv(self.V, self.rows)
        self.tiles = triton.cdiv(self.blocks, _MOST_PARTS)
        self.parts = triton.cdiv(self.blocks, self.tiles)
        across = triton.cdiv(self.C, self.width)
        self.shape, self.plain = (self.replicas * self.parts, across), (self.replicas * self.blocks, across)

    def table(self, x: Tensor) -> Tensor:
        """Room for a row of every part. Each has its own memory: a compilation counts on where it begins."""
        return x.new_empty(self.replicas, self.parts, self.C)


def _statistics(
    x: Tensor, mask: Tensor | None, running: tuple[Tensor, Tensor], momentum: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance ``[*lead, C]`` and count ``[replicas]`` of the real rows; moves the running ones."""
    g = _Grid(x)
    means, squares = g.table(x), g.table(x)
    counts = x.new_empty(g.replicas, g.parts)
    given = x if mask is None else mask
    moments_kernel[g.shape](
        x, given, means, squares, counts, g.V, g.units, g.parts, g.tiles,
        UNIT=g.unit, MASKED=mask is not None, ROWS=g.rows, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    mean, var = (torch.empty_like(running[0]) for _ in range(2))
    count = x.new_empty(g.replicas)
    join_kernel[(g.replicas, triton.cdiv(g.C, 32))](
        means, squares, counts, mean, var, count, *running, g.C, g.parts, momentum,
        PARTS=_MOST_PARTS, WIDTH=32, num_warps=4,
    )  # fmt: skip
    return mean, var, count


def _normalised(
    x: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
) -> Tensor:
    out, g = torch.empty_like(x), _Grid(x)
    normalise_kernel[g.plain](
        x, x if mask is None else mask, mean, var, x if weight is None else weight,
        x if bias is None else bias, out, g.V, g.units, g.blocks, epsilon,
        UNIT=g.unit, MASKED=mask is not None, AFFINE=weight is not None,
        ROWS=g.rows, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    return out
