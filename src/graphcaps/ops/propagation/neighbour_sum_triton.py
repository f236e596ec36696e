r"""Products with the adjacency: A x and the hop Â x, read from the store's neighbour lists or adjacency bits.

Without bits (:func:`_lists_product`) a program computes blocks of rows. It gathers the first neighbours of all rows of
a block together, four of each row at a time, and meanwhile loads which rows the next block needs. If rows have more
neighbours than that, a kernel before it has summed the rest (:func:`_sum_long_lists`). With bits, which are used for
dense graphs (:func:`_bits_product`), a program computes a tile of rows of one graph as a product of a 0/2 matrix with
the rows of the graph; x is split into bfloat16 pieces, so that the products are exact. No edge list is made, and all
sums have a fixed order. Edges with weights are read from the lists, a weight beside each neighbour (``WEIGHTED``).

Both forms can normalise the rows that they read (``NORMED``), and in the backward pass add the gradient of every
graph's mean (``MEAN_GRADIENT``) and store the sums that the gradients of γ and β need (``GRADIENT_SUMS``). Both can add
other rows (``ADDED``): in the backward pass of a skip connection, its gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.memo import remember
from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops._triton.load_width import load_width
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops._triton.tiling import count_tiles, tile_at, tile_table
from graphcaps.ops.ragged.ragged_triton import MeanGradient, mean_weight
from graphcaps.types import EdgeTable

__all__ = [
    "NormTerms",
    "adjacency_product",
    "hop_scale",
    "hop_sums",
    "hop_with_skip",
    "neighbour_lists",
    "neighbour_sum",
    "propagate",
    "weighted_degrees",
]

_SMALL_DEGREE = 32
"""Largest degree up to which all neighbours are gathered together."""
_HEAD = 8
"""Number of neighbours gathered together if some rows have more."""
_DEGREE_NUMBERS = 1024
"""Weights that a program of the weighted degrees adds at a time."""
_DEGREE_ENTRIES = 128
"""Of these, entries of a row if some rows have more than ``_SMALL_DEGREE``."""
_WORD = 32
"""Bits of a word, and rows of x in a step."""
_PIECES = {"tf32x3": 3, "tf32": 2, "bfloat16": 1}
"""bfloat16 pieces of 8 bits each: 24, 16 (tf32 has 11 bits, at the same cost) and 8 bits."""


def _block_rows(numbers: int, unit: int, width: int) -> int:
    """Rows of a block of which a thread has as many loads as if it had ``numbers`` numbers in loads of four."""
    return max(1, numbers * unit // (4 * width))


@dataclass(frozen=True)
class ListTiles:
    """How the rows of a product with neighbour lists are divided into programs.

    Args:
        numbers (int): Numbers of a block of rows that are read four at a time; fewer if a load reads fewer. Four such
            blocks are loaded at a time, into registers. At least 128 · ``warps``: what is read back from the output
            must belong to one thread.
        programs (int): Approximate number of programs of all replicas, each of which computes several blocks. As many
            as an H200 runs at a time.
        warps (int): Warps of a program. (default: 4)
        registers (int, optional): Largest number of registers of a thread. Not applied to edges with weights, 64-bit
            offsets and rows that are not read four numbers at a time, which need more.
    """

    numbers: int
    programs: int
    warps: int = 4
    registers: int | None = None

    def options(self, unit: int, width: int, simple: bool) -> dict[str, Any]:
        """Launch options; ``simple``: without weights and 64-bit offsets."""
        limit = self.registers if simple and unit == 4 else None
        return {"ROWS": _block_rows(self.numbers, unit, width), "num_warps": self.warps, "maxnreg": limit}


LIST_TILES = {"forward": ListTiles(512, 1056, registers=64), "backward": ListTiles(512, 792, registers=80)}
"""For a product, and for one that also sums for the gradients of γ and β."""


@dataclass(frozen=True)
class LongListTiles:
    """How the long neighbour lists are divided into programs.

    Args:
        rows (int): Rows that a program checks for long lists.
        shares (int): Programs that share the long lists of these rows.
        width (int): Columns of a program.
        numbers (int): Numbers of a block of neighbours, as in :class:`ListTiles`.
        warps (int): Warps of a program.
    """

    rows: int = 128
    shares: int = 4
    width: int = 32
    numbers: int = 1024
    warps: int = 4


LONG_LIST_TILES = LongListTiles()
"""For the kernel before a product, if some rows have more than ``_HEAD`` neighbours."""


@dataclass(frozen=True)
class BitTiles:
    """How a product with adjacency bits is divided into programs.

    Args:
        height (int): Rows of a program.
        width (int): Columns of a program.
        warps (int): Warps of a program; with 4, products of 64 rows use the warp-group instruction (wgmma).
        stages (int): Steps of 32 rows of x that are in shared memory, or on their way to it, at a time.
        registers (int, optional): Largest number of registers of a thread.
    """

    height: int = 64
    width: int = 64
    warps: int = 4
    stages: int = 3
    registers: int | None = None


BIT_TILES = BitTiles()
"""For a product with adjacency bits, of any direction."""


@triton.jit
def _affine(mean, var, gamma, beta, offset, wide, epsilon, AFFINE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Mean, factor and shift of columns, to be applied as (x − mean) factor + shift; γ = 1, β = 0 if not ``AFFINE``."""
    centre = tl.load(mean + offset, mask=wide, other=0.0)
    factor = tl.rsqrt(tl.load(var + offset, mask=wide, other=1.0) + epsilon)
    shift = tl.zeros_like(centre)
    if AFFINE:
        factor *= tl.load(gamma + offset, mask=wide, other=0.0)
        shift = tl.load(beta + offset, mask=wide, other=0.0)
    return centre, factor, shift


