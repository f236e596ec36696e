r"""The block loss and its gradient: one pass over the rows for sums over graphs, one program per replica for the loss.

The loss is one number per replica, so its derivatives in the sums :math:`M_j`, :math:`N_j` and in the entropy are
computed with it. The gradient of a row follows from them, from :math:`(A c)_i` and from the sums of its graph:

.. math::
    \bar c_{ij} = 2 \bar M_j (A c)_{ij} + 2 \bar N_j \Big(\textstyle\sum_k c_{kj} - c_{ij}\Big)
        - \bar H\, (\log c_{ij} + 1)

A is symmetric, so its product is computed once. Sums have a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.propagation.propagation import degrees, neighbour_sum
from graphcaps.types import EdgeTable, Segments

__all__ = ["block_loss"]

_SMALLEST = tl.constexpr(1e-12)  # as in the torch form
_ROWS = 16


def block_loss(assignment: Tensor, edges: EdgeTable, segments: Segments, temperature: float) -> Tensor:
    """As :func:`graphcaps.ops.block_loss.block_loss.block_loss`, in float32: ``[*lead, V, J]`` to ``[*lead]``."""
    loss: Tensor = _BlockLoss.apply(assignment, edges, segments, temperature)
    return loss


class _BlockLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, c: Tensor, edges: EdgeTable, segments: Segments, temperature: float) -> Tensor:
        c = c.contiguous()
        *lead, V, J = c.shape
        F, B = torch.Size(lead).numel(), segments.num_graphs
        near = neighbour_sum(c, edges)  # A c
        weighted = edges.weight is not None
        node = edges.node.contiguous()
        degree = degrees(edges).contiguous() if weighted else c  # else the lists have it
        sums = c.new_empty(F, B, 2 * J + 3)  # M_j, N_j, entropy, M and N of each graph
        sizes = c.new_empty(F, B, J)
        loss, factors = c.new_empty(lead), c.new_empty(F, 2 * J + 1)
        width = max(2, triton.next_power_of_2(J))
        if F:
            if B:
                _graph_kernel[(B, F)](
                    c, near, segments.ptr.contiguous(), node, edges.ptr, degree, sums, sizes, V, B, J,
                    WEIGHTED=weighted, ROWS=_ROWS, WIDTH=width, num_warps=1 if width <= 32 else 4,
                )  # fmt: skip
            _loss_kernel[(F,)](sums, loss, factors, B, J, temperature, GRAPHS=16, WIDTH=width, num_warps=4)
        ctx.save_for_backward(c, near, sizes, factors, segments.index.contiguous())
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        c, near, sizes, factors, index = ctx.saved_tensors
        V, J = c.shape[-2:]
        F, B = sizes.shape[:2]
        dc = torch.empty_like(c)
        if dc.numel():
            _gradient_kernel[(triton.cdiv(V, _ROWS), F)](
                c, near, sizes, factors, index, grad.contiguous(), dc, V, B, J,
                ROWS=_ROWS, WIDTH=max(2, triton.next_power_of_2(J)), num_warps=4,
            )  # fmt: skip
        return dc, None, None, None


@triton.jit(do_not_specialize=["V", "B", "J"])
def _graph_kernel(  # type: ignore[no-untyped-def]
    c, near, ptr, node, edge_ptr, degree, sums, sizes, V, B, J,
    WEIGHTED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The sums of a graph (program 0) of a replica (1)."""
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    first = tl.load(ptr + r * (B + 1) + b).to(tl.int32)
    end = tl.load(ptr + r * (B + 1) + b + 1).to(tl.int32)
    j = tl.arange(0, WIDTH)
    within = tl.zeros([ROWS, WIDTH], tl.float32)
    size = tl.zeros([ROWS, WIDTH], tl.float32)
    squares = tl.zeros([ROWS, WIDTH], tl.float32)
    entropy = tl.zeros([ROWS, WIDTH], tl.float32)
    ends = tl.zeros([ROWS], tl.float32)
    for top in range(first, end, ROWS):
        row = top + tl.arange(0, ROWS)
        real = row < end
        inside = real[:, None] & (j < J)[None, :]
        offsets = (r * V + row)[:, None] * J + j[None, :]
        share = tl.load(c + offsets, mask=inside, other=0.0)
        within += share * tl.load(near + offsets, mask=inside, other=0.0)
        size += share
        squares += share * share
        entropy -= share * tl.log(_at_least(share, _SMALLEST))
        if WEIGHTED:
            ends += tl.load(degree + r * V + row, mask=real, other=0.0)
        else:
            store = tl.load(node + r * V + row, mask=real, other=0).to(tl.int64)
            upper = tl.load(edge_ptr + store + 1, mask=real, other=0)
            ends += (upper - tl.load(edge_ptr + store, mask=real, other=0)).to(tl.float32)
    total = tl.sum(size, 0)
    sums += (r * B + b) * (2 * J + 3)
    tl.store(sums + j, tl.sum(within, 0), mask=j < J)
    tl.store(sums + J + j, total * total - tl.sum(squares, 0), mask=j < J)
    tl.store(sums + 2 * J, tl.sum(tl.sum(entropy, 1), 0))
    tl.store(sums + 2 * J + 1, tl.sum(ends, 0))
    n = (end - first).to(tl.float32)
    tl.store(sums + 2 * J + 2, n * (n - 1))
    tl.store(sizes + (r * B + b) * J + j, total, mask=j < J)


