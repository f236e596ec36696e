r"""The hop among the capsules of a level: :math:`h = \hat A u` and the mean of u, one launch forward and one backward.

Graphs have few capsules, so a program holds one graph: A and the scales, and a block of columns of u. A gets no
gradient. :math:`\hat A` need not be symmetric: the backward pass uses its transpose.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["dense_hop"]


def dense_hop(x: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over neighbours ``[*lead, B, n, d]`` and means ``[*lead, B, 1, d]`` of ``x [*lead, B, n, d]``.

    Args:
        x (Tensor): Capsules, float32.
        adjacency (Tensor): A, ``[*lead, B, n, n]``, n at most ``MOST_DENSE_CAPSULES``; gets no gradient.
    """
    h, mean = _DenseHop.apply(x, adjacency)
    return h, mean


class _DenseHop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, adjacency: Tensor) -> tuple[Tensor, Tensor]:
        u, adjacency = u.contiguous(), adjacency.contiguous()
        h, mean = torch.empty_like(u), u.new_empty(*u.shape[:-2], 1, u.size(-1))
        if u.numel():
            grid, options = _launch_options(u)
            _forward_kernel[grid](u, adjacency, h, mean, *u.shape[-2:], **options)
        ctx.save_for_backward(adjacency)
        return h, mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dmean: Tensor) -> Any:
        (adjacency,) = ctx.saved_tensors
        du = torch.empty_like(dh, memory_format=torch.contiguous_format)
        if du.numel():
            grid, options = _launch_options(du)
            _backward_kernel[grid](
                dh.contiguous(), dmean.contiguous(), adjacency, du, *du.shape[-2:], **options
            )
        return du, None


def _launch_options(u: Tensor) -> tuple[tuple[int, int], dict[str, Any]]:
    n, d = u.shape[-2:]
    width = min(128, max(16, triton.next_power_of_2(d)))
    warps = 1 if n <= 8 else 2 if n <= 16 else 4
    options = {"N": max(2, triton.next_power_of_2(n)), "WIDTH": width, "num_warps": warps}
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


@triton.jit(do_not_specialize=["n"])
def _forward_kernel(u, adjacency, h, mean, n, d, N: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    graph = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    i = tl.arange(0, N)
    scale = _scales(adjacency, graph, n, N)
    wide = k < d
    inside = (i < n)[:, None] & wide[None, :]
    rows = u + graph * n * d
    offsets = i[:, None] * d + k[None, :]
    rows_u = tl.load(rows + offsets, mask=inside, other=0.0)
    total = rows_u * scale[:, None]
    # With few capsules a loop over rows is as fast as a product of tiles, and exact.
    for j in range(0, n):
        row = tl.load(rows + j * d + k, mask=wide, other=0.0)
        at = tl.sum(tl.where(i == j, scale, 0.0), 0)
        column = tl.load(adjacency + graph * n * n + i * n + j, mask=i < n, other=0.0)
        total += column[:, None] * (row * at)[None, :]
    tl.store(h + graph * n * d + offsets, total * scale[:, None], mask=inside)
    tl.store(mean + graph * d + k, tl.sum(rows_u, 0) / n, mask=wide)


@triton.jit(do_not_specialize=["n"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    dh, dmean, adjacency, du, n, d, N: tl.constexpr, WIDTH: tl.constexpr
):
    graph = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    i = tl.arange(0, N)
    scale = _scales(adjacency, graph, n, N)
    wide = k < d
    inside = (i < n)[:, None] & wide[None, :]
    rows = dh + graph * n * d
    offsets = i[:, None] * d + k[None, :]
    total = tl.load(rows + offsets, mask=inside, other=0.0) * scale[:, None]
    for j in range(0, n):
        row = tl.load(rows + j * d + k, mask=wide, other=0.0)
        at = tl.sum(tl.where(i == j, scale, 0.0), 0)
        from_j = tl.load(adjacency + graph * n * n + j * n + i, mask=i < n, other=0.0)
        total += from_j[:, None] * (row * at)[None, :]
    shared = tl.load(dmean + graph * d + k, mask=wide, other=0.0) / n
    tl.store(du + graph * n * d + offsets, total * scale[:, None] + shared[None, :], mask=inside)
