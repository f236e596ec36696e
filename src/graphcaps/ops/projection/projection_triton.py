"""A projection of standardised features that reads them where the store has them; no row is copied.

Forward, a program owns a block of slots and adds up rows of the weight, one for each entry of a slot: features
are mostly zeros. For the gradient of the weight rows of x and of dz meet in tiles on the tensor cores.
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
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.types import FeatureRows

__all__ = ["feature_statistics", "project"]


@triton.jit(do_not_specialize=["B", "C"])
def statistics_kernel(  # type: ignore[no-untyped-def]
    sums, squares, node_ptr, graphs, shift, running_mean, running_var, mean_out, rstd_out,
    B, C, momentum, epsilon,
    TRAINING: tl.constexpr, GRAPHS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Mean less the shift, and 1 / σ, of a replica's columns; while training the running averages move."""
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    own = replica * C + columns
    moved = tl.load(shift + columns, mask=wide, other=0.0).to(tl.float64)
    old_mean = tl.load(running_mean + own, mask=wide, other=0.0)
    old_var = tl.load(running_var + own, mask=wide, other=1.0)
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
            place = graph * C + columns[None, :]
            seen = real & wide[None, :]
            total += tl.load(sums + place, mask=seen, other=0.0)
            square += tl.load(squares + place, mask=seen, other=0.0)
        count = tl.sum(tl.sum(nodes, 1), 0).to(tl.float64)
        some = tl.maximum(count, 1.0)
        mean = tl.sum(total, 0) / some
        var = tl.maximum(tl.sum(square, 0) / some - mean * mean, 0.0)
        # A replica without a real row learns nothing from this batch.
        share = tl.where(count > 0, momentum, 0.0)
        unbiased = (var * (count / tl.maximum(count - 1, 1.0))).to(tl.float32)
        tl.store(running_mean + own, old_mean + share * ((mean + moved).to(tl.float32) - old_mean), mask=wide)
        tl.store(running_var + own, old_var + share * (unbiased - old_var), mask=wide)
    else:
        mean = old_mean.to(tl.float64) - moved
        var = old_var.to(tl.float64)
    tl.store(mean_out + own, mean.to(tl.float32), mask=wide)
    tl.store(rstd_out + own, (1.0 / tl.sqrt(var + epsilon)).to(tl.float32), mask=wide)


