"""Products with the adjacency of well connected graphs: tiles of bits against tiles of rows.

Where a node has many neighbours, gathering a row for each of them reads the same rows again and again. A tile
of 64 × 32 bits, as zeros and ones, times 32 rows reads them once for 64 nodes.

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
from graphcaps.ops.kernels.tiling import count_tiles, tile_at, tiles_of
from graphcaps.types import EdgeTable

__all__ = ["WARPS", "WIDTHS", "dense_product", "serves"]

_HEIGHT = 64
"""Rows of a program."""
_WORD = 32
"""Bits of a word, and rows of x in a step."""
_PIECES = {"tf32x3": 3, "tf32": 2, "bf16": 1}
"""Pieces of 8 bits each: 24, 16 (tf32 itself has 11, at the same cost) and 8."""
WARPS = 2
"""Warps of a program: with 4 the products of 64 rows are those of a warp group (wgmma)."""
WIDTHS = {2: 32, 4: 64}
"""Columns of a program by its warps: the fewer, the more programs there is room for at a time."""


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
    width = min(WIDTHS[WARPS], max(16, triton.next_power_of_2(d)))
    tiles = count_tiles(V, B, _HEIGHT)
    replicas = x.numel() // (V * d)
    tables = None if terms is None else terms.tables(replicas, tiles)
    *given, _ = pointers(terms, tables, x)
    _dense_kernel[(tiles, replicas, triton.cdiv(d, width))](
        x, out, tiles_of(edges.graphs, edges, _HEIGHT, edges.memo), edges.bits.words,
        x if scale is None else scale.detach().contiguous(),
        *given, B, V, d,
        OWN=own, **switches(terms), PIECES=_PIECES[precision], LONG=V * d >= 2**31,
        T=_HEIGHT, C=_WORD, WIDTH=width, num_warps=WARPS, num_stages=2,
    )  # fmt: skip
    return out, tables


@triton.jit
def _top(values):  # type: ignore[no-untyped-def]
    """The first 8 bits of numbers, exactly a bfloat16; cut off, not rounded, which takes no conversion."""
    return (values.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["B", "V"])
def _dense_kernel(  # type: ignore[no-untyped-def]
    x, out, table, words, scale,
    mean, var, gamma, beta, before, spread, index, sizes, plain, along, epsilon, divisor, B, V, d,
    OWN: tl.constexpr, NORMED: tl.constexpr, SLOPES: tl.constexpr, SPREAD: tl.constexpr,
    PIECES: tl.constexpr, LONG: tl.constexpr, T: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = tl.program_id(1).to(tl.int64)
    program = replica * tl.num_programs(0) + tl.program_id(0)
    graph, first, end, top, word_at = tile_at(table, program)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < d
    base = replica * V  # first slot of this replica; slots are counted from it
    x += base * d
    out += base * d
    scale += base
    real = graph < B
    row = top + tl.arange(0, T)
    used = (row < end) & real
    # A tile without a row walks nothing.
    n = tl.where(real & (top < end), end - first, 0)
    # The rows of bits of a graph lie one after another, with as many words each.
    local = row - first
    words += word_at + local * tl.cdiv(n, C)
    centre, factor, shift = columns, columns, columns  # not read
    if NORMED:
        centre, factor, shift = affine(mean, var, gamma, beta, replica * d + columns, wide, epsilon, True)
    total = tl.zeros([T, WIDTH], tl.float32)
    lane = tl.arange(0, C)
    bit = 1 << lane
    next_word = tl.load(words, mask=used, other=0)
    for c in range(0, n, C):
        word = next_word
        next_word = tl.load(words + (c // C + 1), mask=used & (c + C < n), other=0)  # it arrives meanwhile
        if OWN:  # a row is its own neighbour
            at = local - c
            word = word | tl.where((at >= 0) & (at < C), 1 << (at & (C - 1)), 0)
        joined = tl.where((word[:, None] & bit[None, :]) != 0, 1.0, 0.0).to(tl.bfloat16)
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
            total = tl.dot(joined, cut.to(tl.bfloat16), total)
    place = row[:, None].to(tl.int64) * d if LONG else row[:, None] * d
    place = place + columns[None, :]
    seen = used[:, None] & wide[None, :]
    if OWN:
        total *= tl.load(scale + row, mask=used, other=0.0)[:, None]
    if SPREAD:
        share = share_of(replica * (B + 1) + graph, real, sizes, divisor)
        part = tl.load(spread + (replica * B + graph) * d + columns, mask=wide & real, other=0.0) * share
        total += part[None, :]
    if SLOPES:
        total = tl.where(seen, total, 0.0)
        slopes(
            total, place, seen, columns, wide, replica, program, d,
            mean, var, before + base * d, plain, along, epsilon,
        )  # fmt: skip
    tl.store(out + place, total, mask=(row < end)[:, None] & wide[None, :])
