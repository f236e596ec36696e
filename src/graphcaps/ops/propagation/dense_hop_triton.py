r"""The hop among the capsules of a level: :math:`h = \hat A u` and the mean of u, one launch forward and one backward.

Graphs have few capsules, so a program holds one graph: A and the scales, and a block of columns of u. :math:`\hat A`
need not be symmetric: the backward pass uses its transpose.

If A needs a gradient, as in the formulation of the paper, the backward pass is another kernel, which holds all columns.
With :math:`s_i = t_i^{-1/2}, t_i = \max(1, 1 + \sum_j A_{ij})` and a bar for gradients,

.. math::
    \bar A_{ij} = s_i s_j\, \bar h_i \cdot u_j - \frac{[t_i \ge 1]}{2 t_i}
        \big(\bar h_i \cdot h_i + \bar u_i \cdot u_i\big)

where :math:`\bar u` is without the gradient of the mean.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width

__all__ = ["dense_hop", "hop_matrix", "launch_options"]


def dense_hop(x: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over neighbours ``[*lead, B, n, d]`` and means ``[*lead, B, 1, d]`` of ``x [*lead, B, n, d]``.

    Args:
        x (Tensor): Capsules, float32.
        adjacency (Tensor): A, ``[*lead, B, n, n]``, n at most ``MOST_DENSE_CAPSULES``.
    """
    h, mean = _DenseHop.apply(x, adjacency)
    return h, mean


class _DenseHop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
        u, adjacency = u.contiguous(), adjacency.contiguous()
        h, mean = torch.empty_like(u), u.new_empty(*u.shape[:-2], 1, u.size(-1))
        if u.numel():
            grid, options = launch_options(u)
            _forward_kernel[grid](u, adjacency, h, mean, *u.shape[-2:], **options)
        # What the gradient of A reads is kept only for it.
        ctx.save_for_backward(adjacency, *((u, h) if ctx.needs_input_grad[1] else ()))
        return h, mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dmean: Tensor) -> Any:
        adjacency, *rows = ctx.saved_tensors
        du = torch.empty_like(dh, memory_format=torch.contiguous_format)
        if rows:
            dA = torch.empty_like(adjacency)
            if du.numel():
                (graphs, _), options = launch_options(du)
                _both_gradients_kernel[(graphs,)](
                    *rows, dh.contiguous(), dmean.contiguous(), adjacency, du, dA, *du.shape[-2:], **options
                )
            return du, dA
        if du.numel():
            grid, options = launch_options(du)
            _backward_kernel[grid](
                dh.contiguous(), dmean.contiguous(), adjacency, du, *du.shape[-2:], **options
            )
        return du, None