@triton.jit
def _normalise(values, centre, factor, shift):  # type: ignore[no-untyped-def]
    return (values - centre[None, :]) * factor[None, :] + shift[None, :]


@triton.jit
def _store_gradient_sums(  # type: ignore[no-untyped-def]
    g, offsets, valid, columns, wide, replica, program, D, mean, var, rows, grad_sums, grad_hat_sums, epsilon
):
    """Stores the sums of g and of g x̂ over the rows of this program; g is 0 where ``valid`` is false.

    Multiplied by numbers that are loaded, as x̂ is, g has the layout of a load, in which a thread has several rows of a
    column. Summed in the layout of a product, it would need many more shuffles.
    """
    centre, factor, shift = _affine(mean, var, mean, mean, replica * D + columns, wide, epsilon, False)
    inputs = tl.load(rows + offsets, mask=valid, other=0.0)
    hat = _normalise(inputs, centre, factor, shift)
    ones = tl.where(valid, 1.0, inputs)  # inputs that are not valid are 0
    offset = program * D + columns
    tl.store(grad_sums + offset, tl.sum(g * ones, 0), mask=wide)
    tl.store(grad_hat_sums + offset, tl.sum(g * hat, 0), mask=wide)


@triton.jit
def _four_neighbours(neighbours, entry, left, begin, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows of four entries of neighbour lists, ``STEP`` apart from ``entry`` on; ``left`` entries remain."""
    a = begin + tl.load(neighbours + entry, mask=left > 0, other=0).to(tl.int32)
    b = begin + tl.load(neighbours + entry + STEP, mask=left > STEP, other=0).to(tl.int32)
    c = begin + tl.load(neighbours + entry + 2 * STEP, mask=left > 2 * STEP, other=0).to(tl.int32)
    d = begin + tl.load(neighbours + entry + 3 * STEP, mask=left > 3 * STEP, other=0).to(tl.int32)
    return a, b, c, d


@triton.jit
def _neighbour_row(  # type: ignore[no-untyped-def]
    x, neighbour, has, entry, weight, scale, columns, wide, centre, factor, shift, D,
    WEIGHTED: tl.constexpr, SELF_LOOPS: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """The term of a neighbour in the sum, 0 if there is none."""
    at = neighbour.to(tl.int64) * D if LONG else neighbour * D
    values = tl.load(x + (at + columns[None, :]), mask=has & wide[None, :], other=0.0)
    tl.static_assert(SELF_LOOPS or not NORMED, "only a hop normalises")
    if NORMED:  # the scale makes it 0 if there is no neighbour
        values = _normalise(values, centre, factor, shift)
    if WEIGHTED:
        values *= tl.load(weight + entry, mask=has, other=0.0)
    if SELF_LOOPS:
        values *= tl.load(scale + neighbour, mask=has, other=0.0)
    return values


@triton.jit
def _add_four_rows(  # type: ignore[no-untyped-def]
    total, x, a, b, c, d, entry, left, weight, scale, columns, wide, centre, factor, shift, D, STEP: tl.constexpr,
    WEIGHTED: tl.constexpr, SELF_LOOPS: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """Adds the terms of :func:`_four_neighbours`.

    Four at a time, because dependent loads dominate the time of a gather of few rows.
    """
    p = _neighbour_row(x, a, left > 0, entry, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, SELF_LOOPS, NORMED, LONG)  # fmt: skip
    q = _neighbour_row(x, b, left > STEP, entry + STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, SELF_LOOPS, NORMED, LONG)  # fmt: skip
    r = _neighbour_row(x, c, left > 2 * STEP, entry + 2 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, SELF_LOOPS, NORMED, LONG)  # fmt: skip
    s = _neighbour_row(x, d, left > 3 * STEP, entry + 3 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, SELF_LOOPS, NORMED, LONG)  # fmt: skip
    return total + p + q + r + s


@triton.jit(do_not_specialize=["V", "units", "blocks"])
def _long_lists_kernel(  # type: ignore[no-untyped-def]
    x, out, starts, counts, first, neighbours, weight, scale, mean, var, gamma, beta, epsilon, V, units, blocks,
    UNIT: tl.constexpr, WEIGHTED: tl.constexpr, SELF_LOOPS: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
    HEAD: tl.constexpr, LIST_ROWS: tl.constexpr, SHARES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    begin = tl.program_id(0) % blocks * LIST_ROWS
    lane = tl.arange(0, LIST_ROWS)
    count = tl.load(counts + base + begin + lane, mask=begin + lane < V, other=0)
    is_long = count > HEAD
    rank = tl.cumsum(is_long.to(tl.int32), 0) - 1
    num_long = tl.sum(is_long.to(tl.int32), 0)
    if tl.program_id(1) < num_long:
        columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
        wide = columns < D
        x += base * D
        scale += base
        centre, factor, shift = columns, columns, columns  # not read
        if NORMED:
            centre, factor, shift = _affine(
                mean, var, gamma, beta, replica * D + columns, wide, epsilon, True
            )
        row = tl.arange(0, ROWS)[:, None]
        # The long lists of a block are dealt out in turn, because hubs often have consecutive numbers.
        for turn in range(tl.program_id(1), num_long, SHARES):
            target = base + begin + tl.sum(tl.where(is_long & (rank == turn), lane, 0), 0)
            at = tl.load(starts + target) + HEAD + row
            left = tl.load(counts + target) - HEAD - row
            origin = tl.load(first + target).to(tl.int32)
            total = tl.zeros([ROWS, WIDTH], tl.float32)
            a, b, c, d = _four_neighbours(neighbours, at, left, origin, ROWS)
            for k in range(0, tl.max(left), 4 * ROWS):
                # Loaded one step ahead.
                e, f, g, h = _four_neighbours(
                    neighbours, at + (k + 4 * ROWS), left - (k + 4 * ROWS), origin, ROWS
                )
                total = _add_four_rows(
                    total, x, a, b, c, d, at + k, left - k, weight, scale, columns, wide, centre, factor, shift,
                    D, ROWS, WEIGHTED, SELF_LOOPS, NORMED, LONG,
                )  # fmt: skip
                a, b, c, d = e, f, g, h
            tl.store(out + target * D + columns, tl.sum(total, 0), mask=wide)


@triton.jit(do_not_specialize=["N"])
def _lists_kernel(node, ptr, roots, start, count, N, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < N
    held = tl.load(node + row, mask=inside, other=-1)
    real = inside & (held >= 0)
    first = tl.load(ptr + held, mask=real, other=-1)
    number = tl.where(real, tl.load(ptr + held + 1, mask=real, other=0) - first, 0).to(tl.int32)
    tl.store(roots + row, tl.where(real, tl.rsqrt((number + 1).to(tl.float32)), 0.0), mask=inside)
    tl.store(start + row, first, mask=inside)
    tl.store(count + row, number, mask=inside)


@triton.jit(do_not_specialize=["N"])
def _weighted_scale_kernel(  # type: ignore[no-untyped-def]
    starts, counts, weight, scale, N, ROWS: tl.constexpr, ENTRIES: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < N
    start = tl.load(starts + row, mask=inside, other=-1)
    count = tl.load(counts + row, mask=inside, other=0)
    lane = tl.arange(0, ENTRIES)[None, :]
    # As columns: Triton 3.6 fails to compile a load of indices that are reshaped inside the loop.
    start_, count_ = start[:, None], count[:, None]
    total = tl.zeros([ROWS, ENTRIES], tl.float32)
    for k in range(0, tl.max(count, 0), ENTRIES):
        total += tl.load(weight + (start_ + (k + lane)), mask=k + lane < count_, other=0.0)
    root = tl.rsqrt(tl.maximum(tl.sum(total, 1) + 1.0, 1.0))
    tl.store(scale + row, tl.where(start >= 0, root, 0.0), mask=inside)


@triton.jit(do_not_specialize=["N"])
def _hop_sums_kernel(  # type: ignore[no-untyped-def]
    starts, counts, first, neighbours, weight, scale, sums, N, V,
    WEIGHTED: tl.constexpr, ROWS: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < N
    row_scale = tl.load(scale + row, mask=inside, other=0.0)
    lane = tl.arange(0, ENTRIES)[None, :]
    row_ = row[:, None]
    start_ = tl.load(starts + row_, mask=row_ < N, other=-1)
    count_ = tl.load(counts + row_, mask=row_ < N, other=0)
    graph_ = row_ // V * V + tl.load(first + row_, mask=row_ < N, other=0)
    total = tl.zeros([ROWS, ENTRIES], tl.float32)
    for k in range(0, tl.max(tl.load(counts + row, mask=inside, other=0), 0), ENTRIES):
        has = k + lane < count_
        neighbour = graph_ + tl.load(neighbours + (start_ + (k + lane)), mask=has, other=0)
        values = tl.load(scale + neighbour, mask=has, other=0.0)
        if WEIGHTED:
            values *= tl.load(weight + (start_ + (k + lane)), mask=has, other=0.0)
        total += values
    tl.store(sums + row, row_scale * (row_scale + tl.sum(total, 1)), mask=inside)


@triton.jit
def _lists_at(starts, counts, first, rows, V):  # type: ignore[no-untyped-def]
    """First entry, number of neighbours and first row of the graph of each row."""
    rows_ = rows[:, None]
    start = tl.load(starts + rows_, mask=rows_ < V, other=-1)
    count = tl.load(counts + rows_, mask=rows_ < V, other=0)
    begin = tl.load(first + rows_, mask=rows_ < V, other=0).to(tl.int32)
    return start, count, begin


@triton.jit(do_not_specialize=["B", "V", "units", "parts", "EACH"])
def _lists_product_kernel(  # type: ignore[no-untyped-def]
    x, out, tails, added, starts, counts, first, neighbours, weight, scale,
    mean, var, gamma, beta, before, mean_grad, index, graphs, grad_sums, grad_hat_sums, epsilon, divisor,
    B, V, units, parts, EACH, UNIT: tl.constexpr, WEIGHTED: tl.constexpr, SELF_LOOPS: tl.constexpr,
    NORMED: tl.constexpr, GRADIENT_SUMS: tl.constexpr, MEAN_GRADIENT: tl.constexpr, ADDED: tl.constexpr,
    LONG: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Computes EACH blocks of rows. Lists are loaded two blocks ahead and first neighbours one, so that a block waits
    for one load only; the sums for γ and β stay in registers until the end."""
    D = units * UNIT
    replica = (tl.program_id(0) // parts).to(tl.int64)
    base = replica * V  # first row of this replica
    low = tl.program_id(0) % parts * EACH * ROWS
    high = tl.minimum(low + EACH * ROWS, V)
    lane = tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < D
    x += base * D
    out += base * D
    tails += base * D
    added += base * D
    before += base * D
    starts += base
    counts += base
    first += base
    scale += base
    index += base
    start, count, begin = _lists_at(starts, counts, first, low + lane, high)
    next_start, next_count, next_begin = _lists_at(starts, counts, first, low + ROWS + lane, high)
    a, b, c, d = _four_neighbours(neighbours, start, count, begin, 1)
    graph, next_graph = begin, begin  # not read
    if MEAN_GRADIENT:
        at = low + lane[:, None]
        next_graph = tl.load(index + at, mask=(at < high) & (start >= 0), other=0).to(tl.int32)
    centre, factor, shift = columns, columns, columns  # not read
    if NORMED:
        centre, factor, shift = _affine(mean, var, gamma, beta, replica * D + columns, wide, epsilon, True)
    if GRADIENT_SUMS:
        centre, factor, shift = _affine(mean, var, mean, mean, replica * D + columns, wide, epsilon, False)
    grad_sum = tl.zeros([ROWS, WIDTH], tl.float32)
    grad_hat_sum = tl.zeros([ROWS, WIDTH], tl.float32)
    for top in range(low, high, ROWS):
        rows = top + lane[:, None]
        real = start >= 0
        # Loaded again as a vector, which every warp has all of, so that the maximum needs no barrier. Triton 3.6
        # loses a number that is carried to the next iteration and bounds an inner loop.
        most = tl.max(tl.load(counts + top + lane, mask=top + lane < high, other=0), 0)
        e, f, g, h = _four_neighbours(neighbours, next_start, next_count, next_begin, 1)
        later_start, later_count, later_begin = _lists_at(starts, counts, first, top + 2 * ROWS + lane, high)
        if MEAN_GRADIENT:
            graph = next_graph
            next_graph = tl.load(index + rows + ROWS, mask=next_start >= 0, other=0).to(tl.int32)
        offsets = (rows.to(tl.int64) * D if LONG else rows * D) + columns[None, :]
        valid = real & wide[None, :]
        total = tl.zeros([ROWS, WIDTH], tl.float32)
        row_scale, part, inputs, rest, other = total, total, total, total, total  # not read
        if SELF_LOOPS:
            row_scale = tl.load(scale + rows, mask=real, other=0.0)
            total = tl.load(x + offsets, mask=valid, other=0.0)
        if MEAN_GRADIENT:
            share = mean_weight(replica * (B + 1) + graph, real, graphs, divisor)
            part = tl.load(mean_grad + (replica * B + graph) * D + columns[None, :], mask=valid, other=0.0)
            part *= share
        if GRADIENT_SUMS:
            inputs = tl.load(before + offsets, mask=valid, other=0.0)
        if TAIL:  # the sum of the rest of a long list
            rest = tl.load(tails + offsets, mask=valid & (count > HEAD), other=0.0)
        if ADDED:
            other = tl.load(added + offsets, mask=valid, other=0.0)
        if SELF_LOOPS:
            if NORMED:
                total = _normalise(total, centre, factor, shift)
            total *= row_scale
        total = _add_four_rows(
            total, x, a, b, c, d, start, count, weight, scale, columns, wide, centre, factor, shift,
            D, 1, WEIGHTED, SELF_LOOPS, NORMED, LONG,
        )  # fmt: skip
        for k in range(4, tl.minimum(most, HEAD), 4):
            left = tl.minimum(count, HEAD) - k
            i, j, m, n = _four_neighbours(neighbours, start + k, left, begin, 1)
            total = _add_four_rows(
                total, x, i, j, m, n, start + k, left, weight, scale, columns, wide, centre, factor, shift,
                D, 1, WEIGHTED, SELF_LOOPS, NORMED, LONG,
            )  # fmt: skip
        if TAIL:
            total += rest
        if SELF_LOOPS:
            total *= row_scale
        if MEAN_GRADIENT:
            total += part
        if ADDED:
            total += other
        if GRADIENT_SUMS:
            total = tl.where(valid, total, 0.0)
            grad_sum += total
            grad_hat_sum += total * (inputs - centre[None, :])
        tl.store(out + offsets, total, mask=(rows < high) & wide[None, :])
        a, b, c, d = e, f, g, h
        start, count, begin = next_start, next_count, next_begin
        next_start, next_count, next_begin = later_start, later_count, later_begin
    if GRADIENT_SUMS:
        offset = tl.program_id(0).to(tl.int64) * D + columns
        tl.store(grad_sums + offset, tl.sum(grad_sum, 0), mask=wide)
        tl.store(grad_hat_sums + offset, tl.sum(grad_hat_sum, 0) * factor, mask=wide)


@triton.jit
def _top(values):  # type: ignore[no-untyped-def]
    """Numbers truncated to 8 bits of mantissa, which bfloat16 represents exactly; truncation needs no conversion."""
    return (values.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _twice_the_bits(word, T: tl.constexpr):  # type: ignore[no-untyped-def]
    """2.0 where a bit of ``[T]`` words is set, else 0.0, in bfloat16, ``[T, 32]``; column 2 k + h is bit k + 16 h.

    A single bit, that of 0x4000, tells 2.0 from 0.0. Two bits of a word are made at a time, in the register that the
    product reads, so that the matrix does not pass through shared memory.
    """
    pairs = (word[:, None] >> tl.arange(0, 16)[None, :]) << 14
    low = (pairs & 0x4000).to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = ((pairs >> 16) & 0x4000).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.reshape(tl.join(low, high), [T, 32])


@triton.jit(do_not_specialize=["B", "V", "units"])
def _bits_kernel(  # type: ignore[no-untyped-def]
    x, out, added, table, words, scale,
    mean, var, gamma, beta, before, mean_grad, index, sizes, grad_sums, grad_hat_sums, epsilon, divisor, B, V, units,
    UNIT: tl.constexpr, SELF_LOOPS: tl.constexpr, NORMED: tl.constexpr, GRADIENT_SUMS: tl.constexpr,
    MEAN_GRADIENT: tl.constexpr, ADDED: tl.constexpr, PIECES: tl.constexpr, LONG: tl.constexpr, T: tl.constexpr,
    C: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    d = units * UNIT
    replica = tl.program_id(1).to(tl.int64)
    program = replica * tl.num_programs(0) + tl.program_id(0)
    graph, first, end, top, word_at = tile_at(table, program)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < d
    base = replica * V  # first row of this replica
    x += base * d
    out += base * d
    scale += base
    real = graph < B
    row = top + tl.arange(0, T)
    used = (row < end) & real
    # A tile without rows has no neighbours.
    n = tl.where(real & (top < end), end - first, 0)
    # The rows of bits of a graph are contiguous and have the same number of words.
    local = row - first
    words += word_at + local * tl.cdiv(n, C)
    centre, factor, shift = columns, columns, columns  # not read
    if NORMED:
        centre, factor, shift = _affine(mean, var, gamma, beta, replica * d + columns, wide, epsilon, True)
    total = tl.zeros([T, WIDTH], tl.float32)
    lane = tl.arange(0, C)
    lane = lane // 2 + lane % 2 * 16  # the order of the bits
    next_word = tl.load(words, mask=used, other=0)
    for c in range(0, n, C):
        word = next_word
        next_word = tl.load(words + (c // C + 1), mask=used & (c + C < n), other=0)  # loaded ahead
        if SELF_LOOPS:
            at = local - c
            word = word | tl.where((at >= 0) & (at < C), 1 << (at & (C - 1)), 0)
        joined = _twice_the_bits(word, T)
        there = c + lane < n
        neighbour = first + c + lane
        at = neighbour[:, None].to(tl.int64) * d if LONG else neighbour[:, None] * d
        values = tl.load(x + (at + columns[None, :]), mask=there[:, None] & wide[None, :], other=0.0)
        if NORMED:
            values = _normalise(values, centre, factor, shift)
        if SELF_LOOPS:
            values *= tl.load(scale + neighbour, mask=there, other=0.0)[:, None]
        for left in tl.static_range(PIECES - 1, -1, -1):
            cut = values
            if left > 0:
                cut = _top(values)
                values -= cut
            total = tl.dot(joined, cut.to(tl.bfloat16), total)
    offsets = row[:, None].to(tl.int64) * d if LONG else row[:, None] * d
    offsets = offsets + columns[None, :]
    valid = used[:, None] & wide[None, :]
    total *= 0.5  # of twice the bits
    if SELF_LOOPS:
        total *= tl.load(scale + row, mask=used, other=0.0)[:, None]
    if MEAN_GRADIENT:
        share = tl.where(used, mean_weight(replica * (B + 1) + graph, real, sizes, divisor), 0.0)
        part = tl.load(mean_grad + (replica * B + graph) * d + columns, mask=wide & real, other=0.0)
        total += share[:, None] * part[None, :]
    if ADDED:
        total += tl.load(added + base * d + offsets, mask=valid, other=0.0)
    if GRADIENT_SUMS:
        _store_gradient_sums(
            total, offsets, valid, columns, wide, replica, program, d,
            mean, var, before + base * d, grad_sums, grad_hat_sums, epsilon,
        )  # fmt: skip
    tl.store(out + offsets, total, mask=(row < end)[:, None] & wide[None, :])


@dataclass(frozen=True)
class NormTerms:
    """Statistics of a batch normalisation, and the inputs of its backward pass.

    Args:
        mean, var (Tensor): Of the rows, ``[*lead, d]``.
        weight, bias (Tensor): γ and β, ``[*lead, d]``.
        epsilon (float): Added to the variance.
        rows (Tensor, optional): The rows before normalisation, ``[*lead, V, d]``; if given, the product is that
            of the backward pass.
        means (MeanGradient, optional): Added in the backward pass.
    """

    mean: Tensor
    var: Tensor
    weight: Tensor
    bias: Tensor
    epsilon: float
    rows: Tensor | None = None
    means: MeanGradient | None = None

    def tables(self, replicas: int, parts: int) -> tuple[Tensor, Tensor] | None:
        """Empty tables for the two sums of every program, in the backward pass."""
        if self.rows is None:
            return None
        shape = (replicas, parts, self.mean.size(-1))
        return self.mean.new_empty(shape), self.mean.new_empty(shape)


def _pointers(terms: NormTerms | None, tables: tuple[Tensor, Tensor] | None, x: Tensor) -> list[Any]:
    """Kernel arguments from ``mean`` to ``B``; ``x`` replaces tensors that are not read."""
    if terms is None:
        return [*[x] * 10, 0.0, 0.0, 0]
    t = terms
    tensors = (t.mean, t.var, t.weight, t.bias, t.rows)
    arguments: list[Any] = [x if tensor is None else tensor.contiguous() for tensor in tensors]
    pointers, (B, divisor) = MeanGradient.arguments(t.means, x)
    return [*arguments, *pointers, *(tables or (x, x)), float(t.epsilon), divisor, B]


def _switches(terms: NormTerms | None) -> dict[str, bool]:
    """Compile-time options of a kernel for these terms."""
    backward = terms is not None and terms.rows is not None
    return {
        "NORMED": terms is not None and not backward,
        "GRADIENT_SUMS": backward,
        "MEAN_GRADIENT": backward and terms is not None and terms.means is not None,
    }


def _sum_long_lists(
    x: Tensor,
    out: Tensor,
    lists: tuple[Tensor, ...],
    first: Tensor,
    neighbours: Tensor,
    weight: Tensor,
    scale: Tensor,
    terms: list[Any],
    options: dict[str, Any],
) -> None:
    """Writes into ``out`` the sums over the neighbours from number ``HEAD`` on, for rows that have that many.

    The arguments are those of the product that reads them afterwards.
    """
    V, d = x.shape[-2:]
    tiles, blocks = LONG_LIST_TILES, triton.cdiv(V, LONG_LIST_TILES.rows)
    options["WIDTH"] = width = min(tiles.width, options["WIDTH"])
    _long_lists_kernel[(x.numel() // (V * d) * blocks, tiles.shares, triton.cdiv(d, width))](
        x, out, *lists, first, neighbours, weight, scale, *terms[:4], terms[10],
        V, d // options["UNIT"], blocks,
        **options, LIST_ROWS=tiles.rows, SHARES=tiles.shares,
        ROWS=_block_rows(tiles.numbers, options["UNIT"], width), num_warps=tiles.warps,
    )  # fmt: skip


def neighbour_lists(edges: EdgeTable) -> tuple[Tensor, Tensor, Tensor]:
    """Of each row 1 / √(1 + number of neighbours), first entry in the store's neighbour list, and number of neighbours.

    ``[*lead, V]`` each, cached for the batch, which saves a product one dependent load. At padding 0, −1 and 0.
    """

    def make() -> tuple[Tensor, Tensor, Tensor]:
        node = edges.node.contiguous()
        roots, count = (torch.empty_like(node, dtype=kind) for kind in (torch.float32, torch.int32))
        start = torch.empty_like(node)
        if node.numel():
            _lists_kernel[(triton.cdiv(node.numel(), 512),)](
                node, edges.ptr, roots, start, count, node.numel(), ROWS=512
            )
        return roots, start, count

    return remember(edges.memo, "lists", make)


def hop_scale(edges: EdgeTable) -> Tensor:
    r"""Diagonal :math:`\tilde D^{-1/2}` of the hop of :func:`graphcaps.ops.propagate`, 0 at padding, ``[*lead, V]``.

    Edge weights get no gradient. They may change in place, so a scale that depends on them is not cached.
    """
    roots, start, count = neighbour_lists(edges)
    if edges.weight is None:
        return roots
    scale, rows = torch.empty_like(roots), roots.numel()
    entries = _SMALL_DEGREE if _has_small_degrees(edges) else _DEGREE_ENTRIES
    height = _DEGREE_NUMBERS // entries
    if rows:
        _weighted_scale_kernel[(triton.cdiv(rows, height),)](
            start, count, edges.weight.detach().contiguous(), scale, rows, ROWS=height, ENTRIES=entries
        )
    return scale


def hop_sums(edges: EdgeTable, scale: Tensor) -> Tensor:
    """Sums over the rows of the symmetric matrix Â of the hop, 0 at padding, ``[*lead, V]``.

    Args:
        edges (EdgeTable): A; weights, if there are any, get no gradient.
        scale (Tensor): From :func:`hop_scale`.
    """
    _, start, count = neighbour_lists(edges)
    sums, rows = torch.empty_like(scale), scale.numel()
    entries = _DEGREE_ENTRIES
    if edges.max_degree is not None:
        entries = min(entries, max(4, int(triton.next_power_of_2(edges.max_degree))))
    height = _DEGREE_NUMBERS // entries
    if rows:
        _hop_sums_kernel[(triton.cdiv(rows, height),)](
            start, count, edges.first.contiguous(), edges.neighbours,
            scale if edges.weight is None else edges.weight.detach().contiguous(), scale, sums, rows, scale.size(-1),
            WEIGHTED=edges.weight is not None, ROWS=height, ENTRIES=entries,
        )  # fmt: skip
    return sums


def _has_small_degrees(edges: EdgeTable) -> bool:
    return edges.max_degree is not None and edges.max_degree <= _SMALL_DEGREE


def _lists_product(
    x: Tensor,
    edges: EdgeTable,
    scale: Tensor | None,
    self_loops: bool,
    terms: NormTerms | None = None,
    dtype: torch.dtype | None = None,
    added: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    x = x.contiguous()
    out = torch.empty_like(x, dtype=dtype)
    V, d = x.shape[-2:]
    if not x.numel():
        return out, None
    width = min(128, tile_width(d))
    unit = load_width(d)
    small = _has_small_degrees(edges)
    head = _SMALL_DEGREE if small else _HEAD
    replicas, across = x.numel() // (V * d), triton.cdiv(d, width)
    tiles = LIST_TILES["backward" if _switches(terms)["GRADIENT_SUMS"] else "forward"]
    options = tiles.options(unit, width, simple=edges.weight is None and V * d < 2**31)
    blocks = triton.cdiv(V, options["ROWS"])
    each = triton.cdiv(blocks, max(1, tiles.programs // (replicas * across)))
    parts = triton.cdiv(blocks, each)
    tables = None if terms is None else terms.tables(replicas, parts)
    lists, rest = neighbour_lists(edges)[1:], _pointers(terms, tables, x)
    first = edges.first.contiguous()
    common: dict[str, Any] = {"UNIT": unit, "WEIGHTED": edges.weight is not None, "SELF_LOOPS": self_loops,
                              "HEAD": head, "NORMED": _switches(terms)["NORMED"],
                              "LONG": V * d >= 2**31, "WIDTH": width}  # fmt: skip
    weight = x if edges.weight is None else edges.weight.detach().contiguous()
    scale_or_x = x if scale is None else scale.detach().contiguous()
    tails = out if small or out.dtype == x.dtype else torch.empty_like(x)
    if not small:
        _sum_long_lists(x, tails, lists, first, edges.neighbours, weight, scale_or_x, rest, dict(common))
    _lists_product_kernel[(replicas * parts, across)](
        x, out, tails, x if added is None else added.contiguous(), *lists, first, edges.neighbours, weight, scale_or_x,
        *rest, V, d // unit, parts, each,
        **common, GRADIENT_SUMS=_switches(terms)["GRADIENT_SUMS"], MEAN_GRADIENT=_switches(terms)["MEAN_GRADIENT"],
        ADDED=added is not None, TAIL=not small, **options,
    )  # fmt: skip
    return out, tables


def _use_bits(edges: EdgeTable) -> bool:
    """Whether the product uses adjacency bits: without weights, if there are bits and graphs are dense."""
    return edges.weight is None and edges.graphs is not None and edges.bits is not None and edges.bits.dense


def _bits_product(
    x: Tensor,
    edges: EdgeTable,
    scale: Tensor | None,
    self_loops: bool,
    precision: str,
    terms: NormTerms | None = None,
    dtype: torch.dtype | None = None,
    added: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """As :func:`graphcaps.ops.propagation.neighbour_sum_triton.adjacency_product`, with adjacency bits."""
    assert edges.bits is not None
    assert edges.graphs is not None
    x = x.contiguous()
    out = torch.empty_like(x, dtype=dtype)
    V, d = x.shape[-2:]
    if not x.numel():
        return out, None
    B = edges.graphs.size(-1) - 1
    height, width = BIT_TILES.height, min(BIT_TILES.width, tile_width(d))
    unit, tiles = load_width(d), count_tiles(V, B, height)
    replicas = x.numel() // (V * d)
    tables = None if terms is None else terms.tables(replicas, tiles)
    *pointers, _ = _pointers(terms, tables, x)
    _bits_kernel[(tiles, replicas, triton.cdiv(d, width))](
        x, out, x if added is None else added.contiguous(), tile_table(edges, height), edges.bits.words,
        x if scale is None else scale.detach().contiguous(),
        *pointers, B, V, d // unit,
        UNIT=unit, SELF_LOOPS=self_loops, **_switches(terms), ADDED=added is not None, PIECES=_PIECES[precision],
        LONG=V * d >= 2**31,
        T=height, C=_WORD, WIDTH=width, num_warps=BIT_TILES.warps, num_stages=BIT_TILES.stages,
        maxnreg=BIT_TILES.registers,
    )  # fmt: skip
    return out, tables


def adjacency_product(
    x: Tensor,
    edges: EdgeTable,
    scale: Tensor | None,
    self_loops: bool,
    precision: str,
    terms: NormTerms | None = None,
    dtype: torch.dtype | None = None,
    added: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """The product and, in a backward pass with ``terms``, the tables of gradient sums ``[replicas, parts, d]``.

    The result is rounded to ``dtype``; by default, it has that of x. ``added [*lead, V, d]`` is added to it, except at
    padding.
    """
    if self_loops and scale is None:
        scale = hop_scale(edges)
    if _use_bits(edges):
        return _bits_product(x, edges, scale, self_loops, precision, terms, dtype, added)
    return _lists_product(x, edges, scale, self_loops, terms, dtype, added)


class _AdjacencyProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, edges: EdgeTable, scale: Tensor | None, self_loops: bool, precision: str
    ) -> Tensor:
        ctx.arguments = edges, scale, self_loops, precision
        return adjacency_product(x, edges, scale, self_loops, precision)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _AdjacencyProduct.apply(grad, *ctx.arguments), None, None, None, None


def neighbour_product(
    x: Tensor, edges: EdgeTable, scale: Tensor | None = None, *, self_loops: bool = False
) -> Tensor:
    r"""A x, or with ``self_loops`` the hop :math:`s_i (\sum_j A_{ij} s_j x_j + s_i x_i)`.

    Linear in x with a symmetric matrix, so the gradient is the same product, to any order. Weights and
    scale get no gradient.

    Args:
        x (Tensor): ``[*lead, V, d]``, float32.
        edges (EdgeTable): A, with or without weights.
        scale (Tensor, optional): s, ``[*lead, V]``; not read at padding. (default with ``self_loops``: that of
            :func:`hop_scale`)
        self_loops (bool): Whether the scaled row itself is added. (default: False)

    Returns:
        Tensor: ``[*lead, V, d]``, zero at padding.
    """
    y: Tensor = _AdjacencyProduct.apply(x, edges, scale, self_loops, dot_precision())
    return y


def neighbour_sum(x: Tensor, edges: EdgeTable, with_self: bool) -> Tensor:
    """As :func:`graphcaps.ops.neighbour_sum`; edge weights get no gradient."""
    ones = x.new_ones(edges.node.shape) if with_self else None
    return neighbour_product(x, edges, ones, self_loops=with_self)


def propagate(x: Tensor, edges: EdgeTable, scale: Tensor | None = None) -> Tensor:
    """As :func:`graphcaps.ops.propagate`; edge weights and scale get no gradient."""
    # Computed here and not by the product, so that the product of the backward pass has it too.
    return neighbour_product(x, edges, hop_scale(edges) if scale is None else scale, self_loops=True)


class _HopWithSkip(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, edges: EdgeTable, scale: Tensor, precision: str
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.arguments = edges, scale, precision
        return adjacency_product(x, edges, scale, True, precision)[0], x.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, skip_grad: Tensor | None) -> Any:
        edges, scale, precision = ctx.arguments
        if grad is not None:
            skip_grad = adjacency_product(grad, edges, scale, True, precision, added=skip_grad)[0]
        return skip_grad, None, None, None


def hop_with_skip(x: Tensor, edges: EdgeTable, normalised: bool) -> tuple[Tensor, Tensor]:
    """As :func:`graphcaps.ops.propagation.propagation.hop_with_skip`; edge weights get no gradient."""
    scale = hop_scale(edges) if normalised else x.new_ones(edges.node.shape)
    results: tuple[Tensor, Tensor] = _HopWithSkip.apply(x, edges, scale, dot_precision())
    return results


def weighted_degrees(edges: EdgeTable, weight: Tensor) -> Tensor:
    """Sum of the edge weights at each row, ``[*lead, V]``."""
    ones = weight.new_ones(()).expand(*edges.node.shape, 1)
    return neighbour_product(ones, edges).squeeze(-1)
