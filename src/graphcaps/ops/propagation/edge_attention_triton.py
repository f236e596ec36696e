r"""Attention along the edges, read from the store's neighbour lists; no message and no weight of an edge is stored.

The forward kernel walks the neighbours of a block of rows once, with a running maximum and sum, and keeps the logarithm
of the sum of the exponentials of each row. From it the backward kernel computes the weights again. The edges are
symmetric, so a row finds among its own neighbours all rows that it is a member of, and sums its gradients without
atomic operations: the result is the same in every run.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops.propagation.neighbour_sum_triton import neighbour_lists
from graphcaps.types import EdgeTable

__all__ = ["edge_attention"]

_BLOCK_NUMBERS = 2048
"""Numbers of a block of rows."""
_KINDS = 64
"""Largest number of kinds whose gradients a program sums."""


@triton.jit
def _leaky(z, slope):  # type: ignore[no-untyped-def]
    return tl.where(z > 0, z, slope * z)


@triton.jit
def _neighbour(  # type: ignore[no-untyped-def]
    k, start, count, begin, neighbours, kinds, weight, bias, WEIGHTED: tl.constexpr, BIASED: tl.constexpr
):
    """Whether rows have a neighbour with number k, its row, the kind of the edge, its bias and its weight."""
    has = k < count
    neighbour = begin + tl.load(neighbours + start + k, mask=has, other=0).to(tl.int32)
    kind = tl.zeros_like(neighbour)
    term = tl.zeros_like(neighbour).to(tl.float32)
    share = has.to(tl.float32)
    if BIASED:
        kind = tl.load(kinds + start + k, mask=has, other=0).to(tl.int32)
        term = tl.load(bias + kind, mask=has, other=0.0)
    if WEIGHTED:
        share = tl.load(weight + start + k, mask=has, other=0.0)
    return has, neighbour, kind, term, share


@triton.jit(do_not_specialize=["V", "blocks"])
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, centre, member, bias, out, log_sums, starts, counts, first, neighbours, kinds, weight, V, R, D, blocks, slope,
    WEIGHTED: tl.constexpr, BIASED: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V  # first row of this replica
    rows = (tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS))[:, None]
    columns = tl.arange(0, WIDTH)[None, :]
    inside, wide = rows < V, columns < D
    start = tl.load(starts + base + rows, mask=inside, other=-1)
    count = tl.load(counts + base + rows, mask=inside, other=0)
    begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
    real = inside & (start >= 0)
    x += base * D
    centre += base
    member += base
    bias += replica * R
    offsets = (rows.to(tl.int64) * D if LONG else rows * D) + columns
    own = tl.load(centre + rows, mask=real, other=0.0)
    largest = _leaky(own + tl.load(member + rows, mask=real, other=0.0), slope)
    exponentials = tl.full([ROWS, 1], 1.0, tl.float32)
    total = tl.load(x + offsets, mask=real & wide, other=0.0)
    for k in range(0, tl.max(count)):
        has, neighbour, _, term, share = _neighbour(
            k, start, count, begin, neighbours, kinds, weight, bias, WEIGHTED, BIASED
        )
        z = own + tl.load(member + neighbour, mask=has, other=0.0) + term
        z = tl.where(has, _leaky(z, slope), float("-inf"))
        larger = tl.maximum(largest, z)
        factor = tl.exp(largest - larger)
        exponential = tl.exp(z - larger)
        at = neighbour.to(tl.int64) * D if LONG else neighbour * D
        values = tl.load(x + (at + columns), mask=has & wide, other=0.0)
        total = total * factor + (share * exponential) * values
        exponentials = exponentials * factor + exponential
        largest = larger
    tl.store(out + base * D + offsets, total / exponentials, mask=inside & wide)
    tl.store(log_sums + base + rows, largest + tl.log(exponentials), mask=inside)


@triton.jit(do_not_specialize=["V", "blocks"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    x, grad, centre, member, bias, log_sums, means, grad_x, grad_centre, grad_member, kind_sums,
    starts, counts, first, neighbours, kinds, weight, V, R, D, blocks, slope,
    WEIGHTED: tl.constexpr, BIASED: tl.constexpr, LONG: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    KINDS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0) % blocks
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    rows = (block * ROWS + tl.arange(0, ROWS))[:, None]
    columns = tl.arange(0, WIDTH)[None, :]
    labels = (tl.program_id(1) * KINDS + tl.arange(0, KINDS))[None, :]
    inside, wide = rows < V, columns < D
    start = tl.load(starts + base + rows, mask=inside, other=-1)
    count = tl.load(counts + base + rows, mask=inside, other=0)
    begin = tl.load(first + base + rows, mask=inside, other=0).to(tl.int32)
    real = inside & (start >= 0)
    x += base * D
    grad += base * D
    centre += base
    member += base
    log_sums += base
    means += base
    bias += replica * R
    offsets = (rows.to(tl.int64) * D if LONG else rows * D) + columns
    values = tl.load(x + offsets, mask=real & wide, other=0.0)
    g = tl.load(grad + offsets, mask=real & wide, other=0.0)
    own_centre = tl.load(centre + rows, mask=real, other=0.0)
    own_member = tl.load(member + rows, mask=real, other=0.0)
    own_sum = tl.load(log_sums + rows, mask=real, other=0.0)
    own_mean = tl.load(means + rows, mask=real, other=0.0)
    # The row in its own neighbourhood.
    z = own_centre + own_member
    share = tl.exp(_leaky(z, slope) - own_sum)
    change = share * (tl.sum(g * values, 1)[:, None] - own_mean) * tl.where(z > 0, 1.0, slope)
    change = tl.where(real, change, 0.0)
    total, total_centre, total_member = share * g, change, change
    sums = tl.zeros([ROWS, KINDS], tl.float32)
    for k in range(0, tl.max(count)):
        has, neighbour, kind, term, factor = _neighbour(
            k, start, count, begin, neighbours, kinds, weight, bias, WEIGHTED, BIASED
        )
        at = neighbour.to(tl.int64) * D if LONG else neighbour * D
        other = tl.load(x + (at + columns), mask=has & wide, other=0.0)
        other_g = tl.load(grad + (at + columns), mask=has & wide, other=0.0)
        # The neighbour as a member of the row's neighbourhood.
        z = own_centre + tl.load(member + neighbour, mask=has, other=0.0) + term
        share = tl.where(has, tl.exp(_leaky(z, slope) - own_sum), 0.0)
        change = factor * tl.sum(g * other, 1)[:, None] - own_mean
        change = share * change * tl.where(z > 0, 1.0, slope)
        total_centre += change
        if BIASED:
            sums += tl.where(kind == labels, change, 0.0)
        # The row as a member of the neighbour's neighbourhood.
        z = tl.load(centre + neighbour, mask=has, other=0.0) + own_member + term
        other_sum = tl.load(log_sums + neighbour, mask=has, other=0.0)
        other_mean = tl.load(means + neighbour, mask=has, other=0.0)
        share = tl.where(has, tl.exp(_leaky(z, slope) - other_sum), 0.0)
        change = factor * tl.sum(other_g * values, 1)[:, None] - other_mean
        total_member += share * change * tl.where(z > 0, 1.0, slope)
        total += (factor * share) * other_g
    if tl.program_id(1) == 0:
        tl.store(grad_x + base * D + offsets, total, mask=inside & wide)
        tl.store(grad_centre + base + rows, total_centre, mask=inside)
        tl.store(grad_member + base + rows, total_member, mask=inside)
    if BIASED:
        at = (replica * blocks + block) * R + labels
        tl.store(kind_sums + at, tl.sum(sums, 0)[None, :], mask=labels < R)


class _Launch:
    """What both kernels are launched with, for rows ``x [*lead, V, d]``."""

    def __init__(self, x: Tensor, edges: EdgeTable, bias: Tensor | None, slope: float) -> None:
        V, d = x.shape[-2:]
        self.width = tile_width(d)
        self.rows = min(32, _BLOCK_NUMBERS // self.width)
        self.blocks = triton.cdiv(V, self.rows)
        self.programs = x.numel() // (V * d) * self.blocks
        self.kinds = 0 if bias is None else bias.size(-1)
        _, start, count = neighbour_lists(edges)
        kinds = edges.neighbours if bias is None else edges.kind
        weight = x if edges.weight is None else edges.weight.detach().contiguous()
        lists = (start, count, edges.first.contiguous(), edges.neighbours, kinds, weight)
        self.arguments = (*lists, V, self.kinds, d, self.blocks, slope)
        self.switches = {
            "WEIGHTED": edges.weight is not None,
            "BIASED": bias is not None,
            "LONG": V * d >= 2**31,
            "ROWS": self.rows,
            "WIDTH": self.width,
            "num_warps": 4,
        }


class _EdgeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        centre: Tensor,
        member: Tensor,
        bias: Tensor | None,
        edges: EdgeTable,
        slope: float,
    ) -> Tensor:
        x, centre, member = x.contiguous(), centre.contiguous(), member.contiguous()
        bias = None if bias is None else bias.contiguous()
        launch = _Launch(x, edges, bias, slope)
        out, log_sums = torch.empty_like(x), torch.empty_like(centre)
        _forward_kernel[(launch.programs,)](
            x,
            centre,
            member,
            x if bias is None else bias,
            out,
            log_sums,
            *launch.arguments,
            **launch.switches,
        )
        ctx.save_for_backward(x, centre, member, bias, out, log_sums)
        ctx.launch = launch
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, centre, member, bias, out, log_sums = ctx.saved_tensors
        launch: _Launch = ctx.launch
        grad = grad.contiguous()
        means = (grad * out).sum(-1)  # mean over the neighbourhood of the gradients of the weights
        grad_x, grad_centre, grad_member = (torch.empty_like(each) for each in (x, centre, member))
        R = launch.kinds
        sums = x if bias is None else x.new_empty(*bias.shape[:-1], launch.blocks, R)
        kinds = min(_KINDS, tile_width(max(R, 1)))
        _backward_kernel[(launch.programs, max(triton.cdiv(R, kinds), 1))](
            x, grad, centre, member, x if bias is None else bias, log_sums, means,
            grad_x, grad_centre, grad_member, sums, *launch.arguments, **launch.switches, KINDS=kinds,
        )  # fmt: skip
        grad_bias = None if bias is None else sums.sum(-2)
        return grad_x, grad_centre, grad_member, grad_bias, None, None


def edge_attention(
    x: Tensor, centre: Tensor, member: Tensor, edges: EdgeTable, bias: Tensor | None, slope: float
) -> Tensor:
    """As :func:`graphcaps.ops.propagation.edge_attention.edge_attention`; edge weights get no gradient."""
    y: Tensor = _EdgeAttention.apply(x, centre, member, bias, edges, slope)
    return y
