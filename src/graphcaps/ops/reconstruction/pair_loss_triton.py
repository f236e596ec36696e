r"""The reconstruction loss over all pairs of nodes and its gradient, in one pass over the tiles of each graph.

A program computes a tile of rows against all columns of their graph. Products and edges are symmetric, so the gradient
of a row, :math:`2w \sum_j g_{ij} z_j`, needs no other program and no atomic addition. Edges are read as bits
(:class:`graphcaps.types.AdjacencyBits`), one word per row and step; without bits, a step makes its words from the
neighbours of its rows, which ascend. Correcting a sum over all pairs at the edges would not do: it subtracts what P
close to 1 makes large, and leaves rounding.

Loss and gradient are stored without the common factor of the average, which the last kernel computes. The backward pass
multiplies by it and sums the gradient over each graph for the shift, in one kernel.

Graphs above a given size can be left to another kernel (:class:`LargeGraphs`), which adds to the same sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import fast_log2, fast_reciprocal, product, tile_width
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops._triton.tiling import count_tiles, first_row_at, tile_at, tile_table
from graphcaps.ops.reconstruction.pair_loss_naive import PairRule
from graphcaps.types import EdgeTable, Segments

__all__ = [
    "LargeGraphs",
    "PairSums",
    "loss_and_gradient",
    "pair_sums",
    "prepare_tiles",
    "reconstruction_loss",
    "scale_gradients",
]


@dataclass(frozen=True)
class PairTiles:
    """How a program computes its tile of rows; what is best depends on the GPU.

    Args:
        height (int): Rows of a tile. Four warps with 64 rows, or eight with 128, multiply with wgmma.
        warps (int): Warps of a program.
        registers (int): Limit of registers of a thread in tf32, so that 65536 / (32 · warps · registers) programs fit.
        ahead (bool): Whether the columns and words of the next step are loaded into registers in this one.
        block (int): Width of the blocks in which columns are loaded, or 0 for whole rows. wgmma needs the columns
            transposed as well; a warp that loads blocks of 8 from several rows stores them without bank conflicts.
    """

    height: int
    warps: int
    registers: int
    ahead: bool = False
    block: int = 0


SMALL = {128: PairTiles(32, 4, 128), 64: PairTiles(32, 4, 128), 32: PairTiles(32, 2, 128)}
"""Tiles of small graphs by the width of a row, rounded up."""
TALL = {
    128: PairTiles(64, 4, 255, ahead=True, block=8),
    64: PairTiles(64, 4, 168, ahead=True, block=8),
    32: PairTiles(64, 4, 128, ahead=True, block=8),
}
"""Tiles of large graphs."""
TALL_FROM = 128
"""Mean number of nodes of a graph from which tiles are tall: smaller graphs would leave them mostly empty."""
_WIDE, _CHUNK = 128, 64  # columns of Z that a program holds; a wider Z is read in chunks
_COLUMNS = 32  # a word of bits
_BLOCK = 4096  # numbers that a program of the backward pass scales
_LARGEST = 2**31 - 1  # no graph is larger
_LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _rounded(x):  # type: ignore[no-untyped-def]
    """The leading bits of x, as many as the tensor cores read."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _multiply(a, b):  # type: ignore[no-untyped-def]
    return a * b


