"""Products with the adjacency, read straight from the store's lists of neighbours.

A program owns a block of slots. The first neighbours of all its slots are gathered side by side, one neighbour
of each at a time; a slot with more than that has the rest gathered in chunks of many rows. So molecules and
hubs of thousands take the same kernel, nothing is expanded to a list of edges, and every sum has one order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.dense_neighbours import dense_product, serves
from graphcaps.types import EdgeTable

__all__ = ["neighbour_product"]

_SMALL_DEGREE = 32
"""Up to this many neighbours all of them are gathered side by side."""


def neighbour_product(
    x: Tensor, edges: EdgeTable, scale: Tensor | None = None, *, own: bool = False
) -> Tensor:
    r"""A x, or with ``own`` the whole hop :math:`s_i (\sum_j A_{ij} s_j x_j + s_i x_i)`.

    Linear in x with a symmetric matrix, so the gradient is the same kernel, to any order. Neither weights nor
    scale get a gradient.

    Args:
        x (Tensor): ``[*lead, V, d]``, float32.
        edges (EdgeTable): A, with or without weights.
        scale (Tensor, optional): s, ``[*lead, V]``. With ``own`` and without ``scale`` it is
            1 / √(1 + number of neighbours).
        own (bool): Whether the scaled row itself joins the sum. (default: False)

    Returns:
        Tensor: ``[*lead, V, d]``, zero at padding.
    """
    found: Tensor = _Product.apply(x, edges, scale, own)
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool) -> Tensor:
        ctx.edges, ctx.scale, ctx.own = edges, scale, own
        return dense_product(x, edges, scale, own) if serves(edges) else _launch(x, edges, scale, own)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return neighbour_product(grad, ctx.edges, ctx.scale, own=ctx.own), None, None, None


def _launch(x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    V, d = x.shape[-2:]
    if not x.numel():
        return out
    width = min(128, max(16, triton.next_power_of_2(d)))
    # Numbers that a load takes at once; d itself is no part of a compilation. Narrow rows of any even length
    # share one with the odd ones.
    unit = 4 if d % 4 == 0 else 2 if d % 2 == 0 and width > 32 else 1
    small = edges.max_degree is not None and edges.max_degree <= _SMALL_DEGREE
    # 4096 numbers in flight per program, half as many where each has its own address in registers; few slots
    # where one of them may keep a program busy for long.
    rows = min(64, (4096 if unit == 4 else 2048) // width) if small else 8
    blocks = triton.cdiv(V, rows)
    _product_kernel[(x.numel() // (V * d) * blocks, triton.cdiv(d, width))](
        x,
        out,
        edges.node.contiguous(),
        edges.first.contiguous(),
        edges.ptr,
        edges.neighbours,
        x if edges.weight is None else edges.weight.detach().contiguous(),
        x if scale is None else scale.detach().contiguous(),
        V,
        d // unit,
        blocks,
        UNIT=unit,
        WEIGHTED=edges.weight is not None,
        OWN=own,
        SCALED=scale is not None,
        HEAD=_SMALL_DEGREE if small else 8,
        TAIL=not small,
        ROWS=rows,
        CHUNK=4096 // width if width > 32 else 128,
        WIDTH=width,
        num_warps=4,
    )
    return out


@triton.jit
def _scale_of(slot, stored, inside, ptr, scale, SCALED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Scale of slots that hold the nodes ``stored``; not given, it follows from the number of neighbours."""
    if SCALED:
        found = tl.load(scale + slot, mask=inside, other=0.0)
    else:
        start = tl.load(ptr + stored, mask=inside, other=0)
        found = tl.rsqrt((tl.load(ptr + stored + 1, mask=inside, other=0) - start + 1).to(tl.float32))
    return found


@triton.jit(do_not_specialize=["V", "units", "blocks"])
def _product_kernel(  # type: ignore[no-untyped-def]
    x, out, node, first, ptr, neighbours, weight, scale, V, units, blocks,
    UNIT: tl.constexpr, WEIGHTED: tl.constexpr, OWN: tl.constexpr, SCALED: tl.constexpr,
    HEAD: tl.constexpr, TAIL: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    D = units * UNIT
    base = (tl.program_id(0) // blocks).to(tl.int64) * V  # first slot of this replica
    block = tl.program_id(0) % blocks
    rows = block * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < D
    inside = rows < V
    own = base + rows
    held = tl.load(node + own, mask=inside, other=-1)
    real = inside & (held >= 0)
    start = tl.load(ptr + held, mask=real, other=0)
    count = (tl.load(ptr + held + 1, mask=real, other=0) - start).to(tl.int32)
    begin = base + tl.load(first + own, mask=real, other=0)
    # The slots of a graph hold its nodes in order: slot + ahead is the node of a neighbour.
    ahead = held - own
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    # Columns from here on: Triton 3.6 fails to compile a load of a row of indices that is turned in the loop.
    start_, begin_, ahead_, count_ = start[:, None], begin[:, None], ahead[:, None], count[:, None]
    for k in range(0, tl.max(tl.minimum(count, HEAD), 0)):
        has = k < count_
        slot = begin_ + tl.load(neighbours + start_ + k, mask=has, other=0)
        values = tl.load(x + slot * D + columns[None, :], mask=has & wide[None, :], other=0.0)
        if WEIGHTED:
            values *= tl.load(weight + start_ + k, mask=has, other=0.0)
        if OWN:
            values *= _scale_of(slot, slot + ahead_, has, ptr, scale, SCALED)
        total += values
    if TAIL:
        for r in range(0, ROWS):
            this = tl.arange(0, ROWS) == r
            left = tl.max(tl.where(this, count - HEAD, 0), 0)
            if left > 0:
                at = tl.max(tl.where(this, start, 0), 0) + HEAD
                begin_one = tl.max(tl.where(this, begin, 0), 0)
                rest = tl.zeros([CHUNK, WIDTH], tl.float32)
                for k in range(0, left, CHUNK):
                    entry = (k + tl.arange(0, CHUNK))[:, None]
                    many = entry < left
                    entry = at + entry
                    slots = begin_one + tl.load(neighbours + entry, mask=many, other=0)
                    gathered = tl.load(x + slots * D + columns[None, :], mask=many & wide[None, :], other=0.0)
                    if WEIGHTED:
                        gathered *= tl.load(weight + entry, mask=many, other=0.0)
                    if OWN:
                        stored = slots + tl.sum(tl.where(this, ahead, 0), 0)
                        gathered *= _scale_of(slots, stored, many, ptr, scale, SCALED)
                    rest += gathered
                total += tl.where(this[:, None], tl.sum(rest, 0)[None, :], 0.0)
    place = own[:, None] * D + columns[None, :]
    if OWN:
        s = _scale_of(own, held, real, ptr, scale, SCALED)[:, None]
        mine = tl.load(x + place, mask=real[:, None] & wide[None, :], other=0.0)
        total = s * (total + s * mine)
    tl.store(out + place, total, mask=inside[:, None] & wide[None, :])
