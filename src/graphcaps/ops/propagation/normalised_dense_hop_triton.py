"""Batch normalisation and the hop among the capsules of a level, in few passes over the capsules.

Forward: the statistics, and the hop, which normalises the capsules that it reads and also sums its results over each
graph. Backward: the hop of the gradient, which stores for each graph the sums that the gradients of γ and β need; and
one pass for the gradient of the capsules. A program holds one graph, as in
:mod:`graphcaps.ops.propagation.dense_hop_triton`; A has no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.batch_norm.batch_norm_triton import add_tables, mask_bytes, row_statistics, rows_gradient
from graphcaps.ops.propagation.dense_hop_triton import hop_matrix, launch_options
from graphcaps.ops.propagation.normalised_dense_hop import DenseHop

__all__ = ["normalised_dense_hop"]


def normalised_dense_hop(
    u: Tensor,
    adjacency: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: tuple[Tensor, Tensor],
    *,
    training: bool,
    momentum: float,
    epsilon: float,
) -> DenseHop:
    """As :func:`graphcaps.ops.propagation.normalised_dense_hop.normalised_dense_hop`; ``training`` is always true."""
    options = adjacency, mask, running, momentum, epsilon
    h, mean, sums = _NormalisedDenseHop.apply(u, weight, bias, options)
    return DenseHop(h, mean, sums)


class _NormalisedDenseHop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        u: Tensor,
        weight: Tensor,
        bias: Tensor,
        options: tuple[Tensor, Tensor | None, tuple[Tensor, Tensor], float, float],
    ) -> tuple[Tensor, Tensor, Tensor]:
        adjacency, mask, running, momentum, epsilon = options
        u, weight, bias, adjacency = (each.contiguous() for each in (u, weight, bias, adjacency))
        entries = mask_bytes(mask)
        mean, var, count = row_statistics(u.flatten(-3, -2), entries, running, momentum)
        h = torch.empty_like(u)
        *lead, B, _, d = u.shape
        means, sums = u.new_empty(*lead, B, 1, d), u.new_empty(*lead, B, d)
        grid, launch = launch_options(u)
        _forward_kernel[grid](
            u, adjacency, u if entries is None else entries, mean, var, weight, bias, h, means, sums,
            B, *u.shape[-2:], epsilon, MASKED=entries is not None, **launch,
        )  # fmt: skip
        ctx.save_for_backward(u, adjacency, mask, weight, mean, var, count)
        ctx.epsilon = epsilon
        ctx.mark_non_differentiable(sums)
        ctx.set_materialize_grads(False)
        return h, means, sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor | None, dmean: Tensor | None, _: Any) -> Any:
        u, adjacency, mask, weight, mean, var, count = ctx.saved_tensors
        *lead, B, n, d = u.shape
        dh = torch.zeros_like(u) if dh is None else dh.contiguous()
        dmean = u.new_zeros(*lead, B, 1, d) if dmean is None else dmean.contiguous()
        entries, replicas = mask_bytes(mask), weight.numel() // d
        g, tables = torch.empty_like(u), (u.new_empty(replicas, B, d), u.new_empty(replicas, B, d))
        grid, launch = launch_options(u)
        _backward_kernel[grid](
            u, dh, dmean, adjacency, u if entries is None else entries, mean, var, g, *tables,
            B, n, d, ctx.epsilon, MASKED=entries is not None, **launch,
        )  # fmt: skip
        dbias, dweight = (sums.view_as(weight) for sums in add_tables(*tables))
        du = None
        if ctx.needs_input_grad[0]:
            rows, gradient = u.flatten(-3, -2), g.flatten(-3, -2)
            statistics = mean, var, count
            du = rows_gradient(rows, gradient, entries, weight, dweight, dbias, statistics, ctx.epsilon)
            du = du.view_as(u)
        return du, dweight, dbias, None


@triton.jit(do_not_specialize=["B", "n"])
def _forward_kernel(  # type: ignore[no-untyped-def]
    u, adjacency, mask, mean, var, weight, bias, h, means, sums, B, n, d, epsilon,
    MASKED: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    i = tl.arange(0, N)
    wide = k < d
    at = graph // B * d + k
    inside = (i < n)[:, None] & wide[None, :]
    real = inside
    if MASKED:  # the capsules of a graph without nodes are not read, and count as 0
        real = inside & (tl.load(mask + graph) != 0)
    offsets = graph * n * d + i[:, None] * d + k[None, :]
    rows = tl.load(u + offsets, mask=real, other=0.0)
    factor = tl.rsqrt(tl.load(var + at, mask=wide, other=1.0) + epsilon)
    factor *= tl.load(weight + at, mask=wide, other=0.0)
    centre = tl.load(mean + at, mask=wide, other=0.0)
    shift = tl.load(bias + at, mask=wide, other=0.0)
    hat = tl.where(real, (rows - centre[None, :]) * factor[None, :] + shift[None, :], 0.0)
    total = tl.dot(hop_matrix(adjacency, graph, n, N, False), hat, input_precision="ieee")
    tl.store(h + offsets, total, mask=inside)
    tl.store(means + graph * d + k, tl.sum(hat, 0) / n, mask=wide)
    tl.store(sums + graph * d + k, tl.sum(total, 0), mask=wide)


@triton.jit(do_not_specialize=["B", "n"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    u, dh, dmean, adjacency, mask, mean, var, g, grad_sums, grad_hat_sums, B, n, d, epsilon,
    MASKED: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradient of the normalised capsules of a graph, and its sums, also times the standardised capsules."""
    graph = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    i = tl.arange(0, N)
    wide = k < d
    at = graph // B * d + k
    inside = (i < n)[:, None] & wide[None, :]
    real = inside
    if MASKED:
        real = inside & (tl.load(mask + graph) != 0)
    offsets = graph * n * d + i[:, None] * d + k[None, :]
    gradient = tl.load(dh + offsets, mask=real, other=0.0)
    shared = tl.load(dmean + graph * d + k, mask=wide, other=0.0) / n
    factor = tl.rsqrt(tl.load(var + at, mask=wide, other=1.0) + epsilon)
    centre = tl.load(mean + at, mask=wide, other=0.0)
    total = tl.dot(hop_matrix(adjacency, graph, n, N, True), gradient, input_precision="ieee")
    total = tl.where(real, total + shared[None, :], 0.0)
    rows = tl.load(u + offsets, mask=real, other=0.0)
    hat = tl.where(real, (rows - centre[None, :]) * factor[None, :], 0.0)
    tl.store(g + offsets, total, mask=inside)
    tl.store(grad_sums + graph * d + k, tl.sum(total, 0), mask=wide)
    tl.store(grad_hat_sums + graph * d + k, tl.sum(total * hat, 0), mask=wide)
