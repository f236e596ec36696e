"""Projection of standardised features, read from the store's feature table without gathering rows.

Forward: a program computes a block of rows. Where features are sparse, it adds one row of the weight per non-zero
entry; otherwise rows of x are read from the table, and centred, for a product of tiles on the tensor cores. Backward:
the gradient of the weight is such a product of x and dz. The rows of a replica are split into parts, whose products a
last kernel adds in order.

:func:`projected_capsules` computes ReLU, dropout and squash of the rows in the same pass, with γ, β and the statistics
of a batch normalisation folded into the weight.
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

from graphcaps.ops._triton.arithmetic import product, tile_width
from graphcaps.ops._triton.load_width import load_width
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops._triton.row_products import split_rows
from graphcaps.ops.activation.activation_triton import (
    activation_gradients,
    dropout_factors,
    dropout_parameters,
    is_per_replica,
    squash_rows,
    threshold_and_scale,
)
from graphcaps.ops.activation.hashed_dropout import HashedDropout
from graphcaps.ops.batch_norm.batch_norm_triton import mask_bytes
from graphcaps.types import FeatureRows

__all__ = [
    "CapsuleOptions",
    "Capsules",
    "combine_products",
    "feature_statistics",
    "fold_projection",
    "project",
    "projected_capsules",
    "weight_products",
    "write_capsules",
]

_GRAPHS, _COLUMNS = 128, 8
"""Graphs and columns of a step of the statistics: its steps wait for each other, so they are few."""
_SPARSE_NUMBERS, _DENSE_ROWS = 2048, 32
"""Numbers of a program of the projection if features are sparse, and its rows if they are not."""
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
    weight, bias, gamma, beta, mean, rstd, folded, offset, C, units,
    UNIT: tl.constexpr, NORMED: tl.constexpr, CENTRED: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """``folded`` = diag(γ) W and its part of ``offset``, −mean · ``folded``, of a replica and a block of columns.

    ``NORMED``: diag(γ / σ) in place of diag(γ), and β W + e in the offset. ``CENTRED``: rows are centred when they are
    read, and the mean is not in the offset.
    """
    D = units * UNIT
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < D
    total = tl.zeros([CHANNELS, WIDTH], tl.float32)
    for first in range(0, C, CHANNELS):
        channel = first + tl.arange(0, CHANNELS)
        is_channel = channel < C
        rows_at = replica * C + channel
        scale = tl.load(gamma + rows_at, mask=is_channel, other=0.0)
        offsets = rows_at[:, None] * D + columns[None, :]
        valid = is_channel[:, None] & wide[None, :]
        rows = tl.load(weight + offsets, mask=valid, other=0.0)
        if NORMED:
            scale *= tl.load(rstd + rows_at, mask=is_channel, other=0.0)
            total += rows * tl.load(beta + rows_at, mask=is_channel, other=0.0)[:, None]
        rows *= scale[:, None]
        tl.store(folded + offsets, rows, mask=valid)
        if not CENTRED:
            total -= rows * tl.load(mean + rows_at, mask=is_channel, other=0.0)[:, None]
    shift = tl.sum(total, 0)
    if NORMED:
        shift += tl.load(bias + replica * D + columns, mask=wide, other=0.0)
    tl.store(offset + replica * D + columns, shift, mask=wide)


@triton.jit
def _store_capsules(  # type: ignore[no-untyped-def]
    u, squares, z, offset, keys, threshold, scale, replica, first, V, real, inside, D, epsilon,
    KEEP: tl.constexpr, EACH: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Stores squash(h) with h = dropout(ReLU(z + offset)) of the rows from ``first`` on; 0 where they are not real.

    ``KEEP``: also the squared length of h, with which the gradient needs no z.
    """
    columns = tl.arange(0, WIDTH)
    wide = columns < D
    shift = tl.load(offset + replica * D + columns, mask=wide, other=0.0)
    local = tl.arange(0, ROWS)[:, None] * D + columns[None, :]
    draws = dropout_parameters(keys, replica, threshold, scale, EACH)
    factors = dropout_factors(first * D + local, draws, real[:, None] & wide[None, :])
    value = z + shift[None, :]
    h = tl.where(value > 0, value, 0.0) * factors
    origin = replica * V + first
    tl.store(u + origin * D + local, squash_rows(h, epsilon), mask=inside[:, None] & wide[None, :])
    if KEEP:
        tl.store(squares + origin + tl.arange(0, ROWS), tl.sum(h * h, 1), mask=inside)


