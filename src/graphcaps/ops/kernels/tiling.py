"""Which rows of which graph a program owns, where graphs are cut into tiles of one height."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["SEARCH", "tile_of"]

SEARCH = 256
"""Graphs that are looked at side by side."""


@triton.jit
def tile_of(ptr, tile, V, B, T: tl.constexpr, SEARCH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Graph of a tile of T rows, its first row and its end; graph B is the padding behind all graphs.

    Tiles of graph g begin at ptr[g] // T + g: never fewer than it needs, and no running count of tiles. There
    are V // T + B + 1 of them. The rows of the tile are first + (tile − first // T − graph) T + 0 … T − 1.
    """
    # The graph of the tile is the last that has begun; the padding behind them all is asked first.
    last = tl.load(ptr + B).to(tl.int32)
    behind = last // T + B <= tile
    counts = tl.zeros([SEARCH], tl.int32)
    firsts, ends = counts + tl.where(behind, last, 0), counts + tl.where(behind, V, last)
    for look in range(0, B, SEARCH):
        at = look + tl.arange(0, SEARCH)
        begin = tl.load(ptr + at, mask=at < B, other=V).to(tl.int32)
        begun = (begin // T + at <= tile) & (at < B)
        counts += begun.to(tl.int32)
        firsts = tl.maximum(firsts, tl.where(begun, begin, 0))
        ends = tl.minimum(ends, tl.where(begun, V, begin))
    graph = tl.sum(counts, 0) + behind.to(tl.int32) - 1
    return graph, tl.max(firsts, 0), tl.min(ends, 0)
