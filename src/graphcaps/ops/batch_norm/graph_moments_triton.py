"""Statistics of batch normalisation and the mean capsule of every graph, in one pass over the rows.

Both follow from the mean and the squared deviations of each graph, so the rows are read once. The mean capsule is that
of the normalised rows, which are not stored. A weighted sum of these rows follows from the weighted sum of deviations
from the mean of the graph.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops._triton.load_width import load_width
from graphcaps.ops.batch_norm.batch_norm_triton import update_running
from graphcaps.ops.ragged.ragged_triton import chunk_bounds, count_chunks, rows_per_chunk

__all__ = ["graph_statistics"]

_NUMBERS = 2048
"""Numbers of a tile of rows."""
_STAGES, _LARGE = 3, 128
"""Tiles that are loaded at a time, through shared memory, if graphs may have more rows than the second number. Small
graphs have few tiles, and programs without shared memory fit more often."""
_PIECES, _COLUMNS = 256, 8
"""Graphs and columns of a step of the kernel that joins graphs: its steps wait for each other, so they are few."""

Statistics = tuple[Tensor, Tensor, Tensor]
"""Mean and variance ``[*lead, C]`` and number ``[replicas]`` of the real rows."""


class GraphMoments(NamedTuple):
    """What one pass over the rows of a batch computes.

    Args:
        statistics (tuple): Of the rows of all graphs.
        means (Tensor, optional): Mean of each graph after normalisation, ``[*lead, B, C]``.
        sums (Tensor, optional): Weighted sum of each graph after normalisation, ``[*lead, B, C]``.
    """

    statistics: Statistics
    means: Tensor | None
    sums: Tensor | None


def graph_statistics(
    x: Tensor,
    ptr: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    *,
    momentum: float,
    epsilon: float,
    divisor: float | None,
    max_size: int | None = None,
    row_weights: Tensor | None = None,
) -> GraphMoments:
    """Statistics of the rows of all graphs, and the mean of each graph after normalisation.

    Args:
        x (Tensor): Rows, ``[*lead, V, C]``; padding rows may hold anything.
        ptr (Tensor): First row of each graph and the end of the last, ``[*lead, B + 1]``.
        weight, bias (Tensor): γ and β, ``[*lead, C]``.
        running (tuple): Running mean and variance, ``[*lead, C]``, updated in place.
        momentum, epsilon (float): As in :class:`graphcaps.nn.RaggedBatchNorm`.
        divisor (float, optional): Divides the sum of a graph; 0 stands for its number of rows, ``None`` for no mean.
        max_size (int, optional): Upper bound on the rows of a graph; if known, large graphs are split into chunks.
        row_weights (Tensor, optional): If given, the rows of a graph are also summed with these weights, of any sign,
            ``[*lead, V]``.
    """
    *lead, V, C = x.shape
    B, L = ptr.size(-1) - 1, math.prod(lead)
    parts = count_chunks(max_size)
    unit = load_width(C)
    width = min(128, tile_width(C))
    means, squares = x.new_empty(parts, L, B, C), x.new_empty(parts, L, B, C)
    weighted, masses = means, means  # not read without weights
    if row_weights is not None:
        weighted, masses = x.new_empty(parts, L, B, C), x.new_empty(parts, L, B)
    if means.numel():
        _moments_kernel[(B, L, parts * triton.cdiv(C, width))](
            x, ptr, x if row_weights is None else row_weights.contiguous(), means, squares, weighted, masses,
            V, B, L, rows_per_chunk(parts, V), C // unit, WEIGHTED=row_weights is not None,
            UNIT=unit, ROWS=min(128, _NUMBERS // width), WIDTH=width, num_warps=4,
            STAGES=1 if max_size is not None and max_size <= _LARGE else _STAGES,
        )  # fmt: skip
    mean, var, count = x.new_empty(*lead, C), x.new_empty(*lead, C), x.new_empty(L)
    means_out = None if divisor is None else x.new_empty(*lead, B, C)
    sums_out = None if row_weights is None else x.new_empty(*lead, B, C)
    _join_kernel[(L, triton.cdiv(C, _COLUMNS))](
        means, squares, weighted, masses, ptr, mean, var, count, *running, weight, bias,
        mean if means_out is None else means_out, mean if sums_out is None else sums_out,
        B, L, rows_per_chunk(parts, V), C, parts, momentum, epsilon, float(divisor or 0.0),
        MEANS=means_out is not None, SUMS=sums_out is not None, PIECES=_PIECES, WIDTH=_COLUMNS, num_warps=4,
    )  # fmt: skip
    return GraphMoments((mean, var, count), means_out, sums_out)


@triton.jit(do_not_specialize=["V", "B", "L", "ROWS_PER_CHUNK", "units"])
def _moments_kernel(  # type: ignore[no-untyped-def]
    x, ptr, row_weights, means, squares, weighted, masses, V, B, L, ROWS_PER_CHUNK, units,
    WEIGHTED: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    across = tl.cdiv(C, WIDTH)
    part = tl.program_id(2) // across
    columns = tl.program_id(2) % across * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    start, end = chunk_bounds(ptr, B, r, b, part, 0, ROWS_PER_CHUNK)
    # Sums of differences from the first row, so that a large mean costs no digits: the relative error of n rows is at
    # most n · 2⁻²⁴. The loop has no sum over rows.
    origin = x + (r * V + start) * C
    pivot = tl.load(origin + columns, mask=wide & (start < end), other=0.0)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    square = tl.zeros([ROWS, WIDTH], tl.float32)
    weighted_total = tl.zeros([ROWS, WIDTH], tl.float32)
    mass = tl.zeros([ROWS], tl.float32)
    row_weights += r * V + start
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    for first in tl.range(0, end - start, ROWS, num_stages=STAGES):
        is_row = first + tl.arange(0, ROWS) < end - start
        valid = is_row[:, None] & wide[None, :]
        values = tl.load(origin + first * C + local, mask=valid, other=0.0)
        difference = tl.where(valid, values - pivot[None, :], 0.0)
        total += difference
        square += difference * difference
        if WEIGHTED:
            row_weight = tl.load(row_weights + first + tl.arange(0, ROWS), mask=is_row, other=0.0)
            weighted_total += row_weight[:, None] * difference
            mass += row_weight
    n = tl.maximum(end - start, 1).to(tl.float32)
    step = tl.sum(total, 0) / n
    mean = pivot + step
    squared = tl.maximum(tl.sum(square, 0) - n * step * step, 0.0)
    offsets = ((part * L + r) * B + b) * C + columns
    tl.store(means + offsets, mean, mask=wide)
    tl.store(squares + offsets, squared, mask=wide)
    if WEIGHTED:
        all_mass = tl.sum(mass, 0)
        tl.store(weighted + offsets, tl.sum(weighted_total, 0) - all_mass * step, mask=wide)
        tl.store(masses + (part * L + r) * B + b, all_mass)


@triton.jit
def _size(ptr, B, replica, b, part, is_piece, ROWS_PER_CHUNK):  # type: ignore[no-untyped-def]
    """Rows of chunk ``part`` of graphs ``b``."""
    start = tl.load(ptr + replica * (B + 1) + b, mask=is_piece, other=0).to(tl.int32)
    end = tl.load(ptr + replica * (B + 1) + b + 1, mask=is_piece, other=0).to(tl.int32)
    return tl.minimum(tl.maximum(end - start - part * ROWS_PER_CHUNK, 0), ROWS_PER_CHUNK).to(tl.float32)


@triton.jit(do_not_specialize=["B", "L", "ROWS_PER_CHUNK", "C", "parts"])
def _join_kernel(  # type: ignore[no-untyped-def]
    means, squares, weighted, masses, ptr, mean_out, var_out, count_out, running_mean, running_var, weight, bias,
    means_out, sums_out, B, L, ROWS_PER_CHUNK, C, parts, momentum, epsilon, divisor,
    MEANS: tl.constexpr, SUMS: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    lane = tl.arange(0, PIECES)
    counts = tl.zeros([PIECES], tl.float32)
    sums = tl.zeros([PIECES, WIDTH], tl.float32)
    for start_piece in range(0, B * parts, PIECES):
        is_piece = start_piece + lane < B * parts
        part, b = (start_piece + lane) // B, (start_piece + lane) % B
        n = _size(ptr, B, replica, b, part, is_piece, ROWS_PER_CHUNK)
        offsets = ((part * L + replica) * B + b)[:, None] * C + columns[None, :]
        counts += n
        sums += n[:, None] * tl.load(means + offsets, mask=is_piece[:, None] & wide[None, :], other=0.0)
    total = tl.sum(counts, 0)
    divisor_all = tl.maximum(total, 1.0)
    mean = tl.sum(sums, 0) / divisor_all
    sums = tl.zeros([PIECES, WIDTH], tl.float32)
    for start_piece in range(0, B * parts, PIECES):
        is_piece = start_piece + lane < B * parts
        part, b = (start_piece + lane) // B, (start_piece + lane) % B
        n = _size(ptr, B, replica, b, part, is_piece, ROWS_PER_CHUNK)
        offsets = ((part * L + replica) * B + b)[:, None] * C + columns[None, :]
        valid = is_piece[:, None] & wide[None, :]
        deviation = tl.load(means + offsets, mask=valid, other=0.0) - mean[None, :]
        sums += tl.load(squares + offsets, mask=valid, other=0.0) + n[:, None] * deviation * deviation
    var = tl.sum(sums, 0) / divisor_all
    column_offset = replica * C + columns
    tl.store(mean_out + column_offset, mean, mask=wide)
    tl.store(var_out + column_offset, var, mask=wide)
    if tl.program_id(1) == 0:
        tl.store(count_out + replica, total)
    update_running(running_mean, running_var, column_offset, wide, mean, var, total, momentum)
    if MEANS or SUMS:
        factor = tl.rsqrt(var + epsilon) * tl.load(weight + column_offset, mask=wide, other=0.0)
        shift = tl.load(bias + column_offset, mask=wide, other=0.0)
        for start_piece in range(0, B, PIECES):
            b = start_piece + lane
            is_piece = b < B
            valid = is_piece[:, None] & wide[None, :]
            out_at = (replica * B + b)[:, None] * C + columns[None, :]
            size = tl.zeros([PIECES], tl.float32)
            value = tl.zeros([PIECES, WIDTH], tl.float32)
            mass = tl.zeros([PIECES], tl.float32)
            weighted_total = tl.zeros([PIECES, WIDTH], tl.float32)
            for part in range(0, parts):
                n = _size(ptr, B, replica, b, part, is_piece, ROWS_PER_CHUNK)
                piece = (part * L + replica) * B + b
                offsets = piece[:, None] * C + columns[None, :]
                deviation = tl.load(means + offsets, mask=valid, other=0.0) - mean[None, :]
                if MEANS:
                    size += n
                    value += n[:, None] * deviation
                if SUMS:  # of a chunk without rows, both are 0
                    mass_of = tl.load(masses + piece, mask=is_piece, other=0.0)
                    mass += mass_of
                    weighted_total += tl.load(weighted + offsets, mask=valid, other=0.0)
                    weighted_total += mass_of[:, None] * deviation
            if MEANS:
                under = tl.where(divisor > 0, divisor, tl.maximum(size, 1.0))
                value = (value * factor[None, :] + size[:, None] * shift[None, :]) / under[:, None]
                tl.store(means_out + out_at, value, mask=valid)
            if SUMS:
                total_of = weighted_total * factor[None, :] + mass[:, None] * shift[None, :]
                tl.store(sums_out + out_at, total_of, mask=valid)