@triton.jit
def _entry(columns, values, start, count, k):  # type: ignore[no-untyped-def]
    """Column and value of entry k of each row; 0 if it has none."""
    has = k < count
    return tl.load(columns + start + k, mask=has, other=0), tl.load(values + start + k, mask=has, other=0.0)


@triton.jit(do_not_specialize=["V", "C", "units", "blocks", "threshold"])
def _rows_kernel(  # type: ignore[no-untyped-def]
    node, ptr, columns, values, folded, offset, out, keys, u, squares, V, C, units, blocks, threshold, scale, epsilon,
    UNIT: tl.constexpr, Z: tl.constexpr, CAPSULES: tl.constexpr, SQUARES: tl.constexpr, EACH: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """A block of rows: their entries times rows of ``folded``, one entry of each row at a time.

    ``CAPSULES``: their capsules are stored, and the offset is not added to what is stored if ``Z``.
    """
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * ROWS
    rows = first + tl.arange(0, ROWS)
    inside = rows < V
    at = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = (at < D)[None, :]
    rows_at = replica * V + rows
    store_node = tl.load(node + rows_at, mask=inside, other=-1)
    real = store_node >= 0
    start = tl.load(ptr + store_node, mask=real, other=0)
    count = tl.load(ptr + store_node + 1, mask=real, other=0) - start
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    if not CAPSULES:
        total += tl.load(offset + replica * D + at, mask=at < D, other=0.0)[None, :]
    origin = folded + replica * C * D
    # Two entries of each row at a time, and the next two ahead: rows of the weight wait for their columns.
    column, value = _entry(columns, values, start, count, 0)
    column_after, value_after = _entry(columns, values, start, count, 1)
    for k in range(0, tl.max(count, 0), 2):
        next_column, next_value = _entry(columns, values, start, count, k + 2)
        next_column_after, next_value_after = _entry(columns, values, start, count, k + 3)
        one = tl.load(
            origin + ((column * D)[:, None] + at[None, :]), mask=(k < count)[:, None] & wide, other=0.0
        )
        two = tl.load(
            origin + ((column_after * D)[:, None] + at[None, :]),
            mask=(k + 1 < count)[:, None] & wide,
            other=0.0,
        )
        total += value[:, None] * one
        total += value_after[:, None] * two
        column, value, column_after, value_after = (
            next_column,
            next_value,
            next_column_after,
            next_value_after,
        )
    offsets = rows_at[:, None] * D + at[None, :]
    if Z:
        tl.store(out + offsets, tl.where(real[:, None], total, 0.0), mask=inside[:, None] & wide)
    if CAPSULES:
        _store_capsules(
            u, squares, total, offset, keys, threshold, scale, replica, first, V, real, inside, D, epsilon,
            SQUARES, EACH, ROWS, WIDTH,
        )  # fmt: skip


@triton.jit(do_not_specialize=["V", "c_units", "d_units", "blocks", "threshold"])
def _dense_rows_kernel(  # type: ignore[no-untyped-def]
    x, node, shift, mean, folded, offset, out, keys, u, squares, V, c_units, d_units, blocks, threshold, scale, epsilon,
    C_UNIT: tl.constexpr, D_UNIT: tl.constexpr, PRECISION: tl.constexpr, Z: tl.constexpr, SQUARES: tl.constexpr,
    EACH: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The same for features that are not sparse; rows are centred before they are rounded to a lower precision."""
    C, D = c_units * C_UNIT, d_units * D_UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    first = tl.program_id(0) % blocks * ROWS
    rows = first + tl.arange(0, ROWS)
    inside = rows < V
    columns = tl.arange(0, WIDTH)
    wide = columns < D
    store_node = tl.load(node + replica * V + rows, mask=inside, other=-1)
    real = store_node >= 0
    x_of = (x + store_node.to(tl.int64) * C)[:, None]
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for begin in range(0, C, CHANNELS):
        channels = begin + tl.arange(0, CHANNELS)
        is_channel = channels < C
        centre = tl.load(shift + channels, mask=is_channel, other=0.0)
        centre += tl.load(mean + replica * C + channels, mask=is_channel, other=0.0)
        values = tl.load(x_of + channels[None, :], mask=real[:, None] & is_channel[None, :], other=0.0)
        offsets = (replica * C + channels)[:, None] * D + columns[None, :]
        weights = tl.load(folded + offsets, mask=is_channel[:, None] & wide[None, :], other=0.0)
        total = product(values - centre[None, :], weights, total, PRECISION)
    if Z:
        local = tl.arange(0, ROWS)[:, None] * D + columns[None, :]
        stored = inside[:, None] & wide[None, :]
        tl.store(out + (replica * V + first) * D + local, tl.where(real[:, None], total, 0.0), mask=stored)
    _store_capsules(
        u, squares, total, offset, keys, threshold, scale, replica, first, V, real, inside, D, epsilon,
        SQUARES, EACH, ROWS, WIDTH,
    )  # fmt: skip


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
    products, weight, gamma, beta, rstd, doffset, dweight, dgamma, dbeta, C, units, parts,
    UNIT: tl.constexpr, NORMED: tl.constexpr, CHANNELS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Adds the parts in order and computes the gradients of the weight and of γ; ``NORMED``: and of β."""
    D = units * UNIT
    replica = tl.program_id(0).to(tl.int64)
    channels = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    is_channel = channels < C
    offset = replica * C + channels
    scale = tl.load(gamma + offset, mask=is_channel, other=0.0)
    dgamma_sum = tl.zeros([CHANNELS], tl.float32)
    dbeta_sum = tl.zeros([CHANNELS], tl.float32)
    if NORMED:
        inverse = tl.load(rstd + offset, mask=is_channel, other=0.0)
        scale *= inverse
        shift = tl.load(beta + offset, mask=is_channel, other=0.0)
    for first in range(0, D, WIDTH):
        columns = first + tl.arange(0, WIDTH)
        valid = is_channel[:, None] & (columns < D)[None, :]
        total = tl.zeros([CHANNELS, WIDTH], tl.float32)
        for part in tl.range(0, parts, loop_unroll_factor=8):
            offsets = ((replica * parts + part) * C + channels)[:, None] * D + columns[None, :]
            total += tl.load(products + offsets, mask=valid, other=0.0)
        offsets = offset[:, None] * D + columns[None, :]
        rows = tl.load(weight + offsets, mask=valid, other=0.0)
        dgamma_sum += tl.sum(total * rows, 1)
        total *= scale[:, None]
        if NORMED:
            row = tl.load(doffset + replica * D + columns, mask=columns < D, other=0.0)
            dbeta_sum += tl.sum(rows * row[None, :], 1)
            total += shift[:, None] * row[None, :]
        tl.store(dweight + offsets, total, mask=valid)
    if NORMED:
        dgamma_sum *= inverse
        tl.store(dbeta + offset, dbeta_sum, mask=is_channel)
    tl.store(dgamma + offset, dgamma_sum, mask=is_channel)


def _width(size: int, most: int) -> int:
    return min(most, tile_width(size))


@dataclass(frozen=True)
class CapsuleOptions:
    """What follows the projection: dropout, and ε of the squash."""

    dropout: HashedDropout | None = None
    epsilon: float = 0.0

    def keys(self, unused: Tensor) -> Tensor:
        """Keys of the dropout, or a tensor that is not read."""
        return unused.view(torch.int32) if self.dropout is None else self.dropout.keys.contiguous()

    @property
    def each(self) -> bool:
        return is_per_replica(self.dropout)

    @property
    def numbers(self) -> tuple[int | Tensor, float | Tensor, float]:
        """Threshold and scale of the dropout, and ε."""
        return *threshold_and_scale(self.dropout), self.epsilon


def _fold(
    weight: Tensor, scale: Tensor, mean: Tensor, norm: tuple[Tensor, Tensor, Tensor] | None, *, centred: bool
) -> tuple[Tensor, Tensor]:
    """The folded weight ``[*lead, C, d]`` and its offset ``[*lead, d]``; ``norm``: the bias e, β and 1 / σ."""
    C, D = weight.shape[-2:]
    replicas, unit, width = weight.numel() // (C * D), load_width(D), 16
    folded, offset = torch.empty_like(weight), weight.new_empty(*weight.shape[:-2], D)
    bias, beta, rstd = (mean,) * 3 if norm is None else norm  # not read without a norm
    _fold_kernel[(replicas, triton.cdiv(D, width))](
        weight, bias, scale, beta, mean, rstd, folded, offset, C, D // unit,
        UNIT=unit, NORMED=norm is not None, CENTRED=centred, CHANNELS=128, WIDTH=width, num_warps=4,
    )  # fmt: skip
    return folded, offset


def _project_entries(
    rows: FeatureRows, folded: Tensor, offset: Tensor, out: Capsules, options: CapsuleOptions
) -> None:
    """Rows of the projection from their entries."""
    table, node, (C, D) = rows.table, rows.node.contiguous(), folded.shape[-2:]
    V, replicas = node.size(-1), folded.numel() // (C * D)
    written = out.pointers(folded)
    unit, width = load_width(D), _width(D, 128)
    tall = min(64, _SPARSE_NUMBERS // width // (1 if unit > 1 else 2))
    blocks = triton.cdiv(V, tall)
    # Rows of a replica are computed one after another, because they read the same rows of the weight.
    _rows_kernel[(replicas * blocks, triton.cdiv(D, width))](
        node, table.ptr, table.columns, table.values, folded, offset, written["out"], options.keys(node),
        written["u"], written["squares"], V, C, D // unit, blocks, *options.numbers,
        UNIT=unit, CAPSULES=out.u is not None, **out.switches, EACH=options.each, ROWS=tall, WIDTH=width, num_warps=4,
    )  # fmt: skip


def _project_rows(
    rows: FeatureRows,
    folded: Tensor,
    offset: Tensor,
    mean: Tensor,
    out: Capsules,
    options: CapsuleOptions,
    precision: str,
) -> None:
    """The same from the rows of a table that is not sparse; in bf16, signs before the ReLU would often be wrong."""
    table, node, (C, D) = rows.table, rows.node.contiguous(), folded.shape[-2:]
    V, replicas = node.size(-1), folded.numel() // (C * D)
    written, width = out.pointers(folded), _width(D, 128)
    blocks = triton.cdiv(V, _DENSE_ROWS)
    _dense_rows_kernel[(replicas * blocks,)](
        table.x, node, table.shift, mean, folded, offset, written["out"], options.keys(node), written["u"],
        written["squares"], V, C // load_width(C), D // load_width(D), blocks, *options.numbers,
        C_UNIT=load_width(C), D_UNIT=load_width(D), PRECISION="tf32" if precision == "bfloat16" else precision,
        **out.switches, EACH=options.each, ROWS=_DENSE_ROWS, CHANNELS=32, WIDTH=width, num_warps=4, num_stages=3,
    )  # fmt: skip


def weight_products(rows: FeatureRows, mean: Tensor, grad: Tensor, weight: Tensor, precision: str) -> Tensor:
    """(x − μ)ᵀ dz over parts of the rows, ``[replicas, parts, C, d]``."""
    table, node = rows.table, rows.node.contiguous()
    V, (C, D) = node.size(-1), weight.shape[-2:]
    replicas = weight.numel() // (C * D)
    options = _TILES.options(C, D, precision)
    across = triton.cdiv(C, options["CHANNELS"]), triton.cdiv(D, options["GROUPS"] * options["WIDTH"])
    steps, parts = split_rows(V, options["ROWS"], replicas * across[0] * across[1], D)
    products = weight.new_empty(replicas, parts, C, D)
    _weights_kernel[(*across, replicas * parts)](
        table.x, node, table.shift, mean, grad, products, V, C // load_width(C), D // load_width(D), parts, steps,
        C_UNIT=load_width(C), D_UNIT=load_width(D), PRECISION=precision, **options,
    )  # fmt: skip
    return products


def combine_products(
    products: Tensor, weight: Tensor, scale: Tensor, norm: tuple[Tensor, Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of W, γ and β; ``norm``: β, 1 / σ and the gradient of the offset. Without it β has no gradient."""
    C, D = weight.shape[-2:]
    dweight, dgamma = torch.empty_like(weight), torch.empty_like(scale)
    dbeta = dgamma if norm is None else torch.empty_like(scale)
    beta, rstd, doffset = (scale,) * 3 if norm is None else norm  # not read without a norm
    _combine_kernel[(products.size(0), triton.cdiv(C, _COMBINED))](
        products, weight, scale, beta, rstd, doffset, dweight, dgamma, dbeta, C, D // load_width(D), products.size(1),
        UNIT=load_width(D), NORMED=norm is not None, CHANNELS=_COMBINED, WIDTH=_width(D, 128), num_warps=4,
    )  # fmt: skip
    return dweight, dgamma, dbeta


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
        weight, scale, mean = weight.contiguous(), scale.contiguous(), mean.contiguous()
        ctx.rows, ctx.precision = rows, dot_precision()
        ctx.save_for_backward(weight, scale, mean)
        folded, offset = _fold(weight, scale, mean, None, centred=False)
        z = weight.new_empty(*rows.node.shape, weight.size(-1))
        _project_entries(rows, folded, offset, Capsules(z=z), CapsuleOptions())
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, scale, mean = ctx.saved_tensors
        products = weight_products(ctx.rows, mean, grad.contiguous(), weight, ctx.precision)
        dweight, dscale, _ = combine_products(products, weight, scale, None)
        return None, dweight, dscale, None


@dataclass(frozen=True)
class Capsules:
    """Where a projection writes its results; what is ``None`` is not written.

    Args:
        u (Tensor, optional): Capsules, ``[*lead, V, d]``.
        z (Tensor, optional): The projection before ReLU, without its offset if there is ``u``, ``[*lead, V, d]``.
        squares (Tensor, optional): Squared lengths before the squash, ``[*lead, V]``.
    """

    u: Tensor | None = None
    z: Tensor | None = None
    squares: Tensor | None = None

    def pointers(self, unused: Tensor) -> dict[str, Tensor]:
        """Arguments of the kernels; ``unused`` replaces tensors that are not written."""
        tensors = {"out": self.z, "u": self.u, "squares": self.squares}
        return {name: unused if tensor is None else tensor for name, tensor in tensors.items()}

    @property
    def switches(self) -> dict[str, bool]:
        """Compile-time options of the kernels."""
        return {"Z": self.z is not None, "SQUARES": self.squares is not None}


def fold_projection(
    rows: FeatureRows,
    weight: Tensor,
    bias: Tensor,
    norm: tuple[Tensor, Tensor],
    statistics: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """The projection with the normalisation folded in: weight ``[*lead, C, d]`` and offset ``[*lead, d]``.

    All tensors are contiguous; arguments as in :func:`projected_capsules`.
    """
    (gamma, beta), (mean, rstd) = norm, statistics
    return _fold(weight, gamma, mean, (bias, beta, rstd), centred=not rows.table.sparse)


def write_capsules(
    rows: FeatureRows,
    folded: tuple[Tensor, Tensor],
    mean: Tensor,
    out: Capsules,
    options: CapsuleOptions,
    precision: str,
) -> None:
    """Writes the primary capsules of a projection from :func:`fold_projection`."""
    if rows.table.sparse:
        _project_entries(rows, *folded, out, options)
    else:
        _project_rows(rows, *folded, mean, out, options, precision)


class _ProjectedCapsules(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: FeatureRows,
        weight: Tensor,
        bias: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        rstd: Tensor,
        mask: Tensor | None,
        options: CapsuleOptions,
        need_grad: bool,
    ) -> Tensor:
        weight, bias, gamma, beta = (each.contiguous() for each in (weight, bias, gamma, beta))
        mean, rstd, precision = mean.contiguous(), rstd.contiguous(), dot_precision()
        u = weight.new_empty(*rows.node.shape, weight.size(-1))
        z = torch.empty_like(u) if need_grad else None
        folded = fold_projection(rows, weight, bias, (gamma, beta), (mean, rstd))
        write_capsules(rows, folded, mean, Capsules(u, z), options, precision)
        offset = folded[1]
        ctx.save_for_backward(weight, gamma, beta, mean, rstd, z, offset, mask)
        ctx.rows, ctx.precision, ctx.options = rows, precision, options
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, gamma, beta, mean, rstd, z, offset, mask = ctx.saved_tensors
        options = ctx.options
        dz, doffset = activation_gradients(z, offset, mask, grad, options.dropout, True, options.epsilon)
        products = weight_products(ctx.rows, mean, dz, weight, ctx.precision)
        dweight, dgamma, dbeta = combine_products(products, weight, gamma, (beta, rstd, doffset))
        return None, dweight, doffset, dgamma, dbeta, *[None] * 5


def feature_statistics(
    rows: FeatureRows, running: tuple[Tensor, Tensor], *, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """As :func:`graphcaps.ops.projection.projection.feature_statistics`."""
    table = rows.table
    *lead, B = rows.graphs.shape
    C = table.x.size(-1)
    mean, rstd = (torch.empty_like(running[0]) for _ in range(2))
    _statistics_kernel[(torch.Size(lead).numel(), triton.cdiv(C, _COLUMNS))](
        table.sums, table.squares, table.node_ptr, rows.graphs.contiguous(), table.shift, *running, mean, rstd,
        B, C, momentum, epsilon, TRAINING=training, GRAPHS=_GRAPHS, WIDTH=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return mean, rstd


def project(rows: FeatureRows, weight: Tensor, scale: Tensor, mean: Tensor) -> Tensor:
    """As :func:`graphcaps.ops.projection.projection.project`, in float32."""
    z: Tensor = _Project.apply(rows, weight, scale, mean)
    return z


def projected_capsules(
    rows: FeatureRows,
    weight: Tensor,
    bias: Tensor,
    norm: tuple[Tensor, Tensor],
    statistics: tuple[Tensor, Tensor],
    *,
    dropout: HashedDropout | None,
    epsilon: float,
    mask: Tensor | None,
) -> Tensor:
    """As :func:`graphcaps.ops.projection.projection.projected_capsules`, in float32."""
    options = CapsuleOptions(dropout, epsilon)
    mask = rows.node >= 0 if mask is None else mask  # padding is that of the rows
    need_grad = torch.is_grad_enabled() and any(each.requires_grad for each in (weight, bias, *norm))
    u: Tensor = _ProjectedCapsules.apply(
        rows, weight, bias, *norm, *statistics, mask_bytes(mask), options, need_grad
    )
    return u
