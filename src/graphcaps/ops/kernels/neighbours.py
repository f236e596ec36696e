"""Products with the adjacency, read straight from the store's lists of neighbours.

A program owns a block of slots, and their first neighbours are gathered side by side, four of each at a time.
Where slots have more, :mod:`graphcaps.ops.kernels.hubs` has added up the rest before. So nothing is expanded to
a list of edges, and every sum has one order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.dense_neighbours import dense_product, serves
from graphcaps.ops.kernels.gather import four
from graphcaps.ops.kernels.hop_terms import (
    Terms,
    affine,
    normalised,
    pointers,
    share_of,
    slopes,
    switches,
)
from graphcaps.ops.kernels.hubs import add_hubs
from graphcaps.ops.kernels.precision import dot_precision
from graphcaps.types import EdgeTable

__all__ = ["neighbour_product", "product_with"]

_SMALL_DEGREE = 32
"""Up to this many neighbours all of them are gathered side by side."""
_HEAD = 8
"""Neighbours of a slot that are, where there are slots with more."""
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
        scale = _lists(edges)[0]
    if serves(edges):
        return dense_product(x, edges, scale, own, precision, terms)
    return _launch(x, edges, scale, own, terms)


def _lists(edges: EdgeTable) -> tuple[Tensor, Tensor, Tensor]:
    """Of each slot 1 / √(1 + number of neighbours), the first of them in the store's list, and their number.

    ``[*lead, V]`` each, kept for the batch: looked up once, a product has one load less to wait for. At padding
    0, −1 and 0.
    """
    if "lists" not in edges.memo:
        node = edges.node.contiguous()
        roots, count = (torch.empty_like(node, dtype=kind) for kind in (torch.float32, torch.int32))
        start = torch.empty_like(node)
        if node.numel():
            _lists_kernel[(triton.cdiv(node.numel(), 512),)](
                node, edges.ptr, roots, start, count, node.numel(), ROWS=512
            )
        edges.memo["lists"] = roots, start, count
    kept: tuple[Tensor, Tensor, Tensor] = edges.memo["lists"]
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
    head = _SMALL_DEGREE if small else _HEAD
    rows = min(64, _AT_ONCE // width)
    blocks = triton.cdiv(V, rows)
    replicas = x.numel() // (V * d)
    tables = None if terms is None else terms.tables(replicas, blocks)
    lists, rest = _lists(edges)[1:], pointers(terms, tables, x)
    first = edges.first.contiguous()
    common: dict[str, Any] = {"UNIT": unit, "WEIGHTED": edges.weight is not None, "OWN": own, "HEAD": head,
                              "NORMED": switches(terms)["NORMED"], "LONG": V * d >= 2**31, "WIDTH": width}  # fmt: skip
    weight = x if edges.weight is None else edges.weight.detach().contiguous()
    given = x if scale is None else scale.detach().contiguous()
    if not small:
        add_hubs(x, out, lists, first, edges.neighbours, weight, given, rest, common)
    _product_kernel[(replicas * blocks, triton.cdiv(d, width))](
        x, out, *lists, first, edges.neighbours, weight, given, *rest, V, d // unit, blocks,
        **common, SLOPES=switches(terms)["SLOPES"], SPREAD=switches(terms)["SPREAD"],
        TAIL=not small, ROWS=rows, num_warps=4,
    )  # fmt: skip
    return out, tables


@triton.jit(do_not_specialize=["N"])
def _lists_kernel(node, ptr, roots, start, count, N, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    slot = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = slot < N
    held = tl.load(node + slot, mask=inside, other=-1)
    real = inside & (held >= 0)
    first = tl.load(ptr + held, mask=real, other=-1)
    number = tl.where(real, tl.load(ptr + held + 1, mask=real, other=0) - first, 0).to(tl.int32)
    tl.store(roots + slot, tl.where(real, tl.rsqrt((number + 1).to(tl.float32)), 0.0), mask=inside)
    tl.store(start + slot, first, mask=inside)
    tl.store(count + slot, number, mask=inside)


@triton.jit(do_not_specialize=["B", "V", "units", "blocks"])
def _product_kernel(  # type: ignore[no-untyped-def]
    x, out, starts, counts, first, neighbours, weight, scale,
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
    start = tl.load(starts + base + rows, mask=inside, other=-1)
    count = tl.load(counts + base + rows, mask=inside, other=0)
    begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
    real = inside & (start >= 0)
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
        total = four(
            total, x, start_ + k, tl.minimum(count_, HEAD) - k, begin_, neighbours, weight, scale,
            columns, wide, centre, factor, shift, D, 1, WEIGHTED, OWN, NORMED, LONG,
        )  # fmt: skip
    if TAIL:  # what the rest of a long list adds up to lies where the result will
        rest = out + base * D + place
        total += tl.load(rest, mask=seen & (count > HEAD)[:, None], other=0.0)
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
