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
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["add_tables", "batch_norm", "move_running", "rows_gradient", "standardise"]


@triton.jit
def _real(mask, base, rows, V, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    real = rows < V
    if MASKED:
        real = real & (tl.load(mask + base + rows, mask=real, other=0) != 0)
    return real


@triton.jit
def move_running(  # type: ignore[no-untyped-def]
    running_mean, running_var, own, wide, mean, var, total, momentum
):
    # A replica without a real row learns nothing from this batch.
    share = tl.where(total > 0, momentum, 0.0)
    old_mean = tl.load(running_mean + own, mask=wide, other=0.0)
    old_var = tl.load(running_var + own, mask=wide, other=0.0)
    unbiased = var * (total / tl.maximum(total - 1, 1.0))
    tl.store(running_mean + own, old_mean + share * (mean - old_mean), mask=wide)
    tl.store(running_var + own, old_var + share * (unbiased - old_var), mask=wide)


@triton.jit(do_not_specialize=["V", "units", "parts", "tiles"])
def moments_kernel(  # type: ignore[no-untyped-def]
    x, mask, means, squares, counts, V, units, parts, tiles,
    UNIT: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    base = (tl.program_id(0) // parts).to(tl.int64) * V
    begin = tl.program_id(0) % parts * tiles * ROWS
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    n = 0.0
    mean = tl.zeros([WIDTH], tl.float32)
    square = tl.zeros([WIDTH], tl.float32)
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    for tile in range(0, tiles):
        first_row = begin + tile * ROWS
        rows = first_row + tl.arange(0, ROWS)
        real = _real(mask, base, rows, V, MASKED)
        seen = real[:, None] & wide[None, :]
        values = tl.load(x + (base + first_row) * C + local, mask=seen, other=0.0)
        own = tl.sum(real.to(tl.float32), 0)
        own_mean = tl.sum(values, 0) / tl.maximum(own, 1.0)
        away = tl.where(seen, values - own_mean[None, :], 0.0)
        both = tl.maximum(n + own, 1.0)
        step = own_mean - mean
        square += tl.sum(away * away, 0) + step * step * (n * own / both)
        mean += step * (own / both)
        n += own
    place = tl.program_id(0).to(tl.int64) * C + columns
    tl.store(means + place, mean, mask=wide)
    tl.store(squares + place, square, mask=wide)
    if tl.program_id(1) == 0:
        tl.store(counts + tl.program_id(0), n)


@triton.jit(do_not_specialize=["C", "parts"])
def join_kernel(  # type: ignore[no-untyped-def]
    means, squares, counts, mean_out, var_out, count_out, running_mean, running_var, C, parts, momentum,
    PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    part = tl.arange(0, PARTS)
    there = part < parts
    n = tl.load(counts + replica * parts + part, mask=there, other=0.0)
    place = (replica * parts + part)[:, None] * C + columns[None, :]
    seen = there[:, None] & wide[None, :]
    mean = tl.load(means + place, mask=seen, other=0.0)
    total = tl.sum(n, 0)
    some = tl.maximum(total, 1.0)
    joint = tl.sum(mean * n[:, None], 0) / some
    away = mean - joint[None, :]
    square = tl.sum(tl.load(squares + place, mask=seen, other=0.0) + away * away * n[:, None], 0)
    var = square / some
    own = replica * C + columns
    tl.store(mean_out + own, joint, mask=wide)
    tl.store(var_out + own, var, mask=wide)
    if tl.program_id(1) == 0:
        tl.store(count_out + replica, total)
    move_running(running_mean, running_var, own, wide, joint, var, total, momentum)


@triton.jit(do_not_specialize=["V", "units", "blocks"])
def normalise_kernel(  # type: ignore[no-untyped-def]
    x, mask, mean, var, weight, bias, out, V, units, blocks, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, AFFINE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    first_row = tl.program_id(0) % blocks * ROWS
    rows = first_row + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    own = replica * C + columns
    scale = tl.rsqrt(tl.load(var + own, mask=wide, other=1.0) + epsilon)
    centre = tl.load(mean + own, mask=wide, other=0.0)
    seen = _real(mask, base, rows, V, MASKED)[:, None] & wide[None, :]
    origin = (base + first_row) * C
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    values = (tl.load(x + origin + local, mask=seen, other=0.0) - centre[None, :]) * scale[None, :]
    if AFFINE:
        gamma = tl.load(weight + own, mask=wide, other=0.0)
        beta = tl.load(bias + own, mask=wide, other=0.0)
        values = values * gamma[None, :] + beta[None, :]
    tl.store(out + origin + local, tl.where(seen, values, 0.0), mask=(rows < V)[:, None] & wide[None, :])


@triton.jit(do_not_specialize=["V", "units", "parts", "tiles"])
def slopes_kernel(  # type: ignore[no-untyped-def]
    x, grad, mask, mean, var, plain, along, V, units, parts, tiles, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums of dy and of dy x̂ over the real rows of each part."""
    C = units * UNIT
    replica = (tl.program_id(0) // parts).to(tl.int64)
    base = replica * V
    begin = tl.program_id(0) % parts * tiles * ROWS
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    own = replica * C + columns
    scale = tl.rsqrt(tl.load(var + own, mask=wide, other=1.0) + epsilon)
    centre = tl.load(mean + own, mask=wide, other=0.0)
    first = tl.zeros([WIDTH], tl.float32)
    second = tl.zeros([WIDTH], tl.float32)
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    for tile in range(0, tiles):
        first_row = begin + tile * ROWS
        rows = first_row + tl.arange(0, ROWS)
        seen = _real(mask, base, rows, V, MASKED)[:, None] & wide[None, :]
        origin = (base + first_row) * C
        dy = tl.load(grad + origin + local, mask=seen, other=0.0)
        hat = (tl.load(x + origin + local, mask=seen, other=0.0) - centre[None, :]) * scale[None, :]
        first += tl.sum(dy, 0)
        second += tl.sum(dy * hat, 0)
    out = tl.program_id(0).to(tl.int64) * C + columns
    tl.store(plain + out, first, mask=wide)
    tl.store(along + out, second, mask=wide)


@triton.jit(do_not_specialize=["C", "parts"])
def add_kernel(  # type: ignore[no-untyped-def]
    one, two, one_out, two_out, C, parts, PARTS: tl.constexpr, WIDTH: tl.constexpr
):
    """Sums two tables ``[replicas, parts, C]`` over their parts, PARTS of them side by side."""
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    first = tl.zeros([PARTS, WIDTH], tl.float32)
    second = tl.zeros([PARTS, WIDTH], tl.float32)
    for look in range(0, parts, PARTS):
        part = look + tl.arange(0, PARTS)
        place = (replica * parts + part)[:, None] * C + columns[None, :]
        seen = (part < parts)[:, None] & wide[None, :]
        first += tl.load(one + place, mask=seen, other=0.0)
        second += tl.load(two + place, mask=seen, other=0.0)
    own = replica * C + columns
    tl.store(one_out + own, tl.sum(first, 0), mask=wide)
    tl.store(two_out + own, tl.sum(second, 0), mask=wide)


@triton.jit(do_not_specialize=["V", "units", "blocks"])
def gradient_kernel(  # type: ignore[no-untyped-def]
    x, grad, mask, mean, var, weight, along, plain, count, more, dx, V, units, blocks, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, TRAINED: tl.constexpr, MORE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradient of the rows; what another reader of them sends back (``more``) is added on the way."""
    C = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    first_row = tl.program_id(0) % blocks * ROWS
    rows = first_row + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    own = replica * C + columns
    scale = tl.rsqrt(tl.load(var + own, mask=wide, other=1.0) + epsilon)
    gamma = tl.load(weight + own, mask=wide, other=0.0)
    seen = _real(mask, base, rows, V, MASKED)[:, None] & wide[None, :]
    origin = (base + first_row) * C
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    slope = tl.load(grad + origin + local, mask=seen, other=0.0)
    if TRAINED:
        # Mean and variance are made of the rows too: what the rows have in common does not pass.
        n = tl.maximum(tl.load(count + replica), 1.0)
        centre = tl.load(mean + own, mask=wide, other=0.0)
        common = tl.load(plain + own, mask=wide, other=0.0) / n
        stretch = tl.load(along + own, mask=wide, other=0.0) / n
        hat = (tl.load(x + origin + local, mask=seen, other=0.0) - centre[None, :]) * scale[None, :]
        slope = slope - common[None, :] - hat * stretch[None, :]
    slope = slope * (gamma * scale)[None, :]
    if MORE:
        slope += tl.load(more + origin + local, mask=seen, other=0.0)
    tl.store(dx + origin + local, tl.where(seen, slope, 0.0), mask=(rows < V)[:, None] & wide[None, :])


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
