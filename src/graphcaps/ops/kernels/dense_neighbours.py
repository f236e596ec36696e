"""Products with the adjacency of well connected graphs: tiles of bits against tiles of rows.

Where a node has many neighbours, gathering a row for each of them reads the same rows again and again. Two
tiles of 32 × 32 bits, as zeros and ones, times 32 rows reads them once for 64 nodes.

Zeros and ones are exact in every format, so only the rows are cut: x = x₁ + x₂ + x₃ in bfloat16 holds all 24
bits of a float32, and the product is as fine as the number of pieces that are multiplied.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.hop_terms import (
    Terms,
    affine,
    normalised,
    pointers,
    share_of,
    slopes,
    switches,
)
from graphcaps.ops.kernels.tiling import SEARCH, tile_of
from graphcaps.types import EdgeTable

__all__ = ["dense_product", "serves"]

_TILE = 32
"""Rows of a tile, and bits of a word; a program owns two tiles."""
_PIECES = {"tf32x3": 3, "tf32": 2, "bf16": 1}
"""Pieces of 8 bits each: 24, 16 (tf32 itself has 11, at the same cost) and 8."""
_WIDTH = 64
"""Columns of a program: with 128 there is room for fewer programs at a time."""


def serves(edges: EdgeTable) -> bool:
    """Whether the bits of these edges are there and worth walking."""
    return edges.weight is None and edges.graphs is not None and edges.bits is not None and edges.bits.dense


def dense_product(
    x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool, precision: str, terms: Terms | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """As :func:`graphcaps.ops.kernels.neighbours.product_with`."""
    assert edges.bits is not None
    assert edges.graphs is not None
    x = x.contiguous()
    out = torch.empty_like(x)
    V, d = x.shape[-2:]
    if not x.numel():
        return out, None
    B = edges.graphs.size(-1) - 1
    width = min(_WIDTH, max(16, triton.next_power_of_2(d)))
    tiles = V // (2 * _TILE) + B + 1
    replicas = x.numel() // (V * d)
    tables = None if terms is None else terms.tables(replicas, 2 * tiles)
    *given, _ = pointers(terms, tables, x)
    _dense_kernel[(tiles, replicas, triton.cdiv(d, width))](
        x, out, edges.graphs.contiguous(), edges.node.contiguous(),
        edges.bits.start, edges.bits.words, x if scale is None else scale.detach().contiguous(),
        *given, B, V, d,
        OWN=own, **switches(terms), PIECES=_PIECES[precision], LONG=V * d >= 2**31,
        T=_TILE, SEARCH=SEARCH, WIDTH=width, num_warps=4, num_stages=2,
    )  # fmt: skip
    return out, tables


@triton.jit
def _top(values):  # type: ignore[no-untyped-def]
    """The first 8 bits of numbers, exactly a bfloat16; cut off, not rounded, which takes no conversion."""
    return (values.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _bits(words, c, local, used, lane, OWN: tl.constexpr, T: tl.constexpr):  # type: ignore[no-untyped-def]
    """Zeros and ones of the words at column c, one of each of the rows ``local`` of a graph, ``[rows, T]``."""
    word = tl.load(words, mask=used, other=0)
    if OWN:  # a row is its own neighbour
        at = local - c
        word = word | tl.where((at >= 0) & (at < T), 1 << (at & (T - 1)), 0)
    return ((word[:, None] >> lane[None, :]) & 1).to(tl.float32).to(tl.bfloat16)


@triton.jit
def _finish(  # type: ignore[no-untyped-def]
    total, row, used, end, part, program, columns, wide, replica, out, scale,
    mean, var, before, plain, along, epsilon, d, OWN: tl.constexpr, SLOPES: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """Makes the whole hop of a tile from its sum over neighbours, and stores it; 0 at padding."""
    place = row[:, None].to(tl.int64) * d if LONG else row[:, None] * d
    place = place + columns[None, :]
    seen = used[:, None] & wide[None, :]
    if OWN:
        total *= tl.load(scale + row, mask=used, other=0.0)[:, None]
    if SLOPES:
        total = tl.where(seen, total + part[None, :], 0.0)
        slopes(
            total, place, seen, columns, wide, replica, program, d, mean, var, before, plain, along, epsilon
        )
    tl.store(out + place, total, mask=(row < end)[:, None] & wide[None, :])


@triton.jit(do_not_specialize=["B", "V"])
def _dense_kernel(  # type: ignore[no-untyped-def]
    x, out, graphs, node, start, words, scale,
    mean, var, gamma, beta, before, spread, index, sizes, plain, along, epsilon, divisor, B, V, d,
    OWN: tl.constexpr, NORMED: tl.constexpr, SLOPES: tl.constexpr, SPREAD: tl.constexpr,
    PIECES: tl.constexpr, LONG: tl.constexpr, T: tl.constexpr, SEARCH: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < d
    base = replica * V  # first slot of this replica; slots are counted from it
    x += base * d
    out += base * d
    node += base
    scale += base
    graph, first, end = tile_of(graphs + replica * (B + 1), tile, V, B, 2 * T, SEARCH)
    lane = tl.arange(0, T)
    row_a = first + (tile - first // (2 * T) - graph) * (2 * T) + lane
    row_b = row_a + T
    used_a, used_b = (row_a < end) & (graph < B), (row_b < end) & (graph < B)
    # A tile without a row walks nothing.
    n = tl.where((graph < B) & (tl.min(row_a, 0) < end), end - first, 0)
    # The rows of a graph lie one after another, with as many words each.
    words += tl.load(start + tl.load(node + first, mask=n > 0, other=0), mask=n > 0, other=0)
    words_a = (row_a - first) * tl.cdiv(n, T)
    words_b = (row_b - first) * tl.cdiv(n, T)
    centre, factor, shift = columns, columns, columns  # not read
    if NORMED:
        centre, factor, shift = affine(mean, var, gamma, beta, replica * d + columns, wide, epsilon, True)
    total_a = tl.zeros([T, WIDTH], tl.float32)
    total_b = tl.zeros([T, WIDTH], tl.float32)
    for c in range(0, n, T):
        joined_a = _bits(words + (words_a + c // T), c, row_a - first, used_a, lane, OWN, T)
        joined_b = _bits(words + (words_b + c // T), c, row_b - first, used_b, lane, OWN, T)
        there = c + lane < n
        slot = first + c + lane
        at = slot[:, None].to(tl.int64) * d if LONG else slot[:, None] * d
        values = tl.load(x + (at + columns[None, :]), mask=there[:, None] & wide[None, :], other=0.0)
        if NORMED:
            values = normalised(values, centre, factor, shift)
        if OWN:
            values *= tl.load(scale + slot, mask=there, other=0.0)[:, None]
        for left in tl.static_range(PIECES - 1, -1, -1):
            cut = values
            if left > 0:
                cut = _top(values)
                values -= cut
            piece = cut.to(tl.bfloat16)
            total_a = tl.dot(joined_a, piece, total_a)
            total_b = tl.dot(joined_b, piece, total_b)
    program = (replica * tl.num_programs(0) + tile) * 2
    before += base * d
    part = tl.zeros([WIDTH], tl.float32)
    if SPREAD:
        real = graph < B
        share = share_of(replica * (B + 1) + graph, real, sizes, divisor)
        part = tl.load(spread + (replica * B + graph) * d + columns, mask=wide & real, other=0.0) * share
    _finish(
        total_a, row_a, used_a, end, part, program, columns, wide, replica, out, scale,
        mean, var, before, plain, along, epsilon, d, OWN, SLOPES, LONG,
    )  # fmt: skip
    _finish(
        total_b, row_b, used_b, end, part, program + 1, columns, wide, replica, out, scale,
        mean, var, before, plain, along, epsilon, d, OWN, SLOPES, LONG,
    )  # fmt: skip