@triton.jit
def _products(x, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Products of 1, 2 or 4 columns that one thread holds in the layout of a tile: ``[T, C // TIMES]``."""
    T: tl.constexpr = x.shape[0]
    C: tl.constexpr = x.shape[1]
    if TIMES == 4:
        x = tl.reduce(tl.reduce(x.reshape(T, 2, C // 4, 2), 3, _multiply), 1, _multiply)
    elif TIMES == 2:
        x = tl.reduce(x.reshape(T, C // 2, 2), 2, _multiply)
    return x


@triton.jit
def _sums(x, TIMES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of the same columns."""
    T: tl.constexpr = x.shape[0]
    C: tl.constexpr = x.shape[1]
    if TIMES == 4:
        x = tl.sum(tl.sum(x.reshape(T, 2, C // 4, 2), 3), 1)
    elif TIMES == 2:
        x = tl.sum(x.reshape(T, C // 2, 2), 2)
    return x


@triton.jit
def _product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total + a b``; three products are written out, because Triton's tf32x3 also tests for NaN."""
    if PRECISION == "tf32x3":
        upper_a = _rounded(a)
        upper_b = _rounded(b)
        total = tl.dot(upper_a, b - upper_b, total, input_precision="tf32")
        total = tl.dot(a - upper_a, upper_b, total, input_precision="tf32")
        total = tl.dot(upper_a, upper_b, total, input_precision="tf32")
    else:
        total = product(a, b, total, PRECISION)
    return total


@triton.jit
def _columns(source, count, d, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """``[C, D]``, or in blocks ``[C, D // BLOCK, BLOCK]``: the first ``count`` rows from ``source`` on, else 0.

    Triton lets the threads of a warp load first along the last axis, then along the first.
    """
    lane = tl.arange(0, C)
    if BLOCK:
        k = tl.arange(0, D // BLOCK)[None, :, None] * BLOCK + tl.arange(0, BLOCK)[None, None, :]
        row = lane[:, None, None]
    else:
        k = tl.arange(0, D)[None, :]
        row = lane[:, None]
    return tl.load(source + (row * d + k), mask=(row < count) & (k < d), other=0.0)


@triton.jit
def _edge_words(neighbours, cursor, end, column, offset, first, C: tl.constexpr):  # type: ignore[no-untyped-def]
    """One word per row: the bits of its neighbours among the columns from ``first`` on; and where the next step begins.

    ``cursor`` is the next entry of each row and ``end`` the first that is not its own, ``column`` the column of that
    entry. Entries are counted from ``offset`` on.
    """
    word = tl.zeros(cursor.shape, tl.int32)
    here = (cursor < end) & (column < first + C)
    while tl.max(here.to(tl.int32), 0) > 0:
        word = tl.where(here, word | (1 << ((column - first) & (C - 1))), word)
        cursor += here.to(cursor.dtype)
        column = tl.load(neighbours + cursor, mask=cursor < end, other=0).to(tl.int32) + offset
        here = (cursor < end) & (column < first + C)
    return word, cursor, column


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride", "largest"])
def _tiles_kernel(  # type: ignore[no-untyped-def]
    p, shift, table, words, node, edge_ptr, neighbours, edge_first, grad_z, sums, partial,
    V, B, width, chunks, stride, largest, low, high, epsilon,
    ZERO_DIAGONAL: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr, TIMES: tl.constexpr,
    FOLD: tl.constexpr, THROUGH: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr, FULL: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr, SUMS: tl.constexpr,
    MEAN_OF_GRAPHS: tl.constexpr, GRADIENT: tl.constexpr, SHIFT: tl.constexpr,
    D: tl.constexpr, SINGLE_CHUNK: tl.constexpr,
):  # fmt: skip
    """T rows of a graph (program 0) of a replica (1) against the whole graph; a chunk of the gradient (2).

    With ``SUMS``, ``sums`` receives the sum of the gradient over the rows of the tile. ``AHEAD`` and ``BLOCK`` are
    those of :class:`PairTiles`: Triton itself does not prefetch whole rows that two products use in two layouts.
    A thread multiplies ``TIMES`` of its probabilities before a logarithm and adds ``FOLD`` of its numbers g; the rest
    of the sum over a row follows after the last step. ``FULL``: rows have D numbers, so that offsets are constants.
    ``THROUGH``: the shifted rows go through global memory. Graphs of more than ``largest`` rows get loss and
    gradient 0.
    """
    d = D if FULL else width
    tl.static_assert(C == 32, "a step has as many columns as a word has bits")
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    p += replica * V * d
    grad_z += replica * V * d
    graph, first, end, top, word_at = tile_at(table, replica * tl.num_programs(0) + tile)
    partial += replica * stride + tile
    if top >= end:  # a tile that the graph does not need
        if part == 0:
            tl.store(partial, 0.0)
        return
    k = tl.arange(0, D)
    n = end - first
    begin = top - first  # the tile's first row within its graph
    row = top + tl.arange(0, T)
    inside = row < end
    used = inside & (graph < B)
    # A tile of padding rows has no columns.
    columns = tl.where((graph < B) & (n <= largest), n, 0)
    # Offsets inside a tile or a graph fit into 32 bits.
    offsets = tl.arange(0, T)[:, None] * d + k[None, :]
    around = p + first.to(tl.int64) * d
    p += top.to(tl.int64) * d
    in_tile = used[:, None] & (k[None, :] < d)
    shift += (replica * B + graph) * d
    shifted = (k < d) & (graph < B)
    lane = tl.arange(0, C)
    bit = 1 << lane
    if BITS:
        # The rows of bits of a graph are contiguous and have the same number of words.
        words += word_at
        row_words = (begin + tl.arange(0, T)) * tl.cdiv(n, C)
    else:
        own = tl.load(node + replica * V + row, mask=used, other=-1).to(tl.int64)
        cursor = tl.load(edge_ptr + own, mask=own >= 0, other=0)
        list_end = tl.load(edge_ptr + own + 1, mask=own >= 0, other=0)
        offset = tl.load(edge_first + replica * V + row, mask=used, other=0).to(tl.int32) - first
        column = tl.load(neighbours + cursor, mask=cursor < list_end, other=0).to(tl.int32) + offset
    if AHEAD:
        next_zb = _columns(around, columns, d, C, D, BLOCK)
        if BITS:
            next_word = tl.load(words + row_words, mask=used, other=0)
    shift_term = tl.zeros([T], tl.float32)  # zᵢ s
    if SINGLE_CHUNK:
        za = tl.load(p + offsets, mask=in_tile, other=0.0)
        if SHIFT:
            s = tl.load(shift + k, mask=shifted, other=0.0)
            za += s[None, :]
            shift_term = tl.sum(za * s[None, :], 1)
            if THROUGH:
                # Loaded operands are multiplied from shared memory, computed ones from registers, of which there
                # are too few. The memory of the gradient is free until the end.
                copy = grad_z + top.to(tl.int64) * d + offsets
                tl.store(copy, za, mask=in_tile)
                tl.debug_barrier()
                za = tl.load(copy, mask=in_tile, other=0.0)
                tl.debug_barrier()
    elif SHIFT:
        for q in range(0, chunks):
            in_width = k + q * D < d
            s = tl.load(shift + k + q * D, mask=in_width & (graph < B), other=0.0)
            zq = tl.load(p + offsets + q * D, mask=used[:, None] & in_width[None, :], other=0.0) + s[None, :]
            shift_term += tl.sum(zq * s[None, :], 1)
    near = lane[:, None] * d + k[None, :]
    grad = tl.zeros([T, D], tl.float32)
    total = tl.zeros([T, C // TIMES], tl.float32)
    g_sum = tl.zeros([T, C // FOLD], tl.float32)  # Σⱼ g

    for c in range(0, columns, C):
        in_graph = c + lane < n
        S = tl.zeros([T, C], tl.float32)
        if SINGLE_CHUNK:
            zb = next_zb if AHEAD else _columns(around + c * d, n - c, d, C, D, BLOCK)
            if BLOCK:
                zb = zb.reshape(C, D)
            S = _product(za, tl.trans(zb), S, PRECISION)
            if AHEAD:  # not before the product, whose fence may wait for loads
                next_zb = _columns(around + (c + C) * d, n - c - C, d, C, D, BLOCK)
        else:
            for q in range(0, chunks):
                in_width = k + q * D < d
                zq = tl.load(p + offsets + q * D, mask=used[:, None] & in_width[None, :], other=0.0)
                if SHIFT:
                    zq += tl.load(shift + k + q * D, mask=in_width & (graph < B), other=0.0)[None, :]
                zb = tl.load(
                    around + c * d + near + q * D, mask=in_graph[:, None] & in_width[None, :], other=0.0
                )
                S = _product(zq, tl.trans(zb), S, PRECISION)
        if SHIFT:
            S += shift_term[:, None]
        P = tl.clamp(S, low, high, propagate_nan=tl.PropagateNan.ALL)
        value = 1 - P + epsilon
        if BITS:
            if AHEAD:
                word = next_word
                next_word = tl.load(words + (row_words + c // C + 1), mask=inside & (c + C < n), other=0)
            else:
                word = tl.load(words + (row_words + c // C), mask=inside, other=0)
        else:
            word, cursor, column = _edge_words(neighbours, cursor, list_end, column, offset, c, C)
        value = tl.where((word[:, None] & bit[None, :]) != 0, -epsilon - P, value)
        # Two comparisons, which the compiler merges: a product that is NaN is not at a bound.
        g = tl.where((P < S) | (P > S), 0.0, fast_reciprocal(value))
        if PRECISION == "tf32x3":
            # Without a branch, Triton sees that one product follows the other and gives both the same layout.
            special: tl.constexpr = True
        else:
            special = c + C > n
            if ZERO_DIAGONAL:
                special = special | ((c + C > begin) & (c < begin + T))
        if special:
            if ZERO_DIAGONAL:
                same = row[:, None] == (first + c + lane)[None, :]
                value = tl.where(same, 1 + epsilon, value)
                g = tl.where(same, 0.0, g)
            value = tl.where(in_graph[None, :], value, 1.0)
            g = tl.where(in_graph[None, :], g, 0.0)
        # Logarithms are expensive and products are cheap.
        total += fast_log2(tl.abs(_products(value, TIMES)))
        if GRADIENT:
            if SHIFT:
                g_sum += _sums(g, FOLD)
            if not SINGLE_CHUNK:
                in_width = k[None, :] + part * D < d
                zb = tl.load(around + c * d + near + part * D, mask=in_graph[:, None] & in_width, other=0.0)
            grad = _product(g, zb, grad, PRECISION)

    # The tile's first row is read again, so that addresses and masks of rows are not held in registers meanwhile.
    top = first_row_at(table, replica * tl.num_programs(0) + tile)
    inside = tl.arange(0, T) < end - top
    weight = 1.0
    if MEAN_OF_GRAPHS:
        wide = tl.maximum(n, 1).to(tl.float32)
        weight = 1 / (wide * wide)
    if part == 0:
        total_sum = tl.sum(tl.where(inside[:, None], total, 0.0))
        tl.store(partial, (-_LOG_2 * weight) * total_sum)
    if GRADIENT:
        at = k + part * D
        if SHIFT:
            s = tl.load(shift + at, mask=(at < d) & (graph < B), other=0.0)
            grad += tl.sum(g_sum, 1)[:, None] * s[None, :]
        grad *= 2 * weight
        tl.store(
            grad_z + top.to(tl.int64) * d + (offsets + part * D),
            grad,
            mask=inside[:, None] & (at[None, :] < d),
        )
        if SUMS:
            total_sum = tl.sum(tl.where(inside[:, None], grad, 0.0), 0)
            tl.store(sums + (replica * tl.num_programs(0) + tile) * d + at, total_sum, mask=at < d)


@triton.jit(do_not_specialize=["B", "stride"])
def _reduce_kernel(  # type: ignore[no-untyped-def]
    partial, ptr, loss, scale, B, stride, MEAN_OF_GRAPHS: tl.constexpr, BLOCK: tl.constexpr
):
    """Adds the sums of the programs of a replica, and divides by Σn² or by the number of graphs."""
    replica = tl.program_id(0).to(tl.int64)
    partial += replica * stride
    ptr += replica * (B + 1)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    at = 0
    while at < stride:
        total += tl.load(partial + at + lane, mask=at + lane < stride, other=0.0)
        at += BLOCK
    counted = tl.zeros([BLOCK], tl.float32)
    at = 0
    while at < B:
        real = at + lane < B
        n = tl.load(ptr + at + lane + 1, mask=real, other=0) - tl.load(ptr + at + lane, mask=real, other=0)
        wide = n.to(tl.float32)
        if MEAN_OF_GRAPHS:
            wide = tl.minimum(wide, 1.0)  # a graph counts once, however large
        counted += wide * wide
        at += BLOCK
    factor = 1 / tl.maximum(tl.sum(counted, 0), 1.0)
    tl.store(loss + replica, tl.sum(total, 0) * factor)
    tl.store(scale + replica, factor)


@triton.jit(do_not_specialize=["V", "B", "graphs", "height", "tile"])
def _scale_kernel(  # type: ignore[no-untyped-def]
    grad_z, source, ptr, grad, scale, dz, grad_shift, V, B, d, graphs, height, tile,
    BY_TILES: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DB: tl.constexpr,
):  # fmt: skip
    """The first programs sum the rows of ``source`` over a graph each, in order; the others scale a block."""
    program = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    factor = tl.load(grad + replica) * tl.load(scale + replica)
    if program < graphs:
        first = tl.load(ptr + replica * (B + 1) + program).to(tl.int32)
        end = tl.load(ptr + replica * (B + 1) + program + 1).to(tl.int32)
        if BY_TILES:
            n = end - first
            first = first // tile + program
            end = first + (n + tile - 1) // tile
        for c in range(0, d, DB):
            at = c + tl.arange(0, DB)
            total = tl.zeros([ROWS, DB], tl.float32)
            for r in range(first, end, ROWS):
                row = r + tl.arange(0, ROWS)
                offsets = (replica * height + row)[:, None] * d + at[None, :]
                total += tl.load(source + offsets, mask=(row < end)[:, None] & (at < d)[None, :], other=0.0)
            tl.store(grad_shift + (replica * B + program) * d + at, tl.sum(total, 0) * factor, mask=at < d)
    else:
        size = V.to(tl.int64) * d
        at = (program - graphs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        values = tl.load(grad_z + replica * size + at, mask=at < size, other=0.0)
        tl.store(dz + replica * size + at, values * factor, mask=at < size)


class _LossAndGradient(NamedTuple):
    """Loss and factor ``[*lead]``; gradient ``[*lead, V, d]`` and its sums over tiles, without the factor."""

    loss: Tensor
    scale: Tensor
    grad_z: Tensor | None
    sums: Tensor | None
    height: int


class LargeGraphs(NamedTuple):
    """What computes the graphs above a given size, in the place of the tiles.

    Args:
        up_to (int): Largest number of nodes of a graph that tiles compute.
        add (Callable): Takes the sums of a replica's programs ``[F, N]``, the column from which on there is one of each
            row, and the gradient ``[*lead, V, d]``, if there is one. Writes the sums of all rows, 0 for other graphs,
            and the gradient in the rows of its graphs; both without the factor of the average.
    """

    up_to: int
    add: Callable[[Tensor, int, Tensor | None], None]


class PairSums(NamedTuple):
    """Sums over pairs, without the factor of the average.

    Args:
        partial (Tensor): Parts of the loss of a replica, ``[F, N]``.
        grad_z (Tensor, optional): Gradient of z, ``[*lead, V, d]``.
        sums (Tensor, optional): Its sums over tiles, ``[F, tiles, d]``; those of graph b are from tile ``ptr[b] //
            height + b`` on. ``None`` if something was added to the gradient after the tiles.
        height (int): Rows of a tile.
    """

    partial: Tensor
    grad_z: Tensor | None
    sums: Tensor | None
    height: int


def loss_and_gradient(
    z: Tensor,
    shift: Tensor | None,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    need_grad: bool,
    large: LargeGraphs | None = None,
) -> _LossAndGradient:
    """The loss and its gradient, by tiles and by ``large``."""
    lead, F = z.shape[:-2], z.shape[:-2].numel()
    loss, scale = z.new_empty(lead), z.new_empty(lead)
    partial, grad_z, sums, height = pair_sums(z, shift, edges, segments, rule, need_grad, large)
    if F:
        ptr, by_graphs = segments.ptr.contiguous(), rule.average == "graphs"
        _reduce_kernel[(F,)](
            partial, ptr, loss, scale, segments.num_graphs, partial.size(1), by_graphs, BLOCK=1024
        )
    return _LossAndGradient(loss, scale, grad_z, sums, height)


def pair_sums(
    z: Tensor,
    shift: Tensor | None,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    need_grad: bool,
    large: LargeGraphs | None = None,
) -> PairSums:
    """The sums over all pairs; all tensors are contiguous, other arguments as in :func:`reconstruction_loss`."""
    *lead, V, d = z.shape
    F, B = torch.Size(lead).numel(), segments.num_graphs
    grad_z = torch.empty_like(z) if need_grad else None
    precision = dot_precision()
    D, tiles = _tiles(V, B, d, precision)
    chunks, T = max(1, triton.cdiv(d, D)), tiles.height
    # The padding rows behind the last graph have tiles like one more graph, which are filled with zeros.
    N = count_tiles(V, B, T)
    # Large graphs get their gradient after its sums over tiles are computed.
    by_tiles = need_grad and shift is not None and large is None
    sums = z.new_empty(F, N, d) if by_tiles else None
    bits = edges.bits
    partial = z.new_empty(F, N + (0 if large is None else V))
    if not F:
        return PairSums(partial, grad_z, sums, T)
    largest = _LARGEST if large is None else large.up_to
    single_chunk, parts = chunks == 1, chunks if need_grad else 1
    through = single_chunk and need_grad and T >= 64 and D > 64 and precision == "tf32"
    fold = 2 if precision == "tf32x3" and T == 32 else 4  # where warps divide the columns, a thread has fewer
    unused = z  # replaces absent tensors; never read or written
    table, lists = tile_table(edges, T, segments), (unused, unused, unused, unused)
    if bits is None:
        lists = edges.node.contiguous(), edges.ptr, edges.neighbours, edges.first.contiguous()
    _tiles_kernel[(N, F, parts)](
        z, unused if shift is None else shift, table, unused if bits is None else bits.words, *lists,
        unused if grad_z is None else grad_z, unused if sums is None else sums, partial,
        V, B, d, chunks, partial.size(1), largest, rule.low, rule.high, rule.epsilon,
        ZERO_DIAGONAL=rule.zero_diagonal, BITS=bits is not None, PRECISION=precision,
        TIMES=min(fold, _factors_per_log(rule)), FOLD=fold, THROUGH=through, AHEAD=tiles.ahead and single_chunk,
        BLOCK=tiles.block, FULL=d == D, T=T, C=_COLUMNS, SUMS=by_tiles,
        MEAN_OF_GRAPHS=rule.average == "graphs", GRADIENT=need_grad, SHIFT=shift is not None,
        D=D, SINGLE_CHUNK=single_chunk,
        num_warps=tiles.warps, num_stages=1, maxnreg=_register_limit(tiles, D, d == D, precision),
    )  # fmt: skip
    if large is not None and V:
        large.add(partial, N, grad_z)
    return PairSums(partial, grad_z, sums, T)


def prepare_tiles(d: int, edges: EdgeTable, segments: Segments) -> None:
    """Makes the table of tiles that :func:`pair_sums` reads for capsules of length d, and keeps it with the edges."""
    _, tiles = _tiles(segments.num_rows, segments.num_graphs, d, dot_precision())
    tile_table(edges, tiles.height, segments)


def _tiles(V: int, B: int, d: int, precision: str) -> tuple[int, PairTiles]:
    """Columns of Z that a program holds, and its tiles; with tf32x3, tall ones of 128 columns do not fit."""
    D = tile_width(d) if d <= _WIDE else _CHUNK
    tall = TALL_FROM * max(B, 1) <= V and (D <= 64 or precision != "tf32x3")
    return D, (TALL if tall else SMALL)[max(D, 32)]


def _register_limit(tiles: PairTiles, D: int, full: bool, precision: str) -> int:
    """Registers of a thread; rows whose width is not a power of two, and tf32x3, need more of them."""
    if not full or (precision == "tf32x3" and D > 32):
        return 255
    return tiles.registers if precision == "tf32" else max(tiles.registers, 168)


def _factors_per_log(rule: PairRule) -> int:
    """Number of probabilities that can be multiplied before a logarithm without leaving the range of float32."""
    smallest = min(rule.low, 1 - rule.high) + rule.epsilon
    largest = max(rule.high, 1 - rule.low) + rule.epsilon
    for times in (4, 2):
        if smallest > 0 and times * math.log(smallest) > -80 and times * math.log(largest) < 80:
            return times
    return 1


def scale_gradients(
    grad_z: Tensor, grad: Tensor, scale: Tensor, sums: Tensor | None, ptr: Tensor, shifted: bool, height: int
) -> tuple[Tensor, Tensor | None]:
    """The gradients of z and of the shift, if there is one: the stored gradient times ``grad · scale``."""
    *lead, V, d = grad_z.shape
    F, B = torch.Size(lead).numel(), ptr.size(-1) - 1
    dz = torch.empty_like(grad_z)
    grad_shift = grad_z.new_empty(*lead, B, d) if shifted else None
    graphs = B if grad_shift is not None else 0
    blocks = triton.cdiv(V * d, _BLOCK)
    if F and graphs + blocks:
        source = grad_z if sums is None else sums
        _scale_kernel[(graphs + blocks, F)](
            grad_z, source, ptr, grad, scale, dz, dz if grad_shift is None else grad_shift,
            V, B, d, graphs, source.size(-2), 1 if sums is None else height,
            BY_TILES=sums is not None, BLOCK=_BLOCK, ROWS=16, DB=64, num_warps=4,
        )  # fmt: skip
    return dz, grad_shift


class _PairLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, shift: Tensor | None, edges: EdgeTable, segments: Segments, rule: PairRule
    ) -> Tensor:
        need = any(ctx.needs_input_grad[:2])
        shift = None if shift is None else shift.contiguous()
        result = loss_and_gradient(z.contiguous(), shift, edges, segments, rule, need)
        if result.grad_z is not None:
            ctx.save_for_backward(result.grad_z, result.scale, result.sums, segments.ptr.contiguous())
            ctx.shifted, ctx.height = shift is not None, result.height
        return result.loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad_z, scale, sums, ptr = ctx.saved_tensors
        dz, grad_shift = scale_gradients(grad_z, grad.contiguous(), scale, sums, ptr, ctx.shifted, ctx.height)
        return dz, grad_shift, None, None, None


def reconstruction_loss(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, shift: Tensor | None
) -> Tensor:
    """As :func:`graphcaps.ops.reconstruction_loss`, in float32: ``z [*lead, V, d]`` to ``[*lead]``."""
    loss: Tensor = _PairLoss.apply(z, shift, edges, segments, rule)
    return loss
