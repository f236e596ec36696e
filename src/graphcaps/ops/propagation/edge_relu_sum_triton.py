r"""The messages of GINE, read from the store's neighbour lists; none is stored.

The matrix of edges and the kinds are symmetric, so the gradient of x is a sum over neighbours too:

.. math:: \bar x_j = \sum_{i \in N(j)} w_{ij} [x_j + \beta_{k(ij)} > 0]\, \bar y_i

with a bar for gradients. That of the labels is a sum over all edges: a program sums those of some blocks of rows as
products with the one-hot labels, in float32, and the sums of the programs are added in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops.propagation.modulated_hop import kind_table
from graphcaps.ops.propagation.modulated_hop_triton import kind_one_hot, labelled_lists, labelled_neighbour
from graphcaps.types import EdgeTable

__all__ = ["edge_relu_sum"]

_BLOCK_NUMBERS = 2048
"""Numbers of a block of rows of the sum."""
_GRADIENT_ROWS, _GRADIENT_WIDTH = 32, 64
"""Rows and columns of a block of the gradient kernel."""
_LABELS = 64
"""Largest number of labels of a program of the gradient kernel."""
_PARTS = 32
"""Largest number of programs that share the rows of a replica in the gradient kernel."""


@triton.jit(do_not_specialize=["V", "blocks"])
def _sum_kernel(  # type: ignore[no-untyped-def]
    x, grad, beta, out, starts, counts, first, neighbours, kinds, weight, ones, V, R, D, blocks,
    WEIGHTED: tl.constexpr, BACKWARD: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V  # first row of this replica
    rows = (tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside, wide = rows < V, columns < D
    start = tl.load(starts + base + rows, mask=inside, other=-1)
    count = tl.load(counts + base + rows, mask=inside, other=0)
    begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
    x += base * D
    grad += base * D
    ones += base
    beta += replica * R * D
    offsets = (rows.to(tl.int64) * D if LONG else rows * D) + columns
    own = tl.load(x + offsets, mask=inside & (start >= 0) & wide, other=0.0)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for k in range(0, tl.max(count)):
        has, neighbour, kind, share = labelled_neighbour(
            k, start, count, begin, neighbours, kinds, weight, ones, WEIGHTED
        )
        at = (neighbour.to(tl.int64) * D if LONG else neighbour * D) + columns
        term = tl.load(beta + (kind * D + columns), mask=has & wide, other=0.0)
        if BACKWARD:
            values = tl.load(grad + at, mask=has & wide, other=0.0)
            total += tl.where(own + term > 0, share * values, 0.0)
        else:
            values = tl.load(x + at, mask=has & wide, other=0.0) + term
            total += share * tl.where(values < 0, 0.0, values)  # unlike tl.maximum, keeps NaN
    tl.store(out + base * D + offsets, total, mask=inside & wide)


@triton.jit(do_not_specialize=["V", "blocks"])
def _label_kernel(  # type: ignore[no-untyped-def]
    x, grad, beta, one_hot, sums, starts, counts, first, neighbours, kinds, weight, ones,
    V, R, Q, D, blocks, parts,
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
    ones += base
    beta += replica * R * D
    total = tl.zeros([LABELS, WIDTH], tl.float32)
    for block in range(part, blocks, parts):
        rows = (block * ROWS + tl.arange(0, ROWS))[:, None]
        inside = rows < V
        start = tl.load(starts + base + rows, mask=inside, other=-1)
        count = tl.load(counts + base + rows, mask=inside, other=0)
        begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
        offsets = (rows.to(tl.int64) * D if LONG else rows * D) + columns
        g = tl.load(grad + offsets, mask=inside & (start >= 0) & wide, other=0.0)
        for k in range(0, tl.max(count)):
            has, neighbour, kind, share = labelled_neighbour(
                k, start, count, begin, neighbours, kinds, weight, ones, WEIGHTED
            )
            at = (neighbour.to(tl.int64) * D if LONG else neighbour * D) + columns
            values = tl.load(x + at, mask=has & wide, other=0.0)
            values += tl.load(beta + (kind * D + columns), mask=has & wide, other=0.0)
            labels = one_hot + (kind * Q + label[None, :])
            held = share * tl.load(labels, mask=has & known[None, :], other=0).to(tl.float32)
            total = tl.dot(tl.trans(held), tl.where(values > 0, g, 0.0), total, input_precision="ieee")
    at = ((replica * parts + part) * Q + label)[:, None] * D + columns
    tl.store(sums + at, total, mask=known[:, None] & wide)


def _sum(x: Tensor, grad: Tensor | None, beta: Tensor, edges: EdgeTable) -> Tensor:
    """The sums of the messages or, with their gradient, the gradient of x."""
    V, d = x.shape[-2:]
    width = min(128, tile_width(d))
    rows = min(64, _BLOCK_NUMBERS // width)
    blocks, out = triton.cdiv(V, rows), torch.empty_like(x)
    lists = labelled_lists(edges, x.new_ones(x.shape[:-1]), x)
    _sum_kernel[(x.numel() // (V * d) * blocks, triton.cdiv(d, width))](
        x, x if grad is None else grad, beta, out, *lists, V, beta.size(-2), d, blocks,
        WEIGHTED=edges.weight is not None, BACKWARD=grad is not None, LONG=V * d >= 2**31, ROWS=rows, WIDTH=width,
        num_warps=4,
    )  # fmt: skip
    return out


def _label_gradient(
    x: Tensor, grad: Tensor, beta: Tensor, edges: EdgeTable, edge_kinds: tuple[int, ...]
) -> Tensor:
    """The gradient of the labels, ``[*lead, n_1 + … + n_C, d]``."""
    *lead, V, d = x.shape
    one_hot = kind_one_hot(edge_kinds, x.device)
    Q, replicas = one_hot.size(1), torch.Size(lead).numel()
    width = min(_GRADIENT_WIDTH, tile_width(d))
    labels = min(_LABELS, tile_width(Q))
    blocks = triton.cdiv(V, _GRADIENT_ROWS)
    parts = min(_PARTS, blocks)
    sums = x.new_empty(replicas, parts, Q, d)
    lists = labelled_lists(edges, x.new_ones(x.shape[:-1]), x)
    _label_kernel[(replicas * parts, triton.cdiv(d, width), triton.cdiv(Q, labels))](
        x, grad, beta, one_hot, sums, *lists, V, beta.size(-2), Q, d, blocks, parts,
        WEIGHTED=edges.weight is not None, LONG=V * d >= 2**31, ROWS=_GRADIENT_ROWS, WIDTH=width, LABELS=labels,
        num_warps=4,
    )  # fmt: skip
    return sums.sum(1).reshape(*lead, Q, d)


class _EdgeReluSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: Tensor, edges: EdgeTable, edge_kinds: tuple[int, ...]) -> Tensor:
        x, beta = x.contiguous(), kind_table(shift, edge_kinds).contiguous()
        ctx.save_for_backward(x, beta)
        ctx.arguments = edges, edge_kinds
        return _sum(x, None, beta, edges)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, beta = ctx.saved_tensors
        edges, edge_kinds = ctx.arguments
        grad = grad.contiguous()
        grad_x = _sum(x, grad, beta, edges) if ctx.needs_input_grad[0] else None
        shift = _label_gradient(x, grad, beta, edges, edge_kinds) if ctx.needs_input_grad[1] else None
        return grad_x, shift, None, None


def edge_relu_sum(x: Tensor, shift: Tensor, edges: EdgeTable, edge_kinds: tuple[int, ...]) -> Tensor:
    """As :func:`graphcaps.ops.propagation.edge_relu_sum.edge_relu_sum`; edge weights get no gradient."""
    y: Tensor = _EdgeReluSum.apply(x, shift, edges, edge_kinds)
    return y
