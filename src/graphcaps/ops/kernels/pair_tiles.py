r"""All pairs of a graph, tile by tile: the loss and the slope of T rows by one program.

A program keeps T rows and walks over all nodes of their graph, C columns at a time. Per pair it takes few
instructions: the probability with its sign (minus where the pair is joined) serves the logarithm and, turned
over, the slope; logarithms are taken of products of several; the diagonal and the columns behind the end are
looked for only in the tiles that have them.

With rows :math:`z_i = p_i + s` the shift :math:`s` of a graph is never added to a column:
:math:`z_i z_j = z_i p_j + z_i s` and :math:`\sum_j g_{ij} z_j = \sum_j g_{ij} p_j + s \sum_j g_{ij}`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphcaps.ops.kernels.fast_math import fast_log2, fast_reciprocal
from graphcaps.ops.kernels.products import product
from graphcaps.ops.kernels.tiling import tile_at

__all__ = ["tiles_kernel"]

_LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _rounded(x):  # type: ignore[no-untyped-def]
    """The upper bits of x, as many as the tensor cores read."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total + a b``; three products are written out, since Triton's own look for NaN in each of them."""
    if PRECISION == "tf32x3":
        upper_a = _rounded(a)
        upper_b = _rounded(b)
        total = tl.dot(upper_a, b - upper_b, total, input_precision="tf32")
        total = tl.dot(a - upper_a, upper_b, total, input_precision="tf32")
        total = tl.dot(upper_a, upper_b, total, input_precision="tf32")
    else:
        total = product(a, b, total, PRECISION)
    return total


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride"])
def tiles_kernel(  # type: ignore[no-untyped-def]
    p, shift, table, words, slope, sums, partial, V, B, d, chunks, stride, low, high, epsilon,
    ZERO_DIAGONAL: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr, TIMES: tl.constexpr,
    THROUGH: tl.constexpr, NARROW: tl.constexpr, AHEAD: tl.constexpr, UNIT: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr,
    MEAN_OF_GRAPHS: tl.constexpr, SLOPE: tl.constexpr, SHIFT: tl.constexpr,
    D: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """T rows of a graph (program 0) of a replica (1) against the whole graph; a chunk of the slope (2).

    ``sums`` receives the sum of the slope over the rows of the tile. ``NARROW``: sums over columns are taken in
    each step (cheap where a warp has whole rows), for fewer registers. ``AHEAD``: columns and words of the next
    step are loaded in this one, ``UNIT`` numbers by a thread at once. Two products take the columns in two
    layouts, and such a load Triton does not move ahead by itself.
    """
    tl.static_assert(C == 32, "a word of bits serves one step")
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    p += replica * V * d
    slope += replica * V * d
    graph, first, end, top, word_at = tile_at(table, replica * tl.num_programs(0) + tile)
    n = end - first
    begin = top - first  # the tile's first row, counted inside its graph
    row = top + tl.arange(0, T)
    inside = row < end
    used = inside & (graph < B)
    # Nothing to do in a tile of padding rows, or in one that the graph does not need.
    columns = tl.where((graph < B) & (top < end), n, 0)
    k = tl.arange(0, D)
    place = row.to(tl.int64)[:, None] * d + k[None, :]
    own = used[:, None] & (k[None, :] < d)
    shift += (replica * B + graph) * d
    shifted = (k < d) & (graph < B)
    lane = tl.arange(0, C)
    bit = 1 << lane
    # The rows of bits of a graph lie one after another, with as many words each.
    words += word_at
    row_words = (begin + tl.arange(0, T)) * tl.cdiv(n, C)
    # Offsets inside a graph fit into 32 bits.
    around = p + first.to(tl.int64) * d
    near = lane[:, None] * d + k[None, :]
    if AHEAD:
        places = around + near
        if UNIT < 4:
            places = tl.max_contiguous(places, [1, UNIT])
        next_zb = tl.load(places, mask=(lane < columns)[:, None] & (k[None, :] < d), other=0.0)
        if BITS:
            next_word = tl.load(words + row_words, mask=used, other=0)
    term = tl.zeros([T], tl.float32)  # zᵢ s
    if WHOLE:
        za = tl.load(p + place, mask=own, other=0.0)
        if SHIFT:
            s = tl.load(shift + k, mask=shifted, other=0.0)
            za += s[None, :]
            term = tl.sum(za * s[None, :], 1)
            if THROUGH:
                # What was loaded is multiplied out of shared memory, what was computed out of registers, of
                # which there are too few. The slope's place is free until the end.
                tl.store(slope + place, za, mask=own)
                tl.debug_barrier()
                za = tl.load(slope + place, mask=own, other=0.0)
                tl.debug_barrier()
    elif SHIFT:
        for q in range(0, chunks):
            known = k + q * D < d
            s = tl.load(shift + k + q * D, mask=known & (graph < B), other=0.0)
            zq = tl.load(p + place + q * D, mask=used[:, None] & known[None, :], other=0.0) + s[None, :]
            term += tl.sum(zq * s[None, :], 1)
    # Where registers are short, places are computed anew in each step.
    SHORT: tl.constexpr = PRECISION == "tf32x3" and D > 64
    grad = tl.zeros([T, D], tl.float32)
    so_far = tl.full([T, C], 1.0, tl.float32)
    total = tl.zeros([T] if NARROW else [T, C], tl.float32)
    pull = tl.zeros([T] if NARROW else [T, C], tl.float32)  # Σⱼ g

    for c in range(0, columns, C):
        there = c + lane < n
        anew = p + (first + c + lane).to(tl.int64)[:, None] * d + k[None, :]
        others = anew if SHORT else around + c * d + near
        S = tl.zeros([T, C], tl.float32)
        if WHOLE:
            if AHEAD:
                zb = next_zb
                coming = (c + C + lane < n)[:, None] & (k[None, :] < d)
                places = others + C * d
                if UNIT < 4:
                    places = tl.max_contiguous(places, [1, UNIT])
                next_zb = tl.load(places, mask=coming, other=0.0)
            else:
                zb = tl.load(others, mask=there[:, None] & (k[None, :] < d), other=0.0)
            S = _product(za, tl.trans(zb), S, PRECISION)
        else:
            for q in range(0, chunks):
                known = k + q * D < d
                zq = tl.load(p + place + q * D, mask=used[:, None] & known[None, :], other=0.0)
                if SHIFT:
                    zq += tl.load(shift + k + q * D, mask=known & (graph < B), other=0.0)[None, :]
                zb = tl.load(others + q * D, mask=there[:, None] & known[None, :], other=0.0)
                S = _product(zq, tl.trans(zb), S, PRECISION)
        if SHIFT:
            S += term[:, None]
        P = tl.clamp(S, low, high, propagate_nan=tl.PropagateNan.ALL)
        value = 1 - P + epsilon
        if BITS:
            if AHEAD:
                word = next_word
                next_word = tl.load(words + (row_words + c // C + 1), mask=inside & (c + C < n), other=0)
            else:
                word = tl.load(words + (row_words + c // C), mask=inside, other=0)
            value = tl.where((word[:, None] & bit[None, :]) != 0, -epsilon - P, value)
        # Two comparisons, which the compiler makes one: a product that is NaN is no bound.
        g = tl.where((P < S) | (P > S), 0.0, fast_reciprocal(value))
        special = c + C > n
        if ZERO_DIAGONAL:
            special = special | ((c + C > begin) & (c < begin + T))
        if special:
            if ZERO_DIAGONAL:
                same = row[:, None] == (first + c + lane)[None, :]
                value = tl.where(same, 1 + epsilon, value)
                g = tl.where(same, 0.0, g)
            value = tl.where(there[None, :], value, 1.0)
            g = tl.where(there[None, :], g, 0.0)
        # Logarithms are dear and products are cheap.
        so_far = so_far * value
        if (c // C) % TIMES == TIMES - 1:
            logs = fast_log2(tl.abs(so_far))
            total += tl.sum(logs, 1) if NARROW else logs
            so_far = tl.full([T, C], 1.0, tl.float32)
        if SLOPE:
            if SHIFT:
                pull += tl.sum(g, 1) if NARROW else g
            if not WHOLE:
                known = k[None, :] + part * D < d
                zb = tl.load(others + part * D, mask=there[:, None] & known, other=0.0)
            grad = _product(g, zb, grad, PRECISION)

    weight = 1.0
    if MEAN_OF_GRAPHS:
        wide = tl.maximum(n, 1).to(tl.float32)
        weight = 1 / (wide * wide)
    if part == 0:
        logs = tl.sum(fast_log2(tl.abs(so_far)), 1)
        logs += total if NARROW else tl.sum(total, 1)
        found = tl.sum(tl.where(inside, logs, 0.0), 0)
        tl.store(partial + replica * stride + tile, (-_LOG_2 * weight) * found)
    if SLOPE:
        at = k + part * D
        if SHIFT:
            s = tl.load(shift + at, mask=(at < d) & (graph < B), other=0.0)
            grad += (pull if NARROW else tl.sum(pull, 1))[:, None] * s[None, :]
        grad *= 2 * weight
        tl.store(slope + place + part * D, grad, mask=inside[:, None] & (at[None, :] < d))
        if SHIFT:
            found = tl.sum(tl.where(inside[:, None], grad, 0.0), 0)
            tl.store(sums + (replica * tl.num_programs(0) + tile) * d + at, found, mask=at < d)
