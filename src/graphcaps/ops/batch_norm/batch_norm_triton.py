"""Batch normalisation over the real rows of every replica: one pass for the statistics, one to normalise.

The rows of a replica are split into parts. Each program computes count, mean and sum of squared deviations of a part;
a second, small kernel combines the parts by Chan's formula, which is accurate also for large means, and updates the
running averages. The gradient needs two sums per column in the same two steps, and one more pass.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops._triton.load_width import load_width
from graphcaps.ops.ragged.ragged_triton import MeanGradient, mean_weight

__all__ = [
    "Grid",
    "add_tables",
    "batch_norm",
    "combine_statistics",
    "mask_bytes",
    "norm_gradients",
    "normalise_rows",
    "real_rows",
    "row_statistics",
    "rows_gradient",
    "rows_of_entry",
    "running_statistics",
    "standardise",
    "update_running",
]

_MOST_PARTS = 64
"""Largest number of parts of a replica that rows are split into; the combining kernel holds all parts at once."""
_SUMMED_NUMBERS = 1024
"""Numbers of a tile of a part: those that a program adds to its sums in a step."""
_COMBINED_NUMBERS = 4096
"""Numbers of a table that a program of the combining kernel holds."""
_ADDED_PARTS, _ADDED_COLUMNS = 256, 8
"""Parts and columns of a step of the kernel that adds tables: its steps wait for each other, so they are few."""


@triton.jit
def real_rows(mask, base, rows, V, EACH, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Whether rows are real; the mask has one entry for ``EACH`` rows."""
    real = rows < V
    if MASKED:
        real = real & (tl.load(mask + base // EACH + rows // EACH, mask=real, other=0) != 0)
    return real


@triton.jit
def update_running(  # type: ignore[no-untyped-def]
    running_mean, running_var, column_offset, wide, mean, var, total, momentum
):
    # The running averages of a replica without a real row stay as they are.
    share = tl.where(total > 0, momentum, 0.0)
    old_mean = tl.load(running_mean + column_offset, mask=wide, other=0.0)
    old_var = tl.load(running_var + column_offset, mask=wide, other=0.0)
    unbiased = var * (total / tl.maximum(total - 1, 1.0))
    tl.store(running_mean + column_offset, old_mean + share * (mean - old_mean), mask=wide)
    tl.store(running_var + column_offset, old_var + share * (unbiased - old_var), mask=wide)


@triton.jit(do_not_specialize=["V", "units", "parts", "tiles", "EACH"])
def _moments_kernel(  # type: ignore[no-untyped-def]
    x, mask, means, squares, counts, V, units, parts, tiles, EACH,
    UNIT: tl.constexpr, MASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    base = (tl.program_id(0) // parts).to(tl.int64) * V
    begin = tl.program_id(0) % parts * tiles * ROWS
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    # Each lane has moments of its own until the end: a sum over lanes in each step would need barriers.
    n = tl.zeros([ROWS, 1], tl.float32)
    mean = tl.zeros([ROWS, WIDTH], tl.float32)
    square = tl.zeros([ROWS, WIDTH], tl.float32)
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    for tile in range(0, tiles):
        first_row = begin + tile * ROWS
        rows = first_row + tl.arange(0, ROWS)
        real = real_rows(mask, base, rows, V, EACH, MASKED)
        valid = real[:, None] & wide[None, :]
        values = tl.load(x + (base + first_row) * C + local, mask=valid, other=0.0)
        n += real[:, None].to(tl.float32)
        step = tl.where(valid, values - mean, 0.0)
        mean += step * (1 / tl.maximum(n, 1.0))
        square += step * (values - mean)
    total = tl.sum(n, 0)
    whole = tl.sum(mean * n, 0) / tl.maximum(total, 1.0)
    deviation = mean - whole[None, :]
    offsets = tl.program_id(0).to(tl.int64) * C + columns
    tl.store(means + offsets, whole, mask=wide)
    tl.store(squares + offsets, tl.sum(square + deviation * deviation * n, 0), mask=wide)
    if tl.program_id(1) == 0:
        tl.store(counts + tl.program_id(0) + tl.arange(0, 1), total)


@triton.jit(do_not_specialize=["C", "parts"])
def _combine_kernel(  # type: ignore[no-untyped-def]
    means, squares, counts, mean_out, var_out, count_out, running_mean, running_var, C, parts, momentum,
    PARTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    part = tl.arange(0, PARTS)
    is_part = part < parts
    n = tl.load(counts + replica * parts + part, mask=is_part, other=0.0)
    offsets = (replica * parts + part)[:, None] * C + columns[None, :]
    valid = is_part[:, None] & wide[None, :]
    mean = tl.load(means + offsets, mask=valid, other=0.0)
    total = tl.sum(n, 0)
    divisor = tl.maximum(total, 1.0)
    combined = tl.sum(mean * n[:, None], 0) / divisor
    deviation = mean - combined[None, :]
    square = tl.sum(tl.load(squares + offsets, mask=valid, other=0.0) + deviation * deviation * n[:, None], 0)
    var = square / divisor
    column_offset = replica * C + columns
    tl.store(mean_out + column_offset, combined, mask=wide)
    tl.store(var_out + column_offset, var, mask=wide)
    if tl.program_id(1) == 0:
        tl.store(count_out + replica, total)
    update_running(running_mean, running_var, column_offset, wide, combined, var, total, momentum)


@triton.jit(do_not_specialize=["V", "units", "blocks", "EACH"])
def _normalise_kernel(  # type: ignore[no-untyped-def]
    x, mask, mean, var, weight, bias, out, V, units, blocks, EACH, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, AFFINE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    first_row = tl.program_id(0) % blocks * ROWS
    rows = first_row + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    column_offset = replica * C + columns
    scale = tl.rsqrt(tl.load(var + column_offset, mask=wide, other=1.0) + epsilon)
    centre = tl.load(mean + column_offset, mask=wide, other=0.0)
    valid = real_rows(mask, base, rows, V, EACH, MASKED)[:, None] & wide[None, :]
    origin = (base + first_row) * C
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    values = (tl.load(x + origin + local, mask=valid, other=0.0) - centre[None, :]) * scale[None, :]
    if AFFINE:
        gamma = tl.load(weight + column_offset, mask=wide, other=0.0)
        beta = tl.load(bias + column_offset, mask=wide, other=0.0)
        values = values * gamma[None, :] + beta[None, :]
    tl.store(out + origin + local, tl.where(valid, values, 0.0), mask=(rows < V)[:, None] & wide[None, :])


@triton.jit
def _of_means(  # type: ignore[no-untyped-def]
    mean_grad, index, graphs, replica, rows, real, columns, wide, C, B, divisor
):
    """Gradient of normalised rows from that of the mean of their graph, 0 where rows are not real."""
    graph = tl.load(index + rows, mask=real, other=0).to(tl.int64)
    weight = mean_weight(replica * (B + 1) + graph, real, graphs, divisor)
    at = (replica * B + graph)[:, None] * C + columns[None, :]
    return weight[:, None] * tl.load(mean_grad + at, mask=real[:, None] & wide[None, :], other=0.0)


@triton.jit(do_not_specialize=["V", "units", "parts", "tiles", "EACH", "B"])
def _gradient_sums_kernel(  # type: ignore[no-untyped-def]
    x, grad, mask, mean, var, mean_grad, index, graphs, grad_sum, grad_hat_sum,
    V, units, parts, tiles, EACH, B, divisor, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, MEAN_GRADIENT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums of dy and of dy x̂ over the real rows of each part."""
    C = units * UNIT
    replica = (tl.program_id(0) // parts).to(tl.int64)
    base = replica * V
    begin = tl.program_id(0) % parts * tiles * ROWS
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    column_offset = replica * C + columns
    scale = tl.rsqrt(tl.load(var + column_offset, mask=wide, other=1.0) + epsilon)
    centre = tl.load(mean + column_offset, mask=wide, other=0.0)
    first = tl.zeros([ROWS, WIDTH], tl.float32)
    second = tl.zeros([ROWS, WIDTH], tl.float32)
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    for tile in range(0, tiles):
        first_row = begin + tile * ROWS
        rows = first_row + tl.arange(0, ROWS)
        real = real_rows(mask, base, rows, V, EACH, MASKED)
        valid = real[:, None] & wide[None, :]
        origin = (base + first_row) * C
        dy = tl.load(grad + origin + local, mask=valid, other=0.0)
        if MEAN_GRADIENT:
            dy += _of_means(
                mean_grad, index + base, graphs, replica, rows, real, columns, wide, C, B, divisor
            )
        hat = (tl.load(x + origin + local, mask=valid, other=0.0) - centre[None, :]) * scale[None, :]
        first += dy
        second += dy * hat
    out = tl.program_id(0).to(tl.int64) * C + columns
    tl.store(grad_sum + out, tl.sum(first, 0), mask=wide)
    tl.store(grad_hat_sum + out, tl.sum(second, 0), mask=wide)


@triton.jit(do_not_specialize=["C", "parts"])
def _add_kernel(  # type: ignore[no-untyped-def]
    one, two, one_out, two_out, C, parts, PARTS: tl.constexpr, WIDTH: tl.constexpr
):
    """Sums two tables ``[replicas, parts, C]`` over their parts, PARTS at a time."""
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    first = tl.zeros([PARTS, WIDTH], tl.float32)
    second = tl.zeros([PARTS, WIDTH], tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        offsets = (replica * parts + part)[:, None] * C + columns[None, :]
        valid = (part < parts)[:, None] & wide[None, :]
        first += tl.load(one + offsets, mask=valid, other=0.0)
        second += tl.load(two + offsets, mask=valid, other=0.0)
    column_offset = replica * C + columns
    tl.store(one_out + column_offset, tl.sum(first, 0), mask=wide)
    tl.store(two_out + column_offset, tl.sum(second, 0), mask=wide)


@triton.jit(do_not_specialize=["V", "units", "blocks", "EACH", "B"])
def _gradient_kernel(  # type: ignore[no-untyped-def]
    x, grad, mask, mean, var, weight, grad_hat_sum, grad_sum, count, mean_grad, index, graphs, extra_grad, dx,
    V, units, blocks, EACH, B, divisor, epsilon,
    UNIT: tl.constexpr, MASKED: tl.constexpr, TRAINED: tl.constexpr, MEAN_GRADIENT: tl.constexpr,
    EXTRA_GRAD: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradient of the rows; a further gradient of the rows (``extra_grad``) is added."""
    C = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    first_row = tl.program_id(0) % blocks * ROWS
    rows = first_row + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    column_offset = replica * C + columns
    scale = tl.rsqrt(tl.load(var + column_offset, mask=wide, other=1.0) + epsilon)
    gamma = tl.load(weight + column_offset, mask=wide, other=0.0)
    real = real_rows(mask, base, rows, V, EACH, MASKED)
    valid = real[:, None] & wide[None, :]
    origin = (base + first_row) * C
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    dx_tile = tl.load(grad + origin + local, mask=valid, other=0.0)
    if MEAN_GRADIENT:
        dx_tile += _of_means(
            mean_grad, index + base, graphs, replica, rows, real, columns, wide, C, B, divisor
        )
    if TRAINED:
        # The statistics depend on the rows, too: common shifts and scalings have no gradient.
        n = tl.maximum(tl.load(count + replica), 1.0)
        centre = tl.load(mean + column_offset, mask=wide, other=0.0)
        common = tl.load(grad_sum + column_offset, mask=wide, other=0.0) / n
        stretch = tl.load(grad_hat_sum + column_offset, mask=wide, other=0.0) / n
        hat = (tl.load(x + origin + local, mask=valid, other=0.0) - centre[None, :]) * scale[None, :]
        dx_tile = dx_tile - common[None, :] - hat * stretch[None, :]
    dx_tile = dx_tile * (gamma * scale)[None, :]
    if EXTRA_GRAD:
        dx_tile += tl.load(extra_grad + origin + local, mask=valid, other=0.0)
    tl.store(dx + origin + local, tl.where(valid, dx_tile, 0.0), mask=(rows < V)[:, None] & wide[None, :])


class Grid:
    """How ``[*lead, V, C]`` is split.

    A pass that writes rows has tiles of ``rows`` rows, one for each of ``blocks`` programs. A pass that sums over rows
    has ``parts``, of ``tiles`` tiles of ``summed`` rows each: its sums stay in registers until the end.

    Args:
        x (Tensor): ``[*lead, V, C]``.
        numbers (int): Numbers of a tile of rows. (default: 4096)
    """

    def __init__(self, x: Tensor, numbers: int = 4096) -> None:
        self.V, self.C = x.shape[-2:]
        self.unit = load_width(self.C)
        self.units = self.C // self.unit
        self.replicas = x.numel() // (self.V * self.C)
        self.width = min(128, tile_width(self.C))
        self.rows = min(128, numbers // self.width)
        self.blocks = triton.cdiv(self.V, self.rows)
        self.summed = _SUMMED_NUMBERS // self.width
        count = triton.cdiv(self.V, self.summed)
        self.tiles = triton.cdiv(count, _MOST_PARTS)
        self.parts = triton.cdiv(count, self.tiles)
        across = triton.cdiv(self.C, self.width)
        self.part_grid, self.row_grid = (
            (self.replicas * self.parts, across),
            (self.replicas * self.blocks, across),
        )

    def table(self, x: Tensor) -> Tensor:
        """An empty table with a row per part, in its own memory: compiled kernels assume its alignment."""
        return x.new_empty(self.replicas, self.parts, self.C)


def mask_bytes(mask: Tensor | None) -> Tensor | None:
    """A mask as kernels read it."""
    return None if mask is None else mask.contiguous().view(torch.uint8)


def rows_of_entry(mask: Tensor | None, V: int) -> int:
    """Number of rows for each entry of the mask."""
    return 1 if mask is None else V // mask.size(-1)


def row_statistics(
    x: Tensor, mask: Tensor | None, running: tuple[Tensor, Tensor], momentum: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance ``[*lead, C]`` and count ``[replicas]`` of the real rows; moves the running ones."""
    g = Grid(x)
    means, squares = g.table(x), g.table(x)
    counts = x.new_empty(g.replicas, g.parts)
    mask_or_x = x if mask is None else mask
    _moments_kernel[g.part_grid](
        x, mask_or_x, means, squares, counts, g.V, g.units, g.parts, g.tiles, rows_of_entry(mask, g.V),
        UNIT=g.unit, MASKED=mask is not None, ROWS=g.summed, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    return combine_statistics(means, squares, counts, running, momentum)


def running_statistics(running: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Running mean and variance as a backward pass can keep them: kernels change the originals, unknown to autograd."""
    mean, var = running
    return (mean.clone(), var.clone()) if torch.is_grad_enabled() else (mean, var)


def combine_statistics(
    means: Tensor, squares: Tensor, counts: Tensor, running: tuple[Tensor, Tensor], momentum: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance ``[*lead, C]`` and count ``[replicas]`` of all rows, from those of their parts.

    Args:
        means, squares (Tensor): Mean and sum of squared deviations of each part, ``[replicas, parts, C]``.
        counts (Tensor): Number of rows of each part, ``[replicas, parts]``.
        running (tuple): Running mean and variance, ``[*lead, C]``, updated in place.
        momentum (float): As in :class:`graphcaps.nn.RaggedBatchNorm`.
    """
    replicas, parts, C = means.shape
    mean, var = (torch.empty_like(running[0]) for _ in range(2))
    count = means.new_empty(replicas)
    held = max(_MOST_PARTS, int(triton.next_power_of_2(parts)))
    width = max(1, min(32, _COMBINED_NUMBERS // held))
    _combine_kernel[(replicas, triton.cdiv(C, width))](
        means, squares, counts, mean, var, count, *running, C, parts, momentum,
        PARTS=held, WIDTH=width, num_warps=4,
    )  # fmt: skip
    return mean, var, count


def normalise_rows(
    x: Tensor,
    mask: Tensor | None,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
) -> Tensor:
    """Rows ``[*lead, V, C]`` normalised by given statistics, 0 at padding; all tensors are contiguous.

    Args:
        x (Tensor): Rows; padding may hold anything.
        mask (Tensor, optional): From :func:`mask_bytes`.
        mean, var (Tensor): Statistics, ``[*lead, C]``.
        weight, bias (Tensor, optional): γ and β, ``[*lead, C]``; both or none.
        epsilon (float): Added to the variance.
    """
    out, g = torch.empty_like(x), Grid(x)
    _normalise_kernel[g.row_grid](
        x, x if mask is None else mask, mean, var, x if weight is None else weight,
        x if bias is None else bias, out, g.V, g.units, g.blocks, rows_of_entry(mask, g.V), epsilon,
        UNIT=g.unit, MASKED=mask is not None, AFFINE=weight is not None,
        ROWS=g.rows, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    return out


def rows_gradient(
    x: Tensor,
    grad: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    dweight: Tensor,
    dbias: Tensor,
    statistics: tuple[Tensor, Tensor, Tensor | None],
    epsilon: float,
    *,
    extra_grad: Tensor | None = None,
    means: MeanGradient | None = None,
) -> Tensor:
    """Gradient of ``x [*lead, V, C]`` from that of the normalised rows, and ``extra_grad`` added to it.

    Arguments as in :func:`norm_gradients`, and

    Args:
        dweight, dbias (Tensor): Gradients of γ and β, ``[*lead, C]``.
    """
    dx, g = torch.empty_like(x), Grid(x)
    mean, var, count = statistics
    pointers, numbers = MeanGradient.arguments(means, x)
    _gradient_kernel[g.row_grid](
        x, grad, x if mask is None else mask, mean, var, weight, dweight, dbias,
        x if count is None else count, *pointers, x if extra_grad is None else extra_grad.contiguous(), dx,
        g.V, g.units, g.blocks, rows_of_entry(mask, g.V), *numbers, epsilon,
        UNIT=g.unit, MASKED=mask is not None, TRAINED=count is not None, MEAN_GRADIENT=means is not None,
        EXTRA_GRAD=extra_grad is not None, ROWS=g.rows, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    return dx


def norm_gradients(
    x: Tensor,
    grad: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    statistics: tuple[Tensor, Tensor, Tensor | None],
    epsilon: float,
    *,
    of_rows: bool = True,
    extra_grad: Tensor | None = None,
    means: MeanGradient | None = None,
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients of the rows, if they are needed, and of γ and β; all tensors are contiguous.

    Args:
        x, grad (Tensor): Rows, and the gradient of the normalised ones, ``[*lead, V, C]``.
        mask (Tensor, optional): From :func:`mask_bytes`.
        weight (Tensor): γ, ``[*lead, C]``.
        statistics (tuple): Mean, variance and number of the rows; no number if they are constants.
        epsilon (float): Added to the variance.
        of_rows (bool): Whether the gradient of the rows is needed.
        extra_grad (Tensor, optional): A further gradient of ``x``.
        means (MeanGradient, optional): Added to ``grad``.
    """
    g, (mean, var, _) = Grid(x), statistics
    grad_sum, grad_hat_sum = g.table(x), g.table(x)
    pointers, numbers = MeanGradient.arguments(means, x)
    _gradient_sums_kernel[g.part_grid](
        x, grad, x if mask is None else mask, mean, var, *pointers, grad_sum, grad_hat_sum,
        g.V, g.units, g.parts, g.tiles, rows_of_entry(mask, g.V), *numbers, epsilon,
        UNIT=g.unit, MASKED=mask is not None, MEAN_GRADIENT=means is not None,
        ROWS=g.summed, WIDTH=g.width, num_warps=4,
    )  # fmt: skip
    dbias, dweight = (sums.view_as(weight) for sums in add_tables(grad_sum, grad_hat_sum))
    dx = None
    if of_rows:
        dx = rows_gradient(
            x, grad, mask, weight, dweight, dbias, statistics, epsilon, extra_grad=extra_grad, means=means
        )
    return dx, dweight, dbias


def add_tables(one: Tensor, two: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of two tables ``[replicas, parts, C]`` over their parts, in order, ``[replicas, C]``."""
    replicas, parts, C = one.shape
    sums = one.new_empty(replicas, C), one.new_empty(replicas, C)
    _add_kernel[(replicas, triton.cdiv(C, _ADDED_COLUMNS))](
        one, two, *sums, C, parts, PARTS=_ADDED_PARTS, WIDTH=_ADDED_COLUMNS, num_warps=4
    )
    return sums


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
        return normalise_rows(x, mask, mean, var, weight, bias.contiguous(), epsilon)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, mask, *statistics = ctx.saved_tensors
        gradients = norm_gradients(
            x,
            grad.contiguous(),
            mask,
            weight,
            tuple(statistics),
            ctx.epsilon,
            of_rows=ctx.needs_input_grad[0],
        )
        return *gradients, None, None, None, None, None


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
    """As :func:`graphcaps.ops.batch_norm.batch_norm.batch_norm`, in float32."""
    x, mask = x.contiguous(), mask_bytes(mask)
    if training:
        mean, var, count = row_statistics(x.detach(), mask, running, momentum)
    else:
        (mean, var), count = running_statistics(running), None
    y: Tensor = _Normalise.apply(x, weight, bias, mask, mean, var, count, epsilon)
    return y


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
    x, mask = x.detach().contiguous(), mask_bytes(mask)
    mean, var = row_statistics(x, mask, running, momentum)[:2] if training else running
    return normalise_rows(x, mask, mean, var, None, None, epsilon)
