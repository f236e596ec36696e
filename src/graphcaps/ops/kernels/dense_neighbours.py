"""Products with the adjacency of well connected graphs: tiles of bits against tiles of rows.

Where a node has many neighbours, gathering a row for each of them reads the same rows again and again. A tile
of 32 × 32 bits, as zeros and ones, times 32 rows reads them once for 32 nodes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.tiling import SEARCH, tile_of
from graphcaps.types import EdgeTable

__all__ = ["dense_product", "serves"]

_TILE = 32
PRECISION = "tf32x3"


def serves(edges: EdgeTable) -> bool:
    """Whether the bits of these edges are there and worth walking."""
    return edges.weight is None and edges.graphs is not None and edges.bits is not None and edges.bits.dense


def dense_product(x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool) -> Tensor:
    """As :func:`graphcaps.ops.kernels.neighbours.neighbour_product`, without gradient."""
    assert edges.bits is not None
    assert edges.graphs is not None
    x = x.contiguous()
    out = torch.empty_like(x)
    V, d = x.shape[-2:]
    if not x.numel():
        return out
    B = edges.graphs.size(-1) - 1
    width = min(128, max(16, triton.next_power_of_2(d)))
    tiles = V // _TILE + B + 1
    _dense_kernel[(tiles, x.numel() // (V * d), triton.cdiv(d, width))](
        x, out, edges.graphs.contiguous(), edges.node.contiguous(), edges.ptr,
        edges.bits.start, edges.bits.words, x if scale is None else scale.detach().contiguous(), V, B, d,
        OWN=own, SCALED=scale is not None, T=_TILE, SEARCH=SEARCH, WIDTH=width, PRECISION=PRECISION,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return out


@triton.jit
def _root(node, ptr, inside):  # type: ignore[no-untyped-def]
    """1 / √(1 + number of neighbours) of nodes of the store."""
    start = tl.load(ptr + node, mask=inside, other=0)
    return tl.rsqrt((tl.load(ptr + node + 1, mask=inside, other=0) - start + 1).to(tl.float32))


@triton.jit(do_not_specialize=["V", "B"])
def _dense_kernel(  # type: ignore[no-untyped-def]
    x, out, graphs, node, ptr, start, words, scale, V, B, d,
    OWN: tl.constexpr, SCALED: tl.constexpr, T: tl.constexpr, SEARCH: tl.constexpr, WIDTH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < d
    base = replica * V
    graph, first, end = tile_of(graphs + replica * (B + 1), tile, V, B, T, SEARCH)
    row = first + (tile - first // T - graph) * T + tl.arange(0, T)
    inside = row < end
    used = inside & (graph < B)
    n = end - first
    held = tl.load(node + base + row, mask=used, other=0)
    row_words = words + tl.load(start + held, mask=used, other=0)
    lane = tl.arange(0, T)
    total = tl.zeros([T, WIDTH], tl.float32)
    for c in range(0, tl.max(tl.where(used, n, 0), 0), T):
        word = tl.load(row_words + c // T, mask=used, other=0)
        joined = ((word[:, None] >> lane[None, :]) & 1).to(tl.float32)
        there = c + lane < n
        slot = base + first + c + lane
        values = tl.load(
            x + slot[:, None] * d + columns[None, :], mask=there[:, None] & wide[None, :], other=0.0
        )
        if OWN:
            if SCALED:
                s = tl.load(scale + slot, mask=there, other=0.0)
            else:
                s = _root(tl.load(node + slot, mask=there, other=0), ptr, there)
            values *= s[:, None]
        total = tl.dot(joined, values, total, input_precision=PRECISION)
    place = (base + row)[:, None] * d + columns[None, :]
    if OWN:
        mine = tl.load(scale + base + row, mask=used, other=0.0) if SCALED else _root(held, ptr, used)
        value = tl.load(x + place, mask=used[:, None] & wide[None, :], other=0.0)
        total = mine[:, None] * (total + mine[:, None] * value)
        total = tl.where(used[:, None], total, 0.0)
    tl.store(out + place, total, mask=inside[:, None] & wide[None, :])