@triton.jit
def _at_least(x, bound):  # type: ignore[no-untyped-def]
    """The larger of both; a comparison, so that NaN stays NaN."""
    return tl.where(x < bound, bound, x)


@triton.jit
def _gain(edges, pairs, density):  # type: ignore[no-untyped-def]
    """Gain of a separate density for blocks, with one prior pair, and its derivatives in ``edges`` and ``pairs``."""
    upper = _at_least(edges, 0.0) + density
    lower = _at_least(pairs, 0.0) + 1
    ratio = tl.log(upper / (lower * density))
    return upper * ratio, tl.where(edges < 0, 0.0, ratio + 1), tl.where(pairs < 0, 0.0, -upper / lower)


@triton.jit(do_not_specialize=["B", "J"])
def _loss_kernel(  # type: ignore[no-untyped-def]
    sums, loss, factors, B, J, temperature, GRAPHS: tl.constexpr, WIDTH: tl.constexpr
):
    """The loss of a replica, and its derivatives in M_j, N_j and the entropy."""
    r = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, WIDTH)
    sums += r * B * (2 * J + 3)
    block_within = tl.zeros([GRAPHS, WIDTH], tl.float32)
    block_pairs = tl.zeros([GRAPHS, WIDTH], tl.float32)
    rest = tl.zeros([GRAPHS, 4], tl.float32)
    three = tl.arange(0, 4)
    for first in range(0, B, GRAPHS):
        b = first + tl.arange(0, GRAPHS)
        at = sums + b[:, None] * (2 * J + 3)
        inside = (b < B)[:, None] & (j < J)[None, :]
        block_within += tl.load(at + j[None, :], mask=inside, other=0.0)
        block_pairs += tl.load(at + J + j[None, :], mask=inside, other=0.0)
        few = (b < B)[:, None] & (three < 3)[None, :]
        rest += tl.load(at + 2 * J + three[None, :], mask=few, other=0.0)
    within = tl.sum(block_within, 0)
    pairs = tl.sum(block_pairs, 0)
    others = tl.sum(rest, 0)
    entropy = tl.sum(tl.where(three == 0, others, 0.0), 0)
    M = tl.sum(tl.where(three == 1, others, 0.0), 0)
    N = tl.sum(tl.where(three == 2, others, 0.0), 0)
    density = _at_least(M, _SMALLEST) / _at_least(N, 1.0)
    gain, by_edges, by_pairs = _gain(within, pairs, density)
    across, across_edges, across_pairs = _gain(M - tl.sum(within, 0), N - tl.sum(pairs, 0), density)
    total = tl.sum(tl.where(j < J, gain, 0.0), 0) + across
    scale = tl.where(M > 0, -1 / _at_least(M, _SMALLEST), 0.0)  # without edges the loss is 0
    tl.store(loss + r, scale * (total + 2 * temperature * entropy))
    factors += r * (2 * J + 1)
    tl.store(factors + j, scale * (by_edges - across_edges), mask=j < J)
    tl.store(factors + J + j, scale * (by_pairs - across_pairs), mask=j < J)
    tl.store(factors + 2 * J, scale * 2 * temperature)


@triton.jit(do_not_specialize=["V", "B", "J"])
def _gradient_kernel(  # type: ignore[no-untyped-def]
    c, near, sizes, factors, index, grad, dc, V, B, J, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """The gradient of some rows (program 0) of a replica (1); 0 at padding."""
    r = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, WIDTH)
    outer = tl.load(grad + r)
    graph = tl.load(index + r * V + row, mask=row < V, other=0)
    factors += r * (2 * J + 1)
    by_within = outer * tl.load(factors + j, mask=j < J, other=0.0)
    by_pairs = outer * tl.load(factors + J + j, mask=j < J, other=0.0)
    by_entropy = outer * tl.load(factors + 2 * J)
    inside = ((row < V) & (graph < B))[:, None] & (j < J)[None, :]
    offsets = (r * V + row)[:, None] * J + j[None, :]
    share = tl.load(c + offsets, mask=inside, other=0.0)
    size = tl.load(sizes + (r * B + graph)[:, None] * J + j[None, :], mask=inside, other=0.0)
    total = 2 * by_within[None, :] * tl.load(near + offsets, mask=inside, other=0.0)
    total += 2 * by_pairs[None, :] * (size - share)
    total -= by_entropy * (tl.log(_at_least(share, _SMALLEST)) + tl.where(share < _SMALLEST, 0.0, 1.0))
    total = tl.where(inside, total, 0.0)
    tl.store(dc + offsets, total, mask=(row < V)[:, None] & (j < J)[None, :])
