"""Projection of standardised features, read from the store's feature table without gathering rows.

Forward: a program computes a block of rows and adds one row of the weight per non-zero entry, because features are
sparse. Backward: the gradient of the weight is a product of tiles of x and of dz on the tensor cores; rows of x are
read from the table. The rows of a replica are split into parts, whose products a last kernel adds in order.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import product
from graphcaps.ops._triton.load_width import load_width
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.types import FeatureRows

__all__ = ["feature_statistics", "project"]

_PROGRAMS = 264
"""Programs of the gradient that a large GPU runs at a time; the rows of a replica are split into parts accordingly."""
_STEPS = 4
"""Least number of steps of a part: below, its product takes longer to add than to compute."""
_COMBINED = 4
"""Rows of the weight of a program that adds the products of the parts."""


@dataclass(frozen=True)
class _Tiles:
    """How programs divide the gradient of a weight ``[C, d]``, which is a sum over rows.

    What is best depends on the GPU; ``dataclasses.replace`` makes another one to compare.

    Args:
        groups (int): Largest number of tiles of a program, side by side: they share what is read of x.
        registers (int): Limit of registers of a thread, so that 65536 / (32 · warps · registers) programs fit.
        channels (int): Rows of a tile, channels of x.
        width (int): Columns of a tile. With 64 and four or more warps, the warp-group instruction (wgmma) would be
            used, which needs transposed operands.
        rows (int): Rows of x and dz of a step. They are loaded ahead of their product.
        stages (int): One more than the number of steps that are loaded ahead.
        warps (int): Warps of a program.
    """

    groups: int = 4
    registers: int = 128
    channels: int = 128
    width: int = 32
    rows: int = 32
    stages: int = 3
    warps: int = 8

    def options(self, C: int, D: int, precision: str) -> dict[str, int]:
        """Launch options for a weight ``[C, d]``: tiles no larger than needed.

        tf32x3 holds each operand twice, bf16 in both precisions, and widths of dz that are not multiples of 16, or of x
        that are odd, are read one number at a time: all need registers, and so have smaller steps, of which more are
        loaded ahead.
        """
        channels, width = _width(C, self.channels), _width(D, self.width)
        groups, rows, stages = min(self.groups, triton.cdiv(D, width)), self.rows, self.stages
        if precision != "tf32" or D % 16 or C % 2:
            rows, stages = max(16, rows // 2), 2 * stages - 1
        if precision == "tf32x3" or C % 2:
            groups = max(1, groups // 2)
        return {
            **{"GROUPS": groups, "CHANNELS": channels, "WIDTH": width, "ROWS": rows},
            **{"num_warps": self.warps, "num_stages": stages, "maxnreg": self.registers},
        }


_TILES = _Tiles()


@triton.jit(do_not_specialize=["B", "C"])
def _statistics_kernel(  # type: ignore[no-untyped-def]
    sums, squares, node_ptr, graphs, shift, running_mean, running_var, mean_out, rstd_out,
    B, C, momentum, epsilon,
    TRAINING: tl.constexpr, GRAPHS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Mean minus the shift, and 1 / σ, of a replica's columns; updates the running averages while training."""
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    offset = replica * C + columns
    shifts = tl.load(shift + columns, mask=wide, other=0.0).to(tl.float64)
    old_mean = tl.load(running_mean + offset, mask=wide, other=0.0)
    old_var = tl.load(running_var + offset, mask=wide, other=1.0)
    if TRAINING:
        total = tl.zeros([GRAPHS, WIDTH], tl.float64)
        square = tl.zeros([GRAPHS, WIDTH], tl.float64)
        nodes = tl.zeros([GRAPHS, 1], tl.int64)
        for first in range(0, B, GRAPHS):
            at = first + tl.arange(0, GRAPHS)[:, None]
            graph = tl.load(graphs + replica * B + at, mask=at < B, other=-1)
            real = graph >= 0
            begin = tl.load(node_ptr + graph, mask=real, other=0)
            nodes += tl.load(node_ptr + graph + 1, mask=real, other=0) - begin
            offsets = graph * C + columns[None, :]
            valid = real & wide[None, :]
            total += tl.load(sums + offsets, mask=valid, other=0.0)
            square += tl.load(squares + offsets, mask=valid, other=0.0)
        count = tl.sum(tl.sum(nodes, 1), 0).to(tl.float64)
        divisor = tl.maximum(count, 1.0)
        mean = tl.sum(total, 0) / divisor
        var = tl.maximum(tl.sum(square, 0) / divisor - mean * mean, 0.0)
        # The running averages of a replica without a real row stay as they are.
        share = tl.where(count > 0, momentum, 0.0)
        unbiased = (var * (count / tl.maximum(count - 1, 1.0))).to(tl.float32)
        tl.store(
            running_mean + offset, old_mean + share * ((mean + shifts).to(tl.float32) - old_mean), mask=wide
        )
        tl.store(running_var + offset, old_var + share * (unbiased - old_var), mask=wide)
    else:
        mean = old_mean.to(tl.float64) - shifts
        var = old_var.to(tl.float64)
    tl.store(mean_out + offset, mean.to(tl.float32), mask=wide)
    tl.store(rstd_out + offset, (1.0 / tl.sqrt(var + epsilon)).to(tl.float32), mask=wide)


