"""Sums inside graphs over ragged rows, and their transpose: one program per graph and block of columns.

A graph of more than ``CHUNK`` rows is cut into chunks that are summed side by side, where the host knows how
large the largest may be; the chunks' sums are then added in order. Nothing is added atomically.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import product
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.types import Segments

__all__ = [
    "CHUNK",
    "chunk",
    "chunks_of",
    "ragged_sum",
    "reach",
    "segment_broadcast",
    "segment_product",
    "segment_sum",
]

CHUNK = 512
"""Rows that one program walks."""


def chunks_of(max_size: int | None) -> int:
    """Into how many chunks the largest graph is cut, a power of two (few kernels to compile); 1 if not known."""
    return 1 if max_size is None else int(triton.next_power_of_2(max(1, triton.cdiv(max_size, CHUNK))))


def reach(parts: int, rows: int) -> int:
    """Rows of a chunk where the largest graph is cut into ``parts``: all, where it is not cut."""
    return CHUNK if parts > 1 else rows


@triton.jit
def chunk(ptr, B, r, b, part, SIZE, REACH):  # type: ignore[no-untyped-def]
    """First row and end of a chunk of graph b of replica r; the end lies before the first where it is none.

    Graphs have ``SIZE`` rows each, or what ``ptr`` says where that is 0; a chunk has up to ``REACH``.
    """
    ragged = SIZE == 0
    start = tl.load(ptr + r * (B + 1) + b, mask=ragged, other=0).to(tl.int32)
    end = tl.load(ptr + r * (B + 1) + b + 1, mask=ragged, other=0).to(tl.int32)
    start = tl.where(ragged, start, b * SIZE) + part * REACH
    end = tl.where(ragged, end, b * SIZE + SIZE)
    return start, tl.minimum(end, start + REACH)


@triton.jit(do_not_specialize=["V", "B", "L", "REACH"])
def _sum_kernel(  # type: ignore[no-untyped-def]
    x, ptr, out, V, B, L, REACH, D, ROWS: tl.constexpr, DB: tl.constexpr
):
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    columns = tl.cdiv(D, DB)
    part = tl.program_id(2) // columns
    d = tl.program_id(2) % columns * DB + tl.arange(0, DB)
    start, end = chunk(ptr, B, r, b, part, 0, REACH)
    total = tl.zeros((ROWS, DB), tl.float32)
    for first in range(start, end, ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < end)[:, None] & (d < D)[None, :]
        total += tl.load(x + (r * V + rows)[:, None] * D + d[None, :], mask=inside, other=0.0)
    place = ((part * L + r) * B + b) * D + d
    tl.store(out + place, tl.sum(total, 0), mask=d < D)


@triton.jit(do_not_specialize=["V", "B"])
def _spread_kernel(  # type: ignore[no-untyped-def]
    x, index, out, V, B, D, ROWS: tl.constexpr, DB: tl.constexpr
):
    r = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.program_id(2) * DB + tl.arange(0, DB)
    real = rows < V
    graph = tl.load(index + r * V + rows, mask=real, other=0).to(tl.int64)
    own = (real & (graph < B))[:, None] & (d < D)[None, :]
    found = tl.load(x + (r * B + graph)[:, None] * D + d[None, :], mask=own, other=0.0)
    place = (r * V + rows)[:, None] * D + d[None, :]
    tl.store(out + place, found, mask=real[:, None] & (d < D)[None, :])


# Its widths are numbers of capsules, of which some are multiples of 16: not worth a kernel of their own.
@triton.jit(do_not_specialize=["V", "B", "L", "REACH", "N", "D"])
def _product_kernel(  # type: ignore[no-untyped-def]
    a, x, ptr, out, V, B, L, REACH, N, D,
    ROWS: tl.constexpr, NP: tl.constexpr, DB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    columns = tl.cdiv(D, DB)
    part = tl.program_id(2) // columns
    i = tl.arange(0, NP)
    d = tl.program_id(2) % columns * DB + tl.arange(0, DB)
    start, end = chunk(ptr, B, r, b, part, 0, REACH)
    total = tl.zeros((NP, DB), tl.float32)
    for first in range(start, end, ROWS):
        rows = first + tl.arange(0, ROWS)
        real = rows < end
        left = tl.load(  # already transposed: [NP, ROWS]
            a + (r * V + rows)[None, :] * N + i[:, None], mask=real[None, :] & (i < N)[:, None], other=0.0
        )
        right = tl.load(
            x + (r * V + rows)[:, None] * D + d[None, :], mask=real[:, None] & (d < D)[None, :], other=0.0
        )
        total = product(left, right, total, PRECISION)
    place = (((part * L + r) * B + b) * N + i)[:, None] * D + d[None, :]
    tl.store(out + place, total, mask=(i < N)[:, None] & (d < D)[None, :])


def segment_sum(x: Tensor, segments: Segments) -> Tensor:
    """As :func:`graphcaps.ops.segment_sum`; large graphs are cut into chunks if ``max_size`` is known."""
    total: Tensor = _Sum.apply(x, segments.ptr, segments.index, segments.max_size)
    return total


def segment_broadcast(x: Tensor, segments: Segments) -> Tensor:
    """As :func:`graphcaps.ops.segment_broadcast`.

    The transpose of :func:`segment_sum`: each is the gradient of the other.
    """
    rows: Tensor = _Spread.apply(x, segments.ptr, segments.index, segments.max_size)
    return rows


def segment_product(a: Tensor, x: Tensor, segments: Segments) -> Tensor:
    """As :func:`graphcaps.ops.ragged.tiles.segment_product`; without gradient, in the precision in force."""
    ptr, max_size = segments.ptr, segments.max_size
    *lead, V, N = a.shape
    D, B, L = x.size(-1), ptr.size(-1) - 1, torch.Size(lead).numel()
    parts = chunks_of(max_size)
    out = a.new_empty(parts, *lead, B, N, D)
    if not out.numel():
        return out.sum(0)
    DB = min(max(16, triton.next_power_of_2(D)), 128)
    NP = max(16, triton.next_power_of_2(N))
    columns = triton.cdiv(D, DB)
    _product_kernel[(B, L, parts * columns)](
        a.detach().contiguous(), x.detach().contiguous(), ptr.contiguous(), out,
        V, B, L, reach(parts, V), N, D, ROWS=32, NP=NP, DB=DB, PRECISION=dot_precision(),
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return out[0] if parts == 1 else out.sum(0)


def ragged_sum(x: Tensor, ptr: Tensor, max_size: int | None) -> Tensor:
    """Sum of the rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d]``, without gradient."""
    *lead, V, D = x.shape
    B, L = ptr.size(-1) - 1, torch.Size(lead).numel()
    # Two launches only where one program would walk long.
    parts = chunks_of(max_size) if (max_size or 0) > 2 * CHUNK else 1
    out = x.new_empty(parts, *lead, B, D)
    if not out.numel():
        return out.sum(0)
    DB = min(max(16, triton.next_power_of_2(D)), 64)
    columns = triton.cdiv(D, DB)
    _sum_kernel[(B, L, parts * columns)](
        x.contiguous(), ptr.contiguous(), out, V, B, L, reach(parts, V), D, ROWS=32, DB=DB, num_warps=4
    )
    return out[0] if parts == 1 else out.sum(0)


def _spread(x: Tensor, index: Tensor) -> Tensor:
    *lead, B, D = x.shape
    V, L = index.size(-1), torch.Size(lead).numel()
    out = x.new_empty(*lead, V, D)
    if not out.numel():
        return out
    DB = min(max(16, triton.next_power_of_2(D)), 128)
    rows = 32
    _spread_kernel[(triton.cdiv(V, rows), L, triton.cdiv(D, DB))](
        x.contiguous(), index.contiguous(), out, V, B, D, ROWS=rows, DB=DB, num_warps=4
    )
    return out


class _Sum(torch.autograd.Function):
    """Linear, so that its gradient is its transpose, to any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, index: Tensor, max_size: int | None) -> Tensor:
        ctx.save_for_backward(ptr, index)
        ctx.max_size = max_size
        return ragged_sum(x, ptr, max_size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Spread.apply(grad, *ctx.saved_tensors, ctx.max_size), None, None, None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, index: Tensor, max_size: int | None) -> Tensor:
        ctx.save_for_backward(ptr, index)
        ctx.max_size = max_size
        return _spread(x, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sum.apply(grad, *ctx.saved_tensors, ctx.max_size), None, None, None