@triton.jit(do_not_specialize=["C", "units"])
def fold_kernel(  # type: ignore[no-untyped-def]
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
        there = channel < C
        own = replica * C + channel
        by = tl.load(scale + own, mask=there, other=0.0)
        centre = tl.load(mean + own, mask=there, other=0.0)
        place = own[:, None] * D + columns[None, :]
        seen = there[:, None] & wide[None, :]
        rows = tl.load(weight + place, mask=seen, other=0.0) * by[:, None]
        tl.store(folded + place, rows, mask=seen)
        total -= rows * centre[:, None]
    tl.store(offset + replica * D + columns, tl.sum(total, 0), mask=wide)


@triton.jit(do_not_specialize=["V", "C", "units", "blocks"])
def rows_kernel(  # type: ignore[no-untyped-def]
    node, ptr, columns, values, folded, offset, out, V, C, units, blocks,
    UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A block of slots: their entries times rows of ``folded``, one entry of each slot at a time."""
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    rows = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    inside = rows < V
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = (at < D)[None, :]
    own = replica * V + rows
    held = tl.load(node + own, mask=inside, other=-1)
    real = held >= 0
    start = tl.load(ptr + held, mask=real, other=0)
    count = tl.load(ptr + held + 1, mask=real, other=0) - start
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    total += tl.load(offset + replica * D + at, mask=at < D, other=0.0)[None, :]
    origin = folded + replica * C * D
    for k in range(0, tl.max(count, 0)):
        has = k < count
        column = tl.load(columns + start + k, mask=has, other=0)
        value = tl.load(values + start + k, mask=has, other=0.0)
        place = (column * D)[:, None] + at[None, :]
        total += value[:, None] * tl.load(origin + place, mask=has[:, None] & wide, other=0.0)
    place = own[:, None] * D + at[None, :]
    tl.store(out + place, tl.where(real[:, None], total, 0.0), mask=inside[:, None] & wide)


@triton.jit(do_not_specialize=["V", "c_units", "d_units", "parts", "tiles"])
def weights_kernel(  # type: ignore[no-untyped-def]
    x, node, shift, mean, grad, out, V, c_units, d_units, parts, tiles,
    C_UNIT: tl.constexpr, D_UNIT: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """(x − shift − mean)ᵀ dz over a part of a replica's slots; rows of x are read where the store has them.

    Rows are centred before they are rounded to a coarser format: of a column that hardly varies, nothing but
    rounding would be left afterwards.
    """
    C, D = c_units * C_UNIT, d_units * D_UNIT
    part = tl.program_id(2)
    replica = (part // parts).to(tl.int64)
    begin = part % parts * tiles * ROWS
    channels = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    there, wide = channels < C, columns < D
    moved = tl.load(shift + channels, mask=there, other=0.0)[None, :]
    centre = tl.load(mean + replica * C + channels, mask=there, other=0.0)[None, :]
    total = tl.zeros([CHANNELS, WIDTH], tl.float32)
    for tile in range(0, tiles):
        rows = begin + tile * ROWS + tl.arange(0, ROWS)[:, None]
        own = replica * V + rows
        held = tl.load(node + own, mask=rows < V, other=-1)
        seen = (held >= 0) & there[None, :]
        values = tl.load(x + held * C + channels[None, :], mask=seen, other=0.0)
        # dz is 0 at padding anyhow; but without this Triton 3.6 lays x out so that registers double.
        centred = tl.where(seen, values - moved - centre, 0.0)
        dz = tl.load(grad + own * D + columns[None, :], mask=(held >= 0) & wide[None, :], other=0.0)
        total = product(tl.trans(centred), dz, total, PRECISION)
    place = (part.to(tl.int64) * C + channels)[:, None] * D + columns[None, :]
    tl.store(out + place, total, mask=there[:, None] & wide[None, :])


@triton.jit(do_not_specialize=["C", "units", "parts"])
def join_kernel(  # type: ignore[no-untyped-def]
    found, weight, scale, dweight, dscale, C, units, parts,
    UNIT: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds the parts up, in order: to the gradients of the weight and of the scale."""
    D = units * UNIT
    replica = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    there = channels < C
    own = replica * C + channels
    by = tl.load(scale + own, mask=there, other=0.0)
    slope = tl.zeros([CHANNELS], tl.float32)
    for first in range(0, D, WIDTH):
        columns = first + tl.arange(0, WIDTH)
        seen = there[:, None] & (columns < D)[None, :]
        total = tl.zeros([CHANNELS, WIDTH], tl.float32)
        for part in range(0, parts):
            place = ((replica * parts + part) * C + channels)[:, None] * D + columns[None, :]
            total += tl.load(found + place, mask=seen, other=0.0)
        place = own[:, None] * D + columns[None, :]
        slope += tl.sum(total * tl.load(weight + place, mask=seen, other=0.0), 1)
        tl.store(dweight + place, total * by[:, None], mask=seen)
    tl.store(dscale + own, slope, mask=there)


_ROWS, _SIDE = 16, 64
"""Slots of a tile of the gradient, and its columns of x and of dz: what two warps hold without spilling."""

_PROGRAMS = 2048
"""Programs that keep a large GPU busy; the slots of a replica are cut into as many parts as that takes."""


def feature_statistics(
    rows: FeatureRows, running: tuple[Tensor, Tensor], *, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """As :func:`graphcaps.ops.projection.projection.feature_statistics`."""
    table = rows.table
    *lead, B = rows.graphs.shape
    C = table.x.size(-1)
    mean, rstd = (torch.empty_like(running[0]) for _ in range(2))
    statistics_kernel[(torch.Size(lead).numel(), triton.cdiv(C, 32))](
        table.sums, table.squares, table.node_ptr, rows.graphs.contiguous(), table.shift, *running, mean, rstd,
        B, C, momentum, epsilon, TRAINING=training, GRAPHS=32, WIDTH=32, num_warps=4,
    )  # fmt: skip
    return mean, rstd


def project(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    """As :func:`graphcaps.ops.projection.projection.project`, in float32."""
    found: Tensor = _Project.apply(rows, weight, scale, mean)
    return found


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
        fold_kernel[(replicas, triton.cdiv(D, narrow))](
            weight, scale, mean, folded, offset, C, D // unit,
            UNIT=unit, CHANNELS=32, WIDTH=narrow, num_warps=4,
        )  # fmt: skip
        out = weight.new_empty(*node.shape, D)
        tall = min(64, (2048 if unit > 1 else 1024) // width)
        blocks = triton.cdiv(V, tall)
        # Slots of one replica one after another: they read the same rows of the weight.
        rows_kernel[(replicas * blocks, triton.cdiv(D, width))](
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
        # Numbers that are loaded one by one take more registers.
        height, width = _width(C, _SIDE), _width(D, _SIDE if _unit(D) > 1 else _SIDE // 2)
        across = triton.cdiv(C, height), triton.cdiv(D, width)
        tiles, parts = _cut(V, replicas * across[0] * across[1])
        found = weight.new_empty(replicas * parts, C, D)
        # Two warps: with four, tiles of 64 rows would take another path through the hardware.
        weights_kernel[(*across, replicas * parts)](
            table.x, node, table.shift, mean, grad, found, V, C // _unit(C), D // _unit(D), parts, tiles,
            C_UNIT=_unit(C), D_UNIT=_unit(D), PRECISION=ctx.precision,
            ROWS=_ROWS, CHANNELS=height, WIDTH=width, num_warps=2, num_stages=3,
        )  # fmt: skip
        dweight, dscale = torch.empty_like(weight), torch.empty_like(scale)
        join_kernel[(replicas, triton.cdiv(C, 16))](
            found, weight, scale, dweight, dscale, C, D // _unit(D), parts,
            UNIT=_unit(D), CHANNELS=16, WIDTH=_width(D, 128), num_warps=4,
        )  # fmt: skip
        return None, dweight, dscale, None


def _unit(width: int) -> int:
    """Numbers that a load may take at once."""
    return math.gcd(width, 4)


def _width(size: int, most: int) -> int:
    return min(most, max(16, triton.next_power_of_2(size)))


def _cut(V: int, programs: int) -> tuple[int, int]:
    """Tiles of a part and parts of V slots, where each part takes this many programs."""
    blocks = triton.cdiv(V, _ROWS)
    parts = min(blocks, max(1, _PROGRAMS // programs))
    tiles = triton.cdiv(blocks, parts)
    return tiles, triton.cdiv(blocks, tiles)
