"""Mean and spread of the rows of each graph in one pass, joined to those of all graphs, and to their mean parts.

What batch normalisation asks of a ragged batch and what the mean part of every graph is made of come from the
same sums; so the rows are read once for both, and the mean part is that of normalised rows which nobody wrote.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.batch_norm.batch_norm_triton import move_running
from graphcaps.ops.ragged.ragged_triton import chunk, chunks_of, reach

__all__ = ["graph_statistics"]

Statistics = tuple[Tensor, Tensor, Tensor]
"""Mean and variance ``[*lead, C]`` and number ``[replicas]`` of the real rows."""


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
) -> tuple[Statistics, Tensor | None]:
    """Statistics of the rows of all graphs, and the mean part of each graph after normalisation.

    Args:
        x (Tensor): Rows, ``[*lead, V, C]``; those behind the last graph may hold anything.
        ptr (Tensor): First row of each graph and the end of the last, ``[*lead, B + 1]``.
        weight, bias (Tensor): γ and β, ``[*lead, C]``.
        running (tuple): Running mean and variance, ``[*lead, C]``, moved in place.
        momentum, epsilon (float): As in :class:`graphcaps.nn.RaggedBatchNorm`.
        divisor (float, optional): Of the sum of a graph's rows; 0 takes its own count, ``None`` no mean part.
        max_size (int, optional): Bound on a graph's rows; large graphs are cut where it is known.

    Returns:
        tuple: The statistics, and the mean part ``[*lead, B, C]``.
    """
    *lead, V, C = x.shape
    B, L = ptr.size(-1) - 1, math.prod(lead)
    parts = chunks_of(max_size)
    unit = math.gcd(C, 4)
    width = min(128, max(16, triton.next_power_of_2(C)))
    means, squares = x.new_empty(parts, L, B, C), x.new_empty(parts, L, B, C)
    if means.numel():
        _moments_kernel[(B, L, parts * triton.cdiv(C, width))](
            x, ptr, means, squares, V, B, L, reach(parts, V), C // unit,
            UNIT=unit, ROWS=4096 // width if width > 32 else 128, WIDTH=width, num_warps=4,
        )  # fmt: skip
    mean, var, count = x.new_empty(*lead, C), x.new_empty(*lead, C), x.new_empty(L)
    found = None if divisor is None else x.new_empty(*lead, B, C)
    _join_kernel[(L, triton.cdiv(C, 32))](
        means, squares, ptr, mean, var, count, *running, weight, bias, mean if found is None else found,
        B, L, reach(parts, V), C, parts, momentum, epsilon, float(divisor or 0.0),
        PART=found is not None, PIECES=64, WIDTH=32, num_warps=4,
    )  # fmt: skip
    return (mean, var, count), found


@triton.jit(do_not_specialize=["V", "B", "L", "REACH", "units"])
def _moments_kernel(  # type: ignore[no-untyped-def]
    x, ptr, means, squares, V, B, L, REACH, units,
    UNIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    C = units * UNIT
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    across = tl.cdiv(C, WIDTH)
    part = tl.program_id(2) // across
    columns = tl.program_id(2) % across * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    start, end = chunk(ptr, B, r, b, part, 0, REACH)
    n = 0.0
    mean = tl.zeros([WIDTH], tl.float32)
    square = tl.zeros([WIDTH], tl.float32)
    local = tl.arange(0, ROWS)[:, None] * C + columns[None, :]
    for first in range(start, end, ROWS):
        real = first + tl.arange(0, ROWS) < end
        seen = real[:, None] & wide[None, :]
        values = tl.load(x + (r * V + first) * C + local, mask=seen, other=0.0)
        own = tl.sum(real.to(tl.float32), 0)
        own_mean = tl.sum(values, 0) / own
        away = tl.where(seen, values - own_mean[None, :], 0.0)
        both = n + own
        step = own_mean - mean
        square += tl.sum(away * away, 0) + step * step * (n * own / both)
        mean += step * (own / both)
        n = both
    place = ((part * L + r) * B + b) * C + columns
    tl.store(means + place, mean, mask=wide)
    tl.store(squares + place, square, mask=wide)


@triton.jit
def _size(ptr, B, replica, b, part, there, REACH):  # type: ignore[no-untyped-def]
    """Rows of chunk ``part`` of graphs ``b``."""
    start = tl.load(ptr + replica * (B + 1) + b, mask=there, other=0).to(tl.int32)
    end = tl.load(ptr + replica * (B + 1) + b + 1, mask=there, other=0).to(tl.int32)
    return tl.minimum(tl.maximum(end - start - part * REACH, 0), REACH).to(tl.float32)


@triton.jit(do_not_specialize=["B", "L", "REACH", "C", "parts"])
def _join_kernel(  # type: ignore[no-untyped-def]
    means, squares, ptr, mean_out, var_out, count_out, running_mean, running_var, weight, bias, out,
    B, L, REACH, C, parts, momentum, epsilon, divisor,
    PART: tl.constexpr, PIECES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < C
    lane = tl.arange(0, PIECES)
    counts = tl.zeros([PIECES], tl.float32)
    sums = tl.zeros([PIECES, WIDTH], tl.float32)
    for look in range(0, B * parts, PIECES):
        there = look + lane < B * parts
        part, b = (look + lane) // B, (look + lane) % B
        n = _size(ptr, B, replica, b, part, there, REACH)
        place = ((part * L + replica) * B + b)[:, None] * C + columns[None, :]
        counts += n
        sums += n[:, None] * tl.load(means + place, mask=there[:, None] & wide[None, :], other=0.0)
    total = tl.sum(counts, 0)
    some = tl.maximum(total, 1.0)
    mean = tl.sum(sums, 0) / some
    sums = tl.zeros([PIECES, WIDTH], tl.float32)
    for look in range(0, B * parts, PIECES):
        there = look + lane < B * parts
        part, b = (look + lane) // B, (look + lane) % B
        n = _size(ptr, B, replica, b, part, there, REACH)
        place = ((part * L + replica) * B + b)[:, None] * C + columns[None, :]
        seen = there[:, None] & wide[None, :]
        away = tl.load(means + place, mask=seen, other=0.0) - mean[None, :]
        sums += tl.load(squares + place, mask=seen, other=0.0) + n[:, None] * away * away
    var = tl.sum(sums, 0) / some
    own = replica * C + columns
    tl.store(mean_out + own, mean, mask=wide)
    tl.store(var_out + own, var, mask=wide)
    if tl.program_id(1) == 0:
        tl.store(count_out + replica, total)
    move_running(running_mean, running_var, own, wide, mean, var, total, momentum)
    if PART:
        factor = tl.rsqrt(var + epsilon) * tl.load(weight + own, mask=wide, other=0.0)
        shift = tl.load(bias + own, mask=wide, other=0.0)
        for look in range(0, B, PIECES):
            b = look + lane
            there = b < B
            seen = there[:, None] & wide[None, :]
            size = tl.zeros([PIECES], tl.float32)
            value = tl.zeros([PIECES, WIDTH], tl.float32)
            for part in range(0, parts):
                n = _size(ptr, B, replica, b, part, there, REACH)
                place = ((part * L + replica) * B + b)[:, None] * C + columns[None, :]
                away = tl.load(means + place, mask=seen, other=0.0) - mean[None, :]
                size += n
                value += n[:, None] * away
            under = tl.where(divisor > 0, divisor, tl.maximum(size, 1.0))
            value = (value * factor[None, :] + size[:, None] * shift[None, :]) / under[:, None]
            tl.store(out + (replica * B + b)[:, None] * C + columns[None, :], value, mask=seen)