def launch_options(u: Tensor) -> tuple[tuple[int, int], dict[str, Any]]:
    """Programs, one for each graph and block of columns, and their options."""
    n, d = u.shape[-2:]
    width = min(128, tile_width(d))
    options = {"N": tile_width(n), "WIDTH": width, "num_warps": 4 if n <= 16 else 8}
    return (u.numel() // (n * d), triton.cdiv(d, width)), options


@triton.jit
def _scales(adjacency, graph, n, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """1 / √max(1, 1 + Σ_j A_ij) of the capsules of a graph."""
    i = tl.arange(0, N)
    inside = (i < n)[:, None] & (i < n)[None, :]
    A = tl.load(adjacency + graph * n * n + i[:, None] * n + i[None, :], mask=inside, other=0.0)
    total = tl.sum(A, 1) + 1
    # A comparison, not a maximum, so that NaN stays NaN.
    return tl.rsqrt(tl.where(total < 1, 1.0, total))


@triton.jit
def hop_matrix(adjacency, graph, n, N: tl.constexpr, TRANSPOSED: tl.constexpr):  # type: ignore[no-untyped-def]
    """Â of a graph or its transpose, ``[N, N]``; zeros beyond its n capsules."""
    i = tl.arange(0, N)
    inside = (i < n)[:, None] & (i < n)[None, :]
    A = tl.load(adjacency + graph * n * n + i[:, None] * n + i[None, :], mask=inside, other=0.0)
    # Read transposed for the sums of rows as a row, too.
    across = tl.load(adjacency + graph * n * n + i[None, :] * n + i[:, None], mask=inside, other=0.0)
    rows, columns = tl.sum(A, 1) + 1, tl.sum(across, 0) + 1
    # A comparison, not a maximum, so that NaN stays NaN.
    scale = tl.rsqrt(tl.where(rows < 1, 1.0, rows))
    scale_across = tl.rsqrt(tl.where(columns < 1, 1.0, columns))
    entries = across if TRANSPOSED else A
    loops = tl.where(i[:, None] == i[None, :], entries + 1, entries)
    return tl.where(inside, loops * scale[:, None] * scale_across[None, :], 0.0)


@triton.jit(do_not_specialize=["n"])
def _forward_kernel(u, adjacency, h, mean, n, d, N: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    graph = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    i = tl.arange(0, N)
    wide = k < d
    inside = (i < n)[:, None] & wide[None, :]
    offsets = graph * n * d + i[:, None] * d + k[None, :]
    rows = tl.load(u + offsets, mask=inside, other=0.0)
    total = tl.dot(hop_matrix(adjacency, graph, n, N, False), rows, input_precision="ieee")
    tl.store(h + offsets, total, mask=inside)
    tl.store(mean + graph * d + k, tl.sum(rows, 0) / n, mask=wide)


@triton.jit(do_not_specialize=["n"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    dh, dmean, adjacency, du, n, d, N: tl.constexpr, WIDTH: tl.constexpr
):
    graph = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    i = tl.arange(0, N)
    wide = k < d
    inside = (i < n)[:, None] & wide[None, :]
    offsets = graph * n * d + i[:, None] * d + k[None, :]
    rows = tl.load(dh + offsets, mask=inside, other=0.0)
    total = tl.dot(hop_matrix(adjacency, graph, n, N, True), rows, input_precision="ieee")
    shared = tl.load(dmean + graph * d + k, mask=wide, other=0.0) / n
    tl.store(du + offsets, total + shared[None, :], mask=inside)


@triton.jit(do_not_specialize=["n"])
def _both_gradients_kernel(  # type: ignore[no-untyped-def]
    u, h, dh, dmean, adjacency, du, dA, n, d, N: tl.constexpr, WIDTH: tl.constexpr
):
    """The same and the gradient of A, which is a sum over all columns: one program per graph."""
    graph = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, N)
    scale = _scales(adjacency, graph, n, N)
    dots = tl.zeros([N, N], tl.float32)  # of the gradient of row i and capsule j
    own = tl.zeros([N], tl.float32)
    for first in range(0, d, WIDTH):
        k = first + tl.arange(0, WIDTH)
        wide = k < d
        inside = (i < n)[:, None] & wide[None, :]
        offsets = graph * n * d + i[:, None] * d + k[None, :]
        grad = tl.load(dh + offsets, mask=inside, other=0.0)
        total = grad * scale[:, None]
        for j in range(0, n):
            row = tl.load(dh + graph * n * d + j * d + k, mask=wide, other=0.0)
            at = tl.sum(tl.where(i == j, scale, 0.0), 0)
            from_j = tl.load(adjacency + graph * n * n + j * n + i, mask=i < n, other=0.0)
            total += from_j[:, None] * (row * at)[None, :]
            capsule = tl.load(u + graph * n * d + j * d + k, mask=wide, other=0.0)
            column = tl.sum(grad * capsule[None, :], 1) * at
            dots += tl.where((i == j)[None, :], column[:, None], 0.0)
        total *= scale[:, None]
        own += tl.sum(grad * tl.load(h + offsets, mask=inside, other=0.0), 1)
        own += tl.sum(total * tl.load(u + offsets, mask=inside, other=0.0), 1)
        shared = tl.load(dmean + graph * d + k, mask=wide, other=0.0) / n
        tl.store(du + offsets, total + shared[None, :], mask=inside)
    pairs = (i < n)[:, None] & (i < n)[None, :]
    at_pairs = graph * n * n + i[:, None] * n + i[None, :]
    A = tl.load(adjacency + at_pairs, mask=pairs, other=0.0)
    # Below 1 the scale is constant; a NaN stays one.
    own = tl.where(tl.sum(A, 1) + 1 < 1, 0.0, own * scale * scale)
    tl.store(dA + at_pairs, dots * scale[:, None] - 0.5 * own[:, None], mask=pairs)
