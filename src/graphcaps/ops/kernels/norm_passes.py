"""The passes of batch normalisation over ``[replicas, V, C]``; what each is for stands in ``norm.py``.

Sizes are arguments at run time, so that all batches and most widths share one compilation. C is ``units``
times UNIT: the compiler sees that four or two divide it, and loads as many numbers at once. Places are counted
from the first row of a program, in 32 bits, which takes half the registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "add_kernel",
    "gradient_kernel",
    "join_kernel",
    "moments_kernel",
    "move_running",
    "normalise_kernel",
    "slopes_kernel",
]


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
