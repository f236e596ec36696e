"""Projection of standardised features, read from the store's feature table without gathering rows.

Forward: a program computes a block of rows and adds one row of the weight per non-zero entry, because features are
sparse. Backward: the gradient of the weight is a product of tiles of x and of dz on the tensor cores; rows of x are
read from the table. The rows of a replica are split into parts, whose products a last kernel adds in order.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import product
from graphcaps.ops._triton.kernel import await_inputs, kernel
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.types import FeatureRows

__all__ = ["feature_statistics", "project"]

_ROWS, _SIDE = 16, 64
"""Rows of a tile of the gradient, and its columns of x and of dz: what two warps hold without spilling."""
_PROGRAMS = 2048
"""Programs that occupy a large GPU; the rows of a replica are split into parts accordingly."""


@kernel(do_not_specialize=["B", "C"])
def _statistics_kernel(  # type: ignore[no-untyped-def]
    sums, squares, node_ptr, graphs, shift, running_mean, running_var, mean_out, rstd_out,
    B, C, momentum, epsilon,
    TRAINING: tl.constexpr, GRAPHS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Mean minus the shift, and 1 / σ, of a replica's columns; updates the running averages while training."""
    await_inputs()
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


@kernel(do_not_specialize=["C", "units"])
def _fold_kernel(  # type: ignore[no-untyped-def]
    weight, scale, mean, folded, offset, C, units,
    UNIT: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """``folded`` = diag(scale) W and ``offset`` = −mean · ``folded``, of a replica and a block of columns."""
    await_inputs()
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


@kernel(do_not_specialize=["V", "C", "units", "blocks"])
def _rows_kernel(  # type: ignore[no-untyped-def]
    node, ptr, columns, values, folded, offset, out, V, C, units, blocks,
    UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A block of rows: their entries times rows of ``folded``, one entry of each row at a time."""
    await_inputs()
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


@kernel(do_not_specialize=["V", "c_units", "d_units", "parts", "tiles"])
def _weights_kernel(  # type: ignore[no-untyped-def]
    x, node, shift, mean, grad, out, V, c_units, d_units, parts, tiles,
    C_UNIT: tl.constexpr, D_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """(x − shift − mean)ᵀ dz over a part of a replica's rows; rows of x are read from the store.

    Rows are centred before they are rounded to a lower precision: after rounding, a column with a small variance
    would be lost.
    """
    await_inputs()
    C, D = c_units * C_UNIT, d_units * D_UNIT
    part = tl.program_id(2)
    replica = (part // parts).to(tl.int64)
    begin = part % parts * tiles * ROWS
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    is_channel, wide = channels < C, columns < D
    shifts = tl.load(shift + channels, mask=is_channel, other=0.0)[None, :]
    centre = tl.load(mean + replica * C + channels, mask=is_channel, other=0.0)[None, :]
    total = tl.zeros([CHANNELS, WIDTH], tl.float32)
    for tile in range(0, tiles):
        rows = begin + tile * ROWS + tl.arange(0, ROWS)[:, None]
        offset = replica * V + rows
        store_node = tl.load(node + offset, mask=rows < V, other=-1)
        valid = (store_node >= 0) & is_channel[None, :]
        values = tl.load(x + store_node * C + channels[None, :], mask=valid, other=0.0)
        # dz is 0 at padding, but without this line Triton 3.6 chooses a layout that doubles the registers.
        centred = tl.where(valid, values - shifts - centre, 0.0)
        dz = tl.load(grad + offset * D + columns[None, :], mask=(store_node >= 0) & wide[None, :], other=0.0)
        total = product(tl.trans(centred), dz, total, PRECISION)
    offsets = (part.to(tl.int64) * C + channels)[:, None] * D + columns[None, :]
    tl.store(out + offsets, total, mask=is_channel[:, None] & wide[None, :])


@kernel(do_not_specialize=["C", "units", "parts"])
def _combine_kernel(  # type: ignore[no-untyped-def]
    products, weight, scale, dweight, dscale, C, units, parts,
    UNIT: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds the parts in order and computes the gradients of the weight and of the scale."""
    await_inputs()
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
        for part in range(0, parts):
            offsets = ((replica * parts + part) * C + channels)[:, None] * D + columns[None, :]
            total += tl.load(products + offsets, mask=valid, other=0.0)
        offsets = offset[:, None] * D + columns[None, :]
        dscale_sum += tl.sum(total * tl.load(weight + offsets, mask=valid, other=0.0), 1)
        tl.store(dweight + offsets, total * scales[:, None], mask=valid)
    tl.store(dscale + offset, dscale_sum, mask=is_channel)


def _unit(width: int) -> int:
    """Width of a vectorised load."""
    return math.gcd(width, 4)


def _width(size: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(size)))


def _split_rows(V: int, programs: int) -> tuple[int, int]:
    """Number of tiles of a part and number of parts of V rows, if each part takes ``programs`` programs."""
    blocks = triton.cdiv(V, _ROWS)
    parts = min(blocks, max(1, _PROGRAMS // programs))
    tiles = triton.cdiv(blocks, parts)
    return tiles, triton.cdiv(blocks, tiles)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
        weight, scale, mean = weight.contiguous(), scale.contiguous(), mean.contiguous()
        ctx.rows, ctx.precision = rows, dot_precision()
        ctx.save_for_backward(weight, scale, mean)
        table, node = rows.table, rows.node.contiguous()
        V, (C, D) = node.size(-1), weight.shape[-2:]
        replicas = weight.numel() // (C * D)
        unit, width = _unit(D), _width(D, 128)
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
        # Loads that are not vectorised need more registers.
        height, width = _width(C, _SIDE), _width(D, _SIDE if _unit(D) > 1 else _SIDE // 2)
        across = triton.cdiv(C, height), triton.cdiv(D, width)
        tiles, parts = _split_rows(V, replicas * across[0] * across[1])
        products = weight.new_empty(replicas * parts, C, D)
        # Two warps: with four, tiles of 64 rows would use the warp-group instruction (wgmma).
        _weights_kernel[(*across, replicas * parts)](
            table.x, node, table.shift, mean, grad, products, V, C // _unit(C), D // _unit(D), parts, tiles,
            C_UNIT=_unit(C), D_UNIT=_unit(D), PRECISION=ctx.precision,
            ROWS=_ROWS, CHANNELS=height, WIDTH=width, num_warps=2, num_stages=3,
        )  # fmt: skip
        dweight, dscale = torch.empty_like(weight), torch.empty_like(scale)
        _combine_kernel[(replicas, triton.cdiv(C, 16))](
            products, weight, scale, dweight, dscale, C, D // _unit(D), parts,
            UNIT=_unit(D), CHANNELS=16, WIDTH=_width(D, 128), num_warps=4,
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
