"""Products with the adjacency, read straight from the store's lists of neighbours.

A program owns a block of slots. The first neighbours of all its slots are gathered side by side, four of each
at a time; a slot with more than that has the rest gathered in chunks of many rows. So molecules and hubs of
thousands take the same kernel, nothing is expanded to a list of edges, and every sum has one order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.dense_neighbours import dense_product, serves
from graphcaps.ops.kernels.hop_terms import (
    Terms,
    affine,
    normalised,
    pointers,
    share_of,
    slopes,
    switches,
)
from graphcaps.ops.kernels.precision import dot_precision
from graphcaps.types import EdgeTable

__all__ = ["neighbour_product", "product_with"]

_SMALL_DEGREE = 32
"""Up to this many neighbours all of them are gathered side by side."""
_HUB_WARPS = 8
"""Warps where hubs are looked for: there is more to keep in registers, so each holds fewer rows."""
_AT_ONCE = 2048
"""Numbers of a block of rows; four such blocks are in flight at a time, in registers."""


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
    found: Tensor = _Product.apply(x, edges, scale, own, dot_precision())
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool, precision: str
    ) -> Tensor:
        ctx.given = edges, scale, own, precision
        return product_with(x, edges, scale, own, precision)[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Product.apply(grad, *ctx.given), None, None, None, None


def product_with(
    x: Tensor,
    edges: EdgeTable,
    scale: Tensor | None,
    own: bool,
    precision: str,
    terms: Terms | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    """The product and, in a backward pass with ``terms``, its tables of sums ``[replicas, parts, d]``."""
    if own and scale is None:
        scale = _roots(edges)
    if serves(edges):
        return dense_product(x, edges, scale, own, precision, terms)
    return _launch(x, edges, scale, own, terms)


def _roots(edges: EdgeTable) -> Tensor:
    """1 / √(1 + number of neighbours) of each slot, ``[*lead, V]``, kept for the batch."""
    if "roots" not in edges.memo:
        node = edges.node.contiguous()
        found = torch.empty_like(node, dtype=torch.float32)
        if node.numel():
            _roots_kernel[(triton.cdiv(node.numel(), 1024),)](node, edges.ptr, found, node.numel(), ROWS=1024)
        edges.memo["roots"] = found
    kept: Tensor = edges.memo["roots"]
    return kept


def _launch(
    x: Tensor, edges: EdgeTable, scale: Tensor | None, own: bool, terms: Terms | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
    x = x.contiguous()
    out = torch.empty_like(x)
    V, d = x.shape[-2:]
    if not x.numel():
        return out, None
    width = min(128, max(16, triton.next_power_of_2(d)))
    unit = 4 if d % 4 == 0 else 2 if d % 2 == 0 else 1  # numbers that a load takes at once
    small = edges.max_degree is not None and edges.max_degree <= _SMALL_DEGREE
    rows = min(64, _AT_ONCE // width)
    blocks = triton.cdiv(V, rows)
    replicas = x.numel() // (V * d)
    tables = None if terms is None else terms.tables(replicas, blocks)
    _product_kernel[(replicas * blocks, triton.cdiv(d, width))](
        x, out, edges.node.contiguous(), edges.first.contiguous(), edges.ptr, edges.neighbours,
        x if edges.weight is None else edges.weight.detach().contiguous(),
        x if scale is None else scale.detach().contiguous(),
        *pointers(terms, tables, x), V, d // unit, blocks,
        UNIT=unit, WEIGHTED=edges.weight is not None, OWN=own,
        **switches(terms), LONG=V * d >= 2**31,
        HEAD=_SMALL_DEGREE if small else 8, TAIL=not small, ROWS=rows, WIDTH=width,
        num_warps=4 if small else _HUB_WARPS,
    )  # fmt: skip
    return out, tables


@triton.jit(do_not_specialize=["N"])
def _roots_kernel(node, ptr, out, N, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    slot = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = slot < N
    held = tl.load(node + slot, mask=inside, other=-1)
    real = inside & (held >= 0)
    count = tl.load(ptr + held + 1, mask=real, other=0) - tl.load(ptr + held, mask=real, other=0)
    tl.store(out + slot, tl.where(real, tl.rsqrt((count + 1).to(tl.float32)), 0.0), mask=inside)


@triton.jit
def _row(  # type: ignore[no-untyped-def]
    x, slot, has, entry, weight, scale, columns, wide, centre, factor, shift, D,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """What a neighbour adds to the sum, 0 where there is none."""
    at = slot.to(tl.int64) * D if LONG else slot * D
    values = tl.load(x + (at + columns[None, :]), mask=has & wide[None, :], other=0.0)
    if NORMED:  # 0 where there is no neighbour, by its scale
        values = normalised(values, centre, factor, shift)
    if WEIGHTED:
        values *= tl.load(weight + entry, mask=has, other=0.0)
    if OWN:
        values *= tl.load(scale + slot, mask=has, other=0.0)
    return values


@triton.jit
def _four(  # type: ignore[no-untyped-def]
    total, x, entry, left, begin, neighbours, weight, scale, columns, wide, centre, factor, shift,
    D, STEP: tl.constexpr,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """Adds the entries ``entry``, ``entry + STEP``, … of lists that have ``left`` to go.

    Four at a time: a load that waits for another one is what a gather of a few rows spends its time on.
    """
    i, j, k, m = left > 0, left > STEP, left > 2 * STEP, left > 3 * STEP
    a = begin + tl.load(neighbours + entry, mask=i, other=0).to(tl.int32)
    b = begin + tl.load(neighbours + entry + STEP, mask=j, other=0).to(tl.int32)
    c = begin + tl.load(neighbours + entry + 2 * STEP, mask=k, other=0).to(tl.int32)
    d = begin + tl.load(neighbours + entry + 3 * STEP, mask=m, other=0).to(tl.int32)
    p = _row(x, a, i, entry, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    q = _row(x, b, j, entry + STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    r = _row(x, c, k, entry + 2 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    s = _row(x, d, m, entry + 3 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    return total + p + q + r + s


@triton.jit(do_not_specialize=["B", "V", "units", "blocks"])
def _product_kernel(  # type: ignore[no-untyped-def]
    x, out, node, first, ptr, neighbours, weight, scale,
    mean, var, gamma, beta, before, spread, index, graphs, plain, along, epsilon, divisor, B, V, units, blocks,
    UNIT: tl.constexpr, WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, SLOPES: tl.constexpr,
    SPREAD: tl.constexpr, LONG: tl.constexpr, HEAD: tl.constexpr, TAIL: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V  # first slot of this replica; slots are counted from it
    rows = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    wide = columns < D
    inside = rows < V
    held = tl.load(node + base + rows, mask=inside, other=-1)
    real = inside & (held >= 0)
    start = tl.load(ptr + held, mask=real, other=0)
    count = (tl.load(ptr + held + 1, mask=real, other=0) - start).to(tl.int32)
    begin = tl.load(first + base + rows, mask=real, other=0).to(tl.int32)
    x += base * D
    scale += base
    place = rows[:, None].to(tl.int64) * D if LONG else rows[:, None] * D
    place = place + columns[None, :]
    seen = real[:, None] & wide[None, :]
    centre, factor, shift = columns, columns, columns  # not read
    if NORMED:
        centre, factor, shift = affine(mean, var, gamma, beta, replica * D + columns, wide, epsilon, True)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    # Columns from here on: Triton 3.6 fails to compile a load of a row of indices that is turned in the loop.
    start_, begin_, count_ = start[:, None], begin[:, None], count[:, None]
    for k in range(0, tl.max(tl.minimum(count, HEAD), 0), 4):
        total = _four(
            total, x, start_ + k, tl.minimum(count_, HEAD) - k, begin_, neighbours, weight, scale,
            columns, wide, centre, factor, shift, D, 1, WEIGHTED, OWN, NORMED, LONG,
        )  # fmt: skip
    if TAIL:  # noqa: SIM102 - known when it is compiled; what follows is not
        if tl.max(count, 0) > HEAD:
            lane = tl.arange(0, ROWS)
            for r in range(0, ROWS):
                this = lane == r
                left = tl.max(tl.where(this, count - HEAD, 0), 0)
                if left > 0:
                    at = tl.max(tl.where(this, start, 0), 0) + HEAD
                    begin_one = tl.max(tl.where(this, begin, 0), 0)
                    rest = tl.zeros([ROWS, WIDTH], tl.float32)
                    for k in range(0, left, 4 * ROWS):
                        rest = _four(
                            rest, x, at + (k + lane)[:, None], left - (k + lane)[:, None], begin_one,
                            neighbours, weight, scale, columns, wide, centre, factor, shift,
                            D, ROWS, WEIGHTED, OWN, NORMED, LONG,
                        )  # fmt: skip
                    total += tl.where(this[:, None], tl.sum(rest, 0)[None, :], 0.0)
    if OWN:
        s = tl.load(scale + rows, mask=real, other=0.0)[:, None]
        mine = tl.load(x + place, mask=seen, other=0.0)
        if NORMED:
            mine = normalised(mine, centre, factor, shift)
        total = s * (total + s * mine)
    if SPREAD:
        graph = tl.load(index + base + rows, mask=real, other=0)
        share = share_of(replica * (B + 1) + graph, real, graphs, divisor)
        part = spread + (replica * B + graph)[:, None] * D + columns[None, :]
        total += tl.load(part, mask=seen, other=0.0) * share[:, None]
    if SLOPES:
        total = tl.where(seen, total, 0.0)
        slopes(
            total, place, seen, columns, wide, replica, tl.program_id(0).to(tl.int64), D,
            mean, var, before + base * D, plain, along, epsilon,
        )  # fmt: skip
    tl.store(out + base * D + place, total, mask=inside[:, None] & wide[None, :])