@triton.jit(do_not_specialize=["C", "units"])
def _fold_kernel(  # type: ignore[no-untyped-def]
    weight, scale, mean, folded, offset, C, units,
    UNIT: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """``folded`` = diag(scale) W and ``offset`` = −mean · ``folded``, of a replica and a block of columns."""
    D = units * UNIT
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < D
    total = tl.zeros([CHANNELS, WIDTH], tl.float32)
    for first in range(0, C, CHANNELS):
        channel = first + tl.arange(0, CHANNELS)
        is_channel = channel < C
        rows_at = replica * C + channel
        scales = tl.load(scale + rows_at, mask=is_channel, other=0.0)
        centre = tl.load(mean + rows_at, mask=is_channel, other=0.0)
        offsets = rows_at[:, None] * D + columns[None, :]
        valid = is_channel[:, None] & wide[None, :]
        rows = tl.load(weight + offsets, mask=valid, other=0.0) * scales[:, None]
        tl.store(folded + offsets, rows, mask=valid)
        total -= rows * centre[:, None]
    tl.store(offset + replica * D + columns, tl.sum(total, 0), mask=wide)


@triton.jit(do_not_specialize=["V", "C", "units", "blocks"])
def _rows_kernel(  # type: ignore[no-untyped-def]
    node, ptr, columns, values, folded, offset, out, V, C, units, blocks,
    UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A block of rows: their entries times rows of ``folded``, one entry of each row at a time."""
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    rows = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    inside = rows < V
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = (at < D)[None, :]
    rows_at = replica * V + rows
    store_node = tl.load(node + rows_at, mask=inside, other=-1)
    real = store_node >= 0
    start = tl.load(ptr + store_node, mask=real, other=0)
    count = tl.load(ptr + store_node + 1, mask=real, other=0) - start
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    total += tl.load(offset + replica * D + at, mask=at < D, other=0.0)[None, :]
    origin = folded + replica * C * D
    for k in range(0, tl.max(count, 0)):
        has = k < count
        column = tl.load(columns + start + k, mask=has, other=0)
        value = tl.load(values + start + k, mask=has, other=0.0)
        offsets = (column * D)[:, None] + at[None, :]
        total += value[:, None] * tl.load(origin + offsets, mask=has[:, None] & wide, other=0.0)
    offsets = rows_at[:, None] * D + at[None, :]
    tl.store(out + offsets, tl.where(real[:, None], total, 0.0), mask=inside[:, None] & wide)


@triton.jit(do_not_specialize=["V", "c_units", "d_units", "parts", "steps"])
def _weights_kernel(  # type: ignore[no-untyped-def]
    x, node, shift, mean, grad, out, V, c_units, d_units, parts, steps,
    C_UNIT: tl.constexpr, D_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    GROUPS: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """(x − shift − mean)ᵀ dz over a part of a replica's rows; rows of x are read from the store.

    Computed as its transpose, so that warps divide the channels and none centres a number that another one centres.
    Rows are centred before they are rounded to a lower precision: after rounding, a column with a small variance
    would be lost.
    """
    C, D = c_units * C_UNIT, d_units * D_UNIT
    part = tl.program_id(2)
    replica = (part // parts).to(tl.int64)
    begin = part % parts * steps * ROWS
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    left = tl.program_id(1) * (GROUPS * WIDTH)
    is_channel = (channels < C)[None, :]
    shifts = tl.load(shift + channels, mask=channels < C, other=0.0)[None, :]
    centre = tl.load(mean + replica * C + channels, mask=channels < C, other=0.0)[None, :]
    total = ()
    for _ in tl.static_range(GROUPS):
        total += (tl.zeros([WIDTH, CHANNELS], tl.float32),)
    node += replica * V + begin
    grad += (replica * V + begin) * D
    count = V - begin
    rows = tl.arange(0, ROWS)  # offsets within a part fit into 32 bits
    next_node = tl.load(node + rows, mask=rows < count, other=-1).to(tl.int32)
    for _ in range(0, steps):
        # Read a step ahead by hand: the compiler would load only half as many steps of x and dz ahead.
        store_node = next_node
        next_node = tl.load(node + rows + ROWS, mask=rows + ROWS < count, other=-1).to(tl.int32)
        real = store_node >= 0
        x_of = (x + store_node.to(tl.int64) * C)[:, None]
        values = tl.load(x_of + channels[None, :], mask=real[:, None] & is_channel, other=0.0)
        centred = values - shifts - centre  # not 0 at padding, but dz is
        sums = ()
        for i in tl.static_range(GROUPS):
            # Loaded as [WIDTH, ROWS]: what tl.trans changes is copied to shared memory one number at a time.
            columns = left + i * WIDTH + tl.arange(0, WIDTH)
            valid = (columns < D)[:, None] & real[None, :]
            dz = tl.load(grad + (columns[:, None] + rows[None, :] * D), mask=valid, other=0.0)
            sums += (product(dz, centred, total[i], PRECISION),)
        total = sums
        rows += ROWS
    for i in tl.static_range(GROUPS):
        columns = left + i * WIDTH + tl.arange(0, WIDTH)
        offsets = (part.to(tl.int64) * C + channels)[None, :] * D + columns[:, None]
        tl.store(out + offsets, total[i], mask=is_channel & (columns < D)[:, None])


@triton.jit(do_not_specialize=["C", "units", "parts"])
def _combine_kernel(  # type: ignore[no-untyped-def]
    products, weight, scale, dweight, dscale, C, units, parts,
    UNIT: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds the parts in order and computes the gradients of the weight and of the scale."""
    D = units * UNIT
    replica = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    is_channel = channels < C
    offset = replica * C + channels
    scales = tl.load(scale + offset, mask=is_channel, other=0.0)
    dscale_sum = tl.zeros([CHANNELS], tl.float32)
    for first in range(0, D, WIDTH):
        columns = first + tl.arange(0, WIDTH)
        valid = is_channel[:, None] & (columns < D)[None, :]
        total = tl.zeros([CHANNELS, WIDTH], tl.float32)
        for part in tl.range(0, parts, loop_unroll_factor=8):
            offsets = ((replica * parts + part) * C + channels)[:, None] * D + columns[None, :]
            total += tl.load(products + offsets, mask=valid, other=0.0)
        offsets = offset[:, None] * D + columns[None, :]
        dscale_sum += tl.sum(total * tl.load(weight + offsets, mask=valid, other=0.0), 1)
        tl.store(dweight + offsets, total * scales[:, None], mask=valid)
    tl.store(dscale + offset, dscale_sum, mask=is_channel)


def _width(size: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(size)))


def _split_rows(V: int, rows: int, programs: int) -> tuple[int, int]:
    """Number of steps of a part and number of parts of V rows, if each part takes ``programs`` programs."""
    count = triton.cdiv(V, rows)
    parts = max(1, min(triton.cdiv(count, _STEPS), _PROGRAMS // max(1, programs)))
    steps = max(1, triton.cdiv(count, parts))
    return steps, max(1, triton.cdiv(count, steps))


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
        weight, scale, mean = weight.contiguous(), scale.contiguous(), mean.contiguous()
        ctx.rows, ctx.precision = rows, dot_precision()
        ctx.save_for_backward(weight, scale, mean)
        table, node = rows.table, rows.node.contiguous()
        V, (C, D) = node.size(-1), weight.shape[-2:]
        replicas = weight.numel() // (C * D)
        unit, width = load_width(D), _width(D, 128)
        folded, offset = torch.empty_like(weight), weight.new_empty(*weight.shape[:-2], D)
        narrow = min(width, 32)
        _fold_kernel[(replicas, triton.cdiv(D, narrow))](
            weight, scale, mean, folded, offset, C, D // unit,
            UNIT=unit, CHANNELS=32, WIDTH=narrow, num_warps=4,
        )  # fmt: skip
        out = weight.new_empty(*node.shape, D)
        tall = min(64, (2048 if unit > 1 else 1024) // width)
        blocks = triton.cdiv(V, tall)
        # Rows of a replica are computed one after another, because they read the same rows of the weight.
        _rows_kernel[(replicas * blocks, triton.cdiv(D, width))](
            node, table.ptr, table.columns, table.values, folded, offset, out, V, C, D // unit, blocks,
            UNIT=unit, ROWS=tall, WIDTH=width, num_warps=4,
        )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, scale, mean = ctx.saved_tensors
        table, node, grad = ctx.rows.table, ctx.rows.node.contiguous(), grad.contiguous()
        V, (C, D) = node.size(-1), weight.shape[-2:]
        replicas = weight.numel() // (C * D)
        options = _TILES.options(C, D, ctx.precision)
        across = triton.cdiv(C, options["CHANNELS"]), triton.cdiv(D, options["GROUPS"] * options["WIDTH"])
        steps, parts = _split_rows(V, options["ROWS"], replicas * across[0] * across[1])
        products = weight.new_empty(replicas * parts, C, D)
        _weights_kernel[(*across, replicas * parts)](
            table.x, node, table.shift, mean, grad, products, V, C // load_width(C), D // load_width(D), parts, steps,
            C_UNIT=load_width(C), D_UNIT=load_width(D), PRECISION=ctx.precision, **options,
        )  # fmt: skip
        dweight, dscale = torch.empty_like(weight), torch.empty_like(scale)
        _combine_kernel[(replicas, triton.cdiv(C, _COMBINED))](
            products, weight, scale, dweight, dscale, C, D // load_width(D), parts,
            UNIT=load_width(D), CHANNELS=_COMBINED, WIDTH=_width(D, 128), num_warps=4,
        )  # fmt: skip
        return None, dweight, dscale, None


def feature_statistics(
    rows: FeatureRows, running: tuple[Tensor, Tensor], *, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """As :func:`graphcaps.ops.projection.projection.feature_statistics`."""
    table = rows.table
    *lead, B = rows.graphs.shape
    C = table.x.size(-1)
    mean, rstd = (torch.empty_like(running[0]) for _ in range(2))
    _statistics_kernel[(torch.Size(lead).numel(), triton.cdiv(C, 32))](
        table.sums, table.squares, table.node_ptr, rows.graphs.contiguous(), table.shift, *running, mean, rstd,
        B, C, momentum, epsilon, TRAINING=training, GRAPHS=32, WIDTH=32, num_warps=4,
    )  # fmt: skip
    return mean, rstd


def project(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    """As :func:`graphcaps.ops.projection.projection.project`, in float32."""
    z: Tensor = _Project.apply(rows, weight, scale, mean)
    return z
