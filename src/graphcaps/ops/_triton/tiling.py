"""Which rows of which graph a program owns, where graphs are cut into tiles of one height.

It is looked up once per batch, so that a program has one load to wait for before it knows its rows.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.types import EdgeTable

__all__ = ["count_tiles", "tile_at", "tile_table"]

_BLOCK = 128  # tiles of a program that looks them up


def count_tiles(V: int, B: int, height: int) -> int:
    """Tiles of V rows in B graphs: never fewer than they need, the padding behind them included."""
    return V // height + B + 1


def tile_table(ptr: Tensor, edges: EdgeTable, height: int, memo: dict[Any, Any]) -> Tensor:
    """For each tile of ``height`` rows what :func:`tile_at` reads, ``[replicas, tiles, 6]``, kept in ``memo``.

    Args:
        ptr (Tensor): First row of each graph, and the end of the last, ``[*lead, B + 1]``.
        edges (EdgeTable): Has the bits, where there are any.
        height (int): Rows of a tile, one of the powers of two.
        memo (dict): Of the edges, where ``ptr`` is theirs; a new one where it is not.
    """
    key = ("tiles of rows", height)
    if key not in memo:
        ptr, node, bits = ptr.contiguous(), edges.node.contiguous(), edges.bits
        V, B = node.size(-1), ptr.size(-1) - 1
        tiles, replicas = count_tiles(V, B, height), ptr.numel() // (B + 1)
        table = torch.empty(replicas, tiles, 6, dtype=torch.int32, device=ptr.device)
        if replicas:
            _tiles_kernel[(triton.cdiv(tiles, _BLOCK), replicas)](
                ptr, node, node if bits is None else bits.start, table, V, B, tiles, B.bit_length(),
                T=height, BITS=bits is not None, BLOCK=_BLOCK, num_warps=4,
            )  # fmt: skip
        memo[key] = table
    kept: Tensor = memo[key]
    return kept


@triton.jit
def tile_at(table, tile):  # type: ignore[no-untyped-def]
    """Graph of a tile, the graph's first row, its end, the tile's first row, and the graph's first word.

    Graph B is the padding behind all graphs. The rows of bits of a graph lie one after another from that word
    on. A tile that its graph does not need begins at or behind its end.
    """
    table += tile * 6
    word = tl.load(table + 4).to(tl.int64) << 32
    word = word | (tl.load(table + 5).to(tl.int64) & 0xFFFFFFFF)
    return tl.load(table), tl.load(table + 1), tl.load(table + 2), tl.load(table + 3), word


@triton.jit(do_not_specialize=["V", "B", "tiles", "steps"])
def _tiles_kernel(  # type: ignore[no-untyped-def]
    ptr, node, start, table, V, B, tiles, steps, T: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr
):
    """Tiles of graph g begin at ptr[g] // T + g: no running count of tiles, and a search by halves finds g."""
    replica = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = tile < tiles
    ptr += replica * (B + 1)
    graph = tl.zeros([BLOCK], tl.int32)  # the last that has begun
    behind = graph + B + 1  # the first that has not
    for _ in range(0, steps):
        middle = (graph + behind) // 2
        begun = tl.load(ptr + middle).to(tl.int32) // T + middle <= tile
        graph = tl.where(begun, middle, graph)
        behind = tl.where(begun, behind, middle)
    first = tl.load(ptr + graph).to(tl.int32)
    end = tl.load(ptr + graph + 1, mask=graph < B, other=V).to(tl.int32)
    table += (replica * tiles + tile) * 6
    tl.store(table, graph, mask=inside)
    tl.store(table + 1, first, mask=inside)
    tl.store(table + 2, end, mask=inside)
    tl.store(table + 3, first + (tile - first // T - graph) * T, mask=inside)
    if BITS:
        held = (graph < B) & (first < end)
        own = tl.load(node + replica * V + first, mask=held, other=0)
        word = tl.load(start + own, mask=held, other=0)
        tl.store(table + 4, (word >> 32).to(tl.int32), mask=inside)
        tl.store(table + 5, word.to(tl.int32), mask=inside)
