"""A table of the tiles that the graphs of a batch are split into: which rows of which graph a program computes.

The table is made once per batch, so that a program needs a single dependent load to find its rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.memo import remember
from graphcaps.types import EdgeTable, Segments

__all__ = ["count_tiles", "first_row_at", "tile_at", "tile_table"]

_BLOCK = 128  # tiles of a program that looks them up


def count_tiles(V: int, B: int, height: int) -> int:
    """Upper bound on the number of tiles of V rows in B graphs, padding rows included."""
    return V // height + B + 1


def tile_table(edges: EdgeTable, height: int, segments: Segments | None = None) -> Tensor:
    """What :func:`tile_at` reads for each tile of ``height`` rows, ``[replicas, tiles, 6]``, kept with the edges.

    Args:
        edges (EdgeTable): Edges of the batch, with or without adjacency bits.
        height (int): Rows of a tile, a power of two.
        segments (Segments, optional): Graphs of the rows. (default: those of the edges)
    """
    of_edges = segments is None or segments.ptr is edges.graphs

    def make() -> Tensor:
        ptr = edges.graphs if segments is None else segments.ptr
        assert ptr is not None
        ptr, node, bits = ptr.contiguous(), edges.node.contiguous(), edges.bits
        V, B = node.size(-1), ptr.size(-1) - 1
        tiles, replicas = count_tiles(V, B, height), ptr.numel() // (B + 1)
        table = torch.empty(replicas, tiles, 6, dtype=torch.int32, device=ptr.device)
        if replicas:
            _tiles_kernel[(triton.cdiv(tiles, _BLOCK), replicas)](
                ptr, node, node if bits is None else bits.start, table, V, B, tiles, B.bit_length(),
                T=height, BITS=bits is not None, BLOCK=_BLOCK, num_warps=4,
            )  # fmt: skip
        return table

    return remember(edges.memo, ("tiles of rows", height, None if of_edges else segments), make)


@triton.jit
def tile_at(table, tile):  # type: ignore[no-untyped-def]
    """Graph of a tile, the graph's first row and end, the tile's first row, and the graph's first word of bits.

    Graph B is the padding behind all graphs. The rows of bits of a graph are contiguous from that word on. A tile
    that its graph does not need begins at or after the graph's end.
    """
    table += tile * 6
    word = tl.load(table + 4).to(tl.int64) << 32
    word = word | (tl.load(table + 5).to(tl.int64) & 0xFFFFFFFF)
    return tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3), word


@triton.jit
def first_row_at(table, tile):  # type: ignore[no-untyped-def]
    """The first row of a tile, read again where registers do not suffice to keep it."""
    return tl.load(table + tile * 6 + 3, cache_modifier=".ca")


@triton.jit(do_not_specialize=["V", "B", "tiles", "steps"])
def _tiles_kernel(  # type: ignore[no-untyped-def]
    ptr, node, start, table, V, B, tiles, steps, T: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """Tiles of graph g begin at ptr[g] // T + g, which needs no prefix sum; g is found by bisection."""
    replica = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = tile < tiles
    ptr += replica * (B + 1)
    graph = tl.zeros([BLOCK], tl.int32)  # the last that has started
    behind = graph + B + 1  # the first that has not
    for _ in range(0, steps):
        middle = (graph + behind) // 2
        started = tl.load(ptr + middle).to(tl.int32) // T + middle <= tile
        graph = tl.where(started, middle, graph)
        behind = tl.where(started, behind, middle)
    first = tl.load(ptr + graph).to(tl.int32)
    end = tl.load(ptr + graph + 1, mask=graph < B, other=V).to(tl.int32)
    table += (replica * tiles + tile) * 6
    tl.store(table, graph, mask=valid)
    tl.store(table + 1, first, mask=valid)
    tl.store(table + 2, end, mask=valid)
    tl.store(table + 3, first + (tile - first // T - graph) * T, mask=valid)
    if BITS:
        has_rows = (graph < B) & (first < end)
        first_node = tl.load(node + replica * V + first, mask=has_rows, other=0)
        word = tl.load(start + first_node, mask=has_rows, other=0)
        tl.store(table + 4, (word >> 32).to(tl.int32), mask=valid)
        tl.store(table + 5, word.to(tl.int32), mask=valid)
