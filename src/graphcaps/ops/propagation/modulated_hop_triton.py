r"""The hop with edge labels, read from the store's neighbour lists; no message is stored.

A kernel first writes γ and β of every kind. The hop then reads, for each neighbour of a block of rows, the neighbour's
row and the two rows of the edge's kind. The matrix is symmetric and so are the kinds, so the gradient of x is the same
hop of the gradient, without β. The gradients of scale and shift are sums over all edges: a program sums those of some
blocks of rows as products with the one-hot labels, in float32, and the sums of the programs are added in a fixed order.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops.edge_kinds import one_hot_kinds
from graphcaps.ops.propagation.neighbour_sum_triton import hop_scale, neighbour_lists
from graphcaps.types import EdgeTable

__all__ = ["kind_one_hot", "labelled_lists", "labelled_neighbour", "modulated_hop"]

_BLOCK_NUMBERS = 2048
"""Numbers of a block of rows of the hop."""
_GRADIENT_ROWS, _GRADIENT_WIDTH = 32, 64
"""Rows and columns of a block of the gradient kernel."""
_LABELS = 64
"""Largest number of labels of a program of the gradient kernel."""
_PARTS = 32
"""Largest number of programs that share the rows of a replica in the gradient kernel."""
_TABLE_KINDS = 16
"""Kinds of a program of the table kernel."""


@triton.jit
def _table_kernel(  # type: ignore[no-untyped-def]
    scale, shift, one_hot, gamma, beta, R, Q, D, KINDS: tl.constexpr, WIDTH: tl.constexpr
):
    replica = tl.program_id(1).to(tl.int64)
    kind = tl.program_id(0) * KINDS + tl.arange(0, KINDS)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    inside, wide = kind < R, columns < D
    factor = tl.full([KINDS, WIDTH], 1.0, tl.float32)
    term = tl.zeros([KINDS, WIDTH], tl.float32)
    for q in range(0, Q):
        has = tl.load(one_hot + kind * Q + q, mask=inside, other=0).to(tl.float32)[:, None]
        at = (replica * Q + q) * D + columns
        factor += has * tl.load(scale + at, mask=wide, other=0.0)[None, :]
        term += has * tl.load(shift + at, mask=wide, other=0.0)[None, :]
    at = (replica * R + kind)[:, None] * D + columns[None, :]
    valid = inside[:, None] & wide[None, :]
    tl.store(gamma + at, factor, mask=valid)
    tl.store(beta + at, term, mask=valid)


# Rows are kept as columns of a tile from the start: Triton 3.6 fails to compile a load of indices that were loaded and
# reshaped inside a loop.


@triton.jit
def labelled_neighbour(  # type: ignore[no-untyped-def]
    k, start, count, begin, neighbours, kinds, weight, roots, WEIGHTED: tl.constexpr
):
    """Whether rows have a neighbour with number k, its row, the kind of the edge, and its weight times the root."""
    has = k < count
    neighbour = begin + tl.load(neighbours + start + k, mask=has, other=0).to(tl.int32)
    kind = tl.load(kinds + start + k, mask=has, other=0).to(tl.int32)
    share = tl.load(roots + neighbour, mask=has, other=0.0)
    if WEIGHTED:
        share *= tl.load(weight + start + k, mask=has, other=0.0)
    return has, neighbour, kind, share


@triton.jit(do_not_specialize=["V", "blocks"])
def _hop_kernel(  # type: ignore[no-untyped-def]
    x, gamma, beta, out, starts, counts, first, neighbours, kinds, weight, roots, V, R, D, blocks,
    WEIGHTED: tl.constexpr, SHIFTED: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V  # first row of this replica
    rows = (tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside, wide = rows < V, columns < D
    start = tl.load(starts + base + rows, mask=inside, other=-1)
    count = tl.load(counts + base + rows, mask=inside, other=0)
    begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
    real = inside & (start >= 0)
    x += base * D
    roots += base
    gamma += replica * R * D
    beta += replica * R * D
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for k in range(0, tl.max(count)):
        has, neighbour, kind, share = labelled_neighbour(
            k, start, count, begin, neighbours, kinds, weight, roots, WEIGHTED
        )
        at = neighbour.to(tl.int64) * D if LONG else neighbour * D
        values = tl.load(x + (at + columns), mask=has & wide, other=0.0)
        values *= tl.load(gamma + (kind * D + columns), mask=has & wide, other=0.0)
        if SHIFTED:
            values += tl.load(beta + (kind * D + columns), mask=has & wide, other=0.0)
        total += share * values
    root = tl.load(roots + rows, mask=real, other=0.0)
    offsets = (rows.to(tl.int64) * D if LONG else rows * D) + columns
    own = tl.load(x + offsets, mask=real & wide, other=0.0)
    tl.store(out + base * D + offsets, root * (total + root * own), mask=inside & wide)


@triton.jit(do_not_specialize=["V", "blocks"])
def _gradient_kernel(  # type: ignore[no-untyped-def]
    x, grad, one_hot, scale_sums, shift_sums, starts, counts, first, neighbours, kinds, weight, roots,
    V, Q, D, blocks, parts,
    WEIGHTED: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, LABELS: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0) % parts
    replica = (tl.program_id(0) // parts).to(tl.int64)
    base = replica * V
    columns = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    label = tl.program_id(2) * LABELS + tl.arange(0, LABELS)
    wide, known = columns < D, label < Q
    x += base * D
    grad += base * D
    roots += base
    scale_total = tl.zeros([LABELS, WIDTH], tl.float32)
    shift_total = tl.zeros([LABELS, WIDTH], tl.float32)
    for block in range(part, blocks, parts):
        rows = (block * ROWS + tl.arange(0, ROWS))[:, None]
        inside = rows < V
        start = tl.load(starts + base + rows, mask=inside, other=-1)
        count = tl.load(counts + base + rows, mask=inside, other=0)
        begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
        real = inside & (start >= 0)
        offsets = (rows.to(tl.int64) * D if LONG else rows * D) + columns
        g = tl.load(grad + offsets, mask=real & wide, other=0.0)
        g *= tl.load(roots + rows, mask=real, other=0.0)
        shares = tl.zeros([ROWS, LABELS], tl.float32)  # sum over neighbours, of each label
        for k in range(0, tl.max(count)):
            has, neighbour, kind, share = labelled_neighbour(
                k, start, count, begin, neighbours, kinds, weight, roots, WEIGHTED
            )
            at = neighbour.to(tl.int64) * D if LONG else neighbour * D
            values = tl.load(x + (at + columns), mask=has & wide, other=0.0)
            labels = one_hot + (kind * Q + label[None, :])
            held = share * tl.load(labels, mask=has & known[None, :], other=0).to(tl.float32)
            shares += held
            scale_total = tl.dot(tl.trans(held), g * values, scale_total, input_precision="ieee")
        shift_total = tl.dot(tl.trans(shares), g, shift_total, input_precision="ieee")
    at = ((replica * parts + part) * Q + label)[:, None] * D + columns
    valid = known[:, None] & wide
    tl.store(scale_sums + at, scale_total, mask=valid)
    tl.store(shift_sums + at, shift_total, mask=valid)


@cache
def kind_one_hot(edge_kinds: tuple[int, ...], device: torch.device) -> Tensor:
    """One-hot labels of all kinds on a device; made once, because a captured step cannot copy from the host."""
    return one_hot_kinds(edge_kinds, device).contiguous()


def _tables(scale: Tensor, shift: Tensor, edge_kinds: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """γ and β of every kind, ``[*lead, R, d]`` each."""
    *lead, Q, d = scale.shape
    one_hot = kind_one_hot(edge_kinds, scale.device)
    R, width = one_hot.size(0), min(128, tile_width(d))
    gamma, beta = (scale.new_empty(*lead, R, d) for _ in range(2))
    grid = (triton.cdiv(R, _TABLE_KINDS), torch.Size(lead).numel(), triton.cdiv(d, width))
    _table_kernel[grid](
        scale.contiguous(), shift.contiguous(), one_hot, gamma, beta, R, Q, d, KINDS=_TABLE_KINDS, WIDTH=width
    )
    return gamma, beta


def labelled_lists(edges: EdgeTable, roots: Tensor, x: Tensor) -> list[Tensor]:
    """Kernel arguments from ``starts`` to ``roots``; ``x`` replaces weights that are not read."""
    _, start, count = neighbour_lists(edges)
    assert edges.kind is not None
    weight = x if edges.weight is None else edges.weight.detach().contiguous()
    return [start, count, edges.first.contiguous(), edges.neighbours, edges.kind, weight, roots]


def _hop(x: Tensor, gamma: Tensor, beta: Tensor | None, edges: EdgeTable, roots: Tensor) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    V, d = x.shape[-2:]
    width = min(128, tile_width(d))
    rows = min(64, _BLOCK_NUMBERS // width)
    blocks = triton.cdiv(V, rows)
    _hop_kernel[(x.numel() // (V * d) * blocks, triton.cdiv(d, width))](
        x, gamma, gamma if beta is None else beta, out, *labelled_lists(edges, roots, x), V, gamma.size(-2), d, blocks,
        WEIGHTED=edges.weight is not None, SHIFTED=beta is not None, LONG=V * d >= 2**31, ROWS=rows, WIDTH=width,
        num_warps=4,
    )  # fmt: skip
    return out


def _label_gradients(
    x: Tensor, grad: Tensor, edges: EdgeTable, roots: Tensor, edge_kinds: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Gradients of scale and shift, ``[*lead, n_1 + … + n_C, d]`` each."""
    x, grad = x.contiguous(), grad.contiguous()
    *lead, V, d = x.shape
    one_hot = kind_one_hot(edge_kinds, x.device)
    Q, replicas = one_hot.size(1), torch.Size(lead).numel()
    width = min(_GRADIENT_WIDTH, tile_width(d))
    labels = min(_LABELS, tile_width(Q))
    blocks = triton.cdiv(V, _GRADIENT_ROWS)
    parts = min(_PARTS, blocks)
    sums = x.new_empty(2, replicas, parts, Q, d)
    _gradient_kernel[(replicas * parts, triton.cdiv(d, width), triton.cdiv(Q, labels))](
        x, grad, one_hot, sums[0], sums[1], *labelled_lists(edges, roots, x), V, Q, d, blocks, parts,
        WEIGHTED=edges.weight is not None, LONG=V * d >= 2**31, ROWS=_GRADIENT_ROWS, WIDTH=width, LABELS=labels,
        num_warps=4,
    )  # fmt: skip
    scale, shift = sums.sum(2).reshape(2, *lead, Q, d)
    return scale, shift


class _ModulatedHop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        edges: EdgeTable,
        edge_kinds: tuple[int, ...],
        normalised: bool,
    ) -> Tensor:
        roots = hop_scale(edges) if normalised else x.new_ones(x.shape[:-1])
        gamma, beta = _tables(scale, shift, edge_kinds)
        ctx.save_for_backward(x, gamma, roots)
        ctx.arguments = edges, edge_kinds
        return _hop(x, gamma, beta, edges, roots)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, gamma, roots = ctx.saved_tensors
        edges, edge_kinds = ctx.arguments
        grad_x = _hop(grad, gamma, None, edges, roots) if ctx.needs_input_grad[0] else None
        scale = shift = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            scale, shift = _label_gradients(x, grad, edges, roots, edge_kinds)
        return grad_x, scale, shift, None, None, None


def modulated_hop(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    edges: EdgeTable,
    edge_kinds: tuple[int, ...],
    normalised: bool = True,
) -> Tensor:
    """As :func:`graphcaps.ops.modulated_hop`; edge weights get no gradient."""
    y: Tensor = _ModulatedHop.apply(x, scale, shift, edges, edge_kinds, normalised)
    return y
