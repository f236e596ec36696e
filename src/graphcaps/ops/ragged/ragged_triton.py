"""Sums over the rows of each graph, and their transpose: one program per graph, replica and block of columns.

If an upper bound on the graph size is known, a graph of more than ``CHUNK`` rows is split into chunks that are summed
in parallel; the sums of the chunks are then added in order. There are no atomic additions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import product, tile_width
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.types import Segments

__all__ = [
    "CHUNK",
    "MeanGradient",
    "chunk_bounds",
    "count_chunks",
    "mean_weight",
    "ragged_sum",
    "rows_per_chunk",
    "segment_broadcast",
    "segment_product",
    "segment_sum",
]

CHUNK = 512
"""Largest number of rows that one program sums, if graphs are split."""
_STAGES, _NARROW = 4, 32
"""Tiles of rows that a sum loads at a time, if they are wider than the second number. Most graphs have one tile of
narrow rows, and numbers that are loaded ahead are copied one by one where a width is no multiple of four."""
_SUM_NUMBERS = 2048
"""Numbers of a tile of rows in a sum."""
_GRADIENT_ROWS = 64
"""Rows of a graph that one program of the gradient of a product has, if the size of graphs is known."""


def count_chunks(max_size: int | None) -> int:
    """Number of chunks of the largest graph, rounded up to a power of two; 1 if its size is not known."""
    return 1 if max_size is None else int(triton.next_power_of_2(max(1, triton.cdiv(max_size, CHUNK))))


def rows_per_chunk(parts: int, rows: int) -> int:
    """Rows of a chunk if the largest graph is split into ``parts``: all of them if it is not split."""
    return CHUNK if parts > 1 else rows


@triton.jit
def mean_weight(graph, real, graphs, divisor):  # type: ignore[no-untyped-def]
    """Weight of a row in the mean of its graph: 1 / divisor, or 1 / number of rows if that is 0.

    ``graph`` are entries of the offsets ``graphs``, those of other replicas included.
    """
    start = tl.load(graphs + graph, mask=real, other=0)
    size = (tl.load(graphs + graph + 1, mask=real, other=0) - start).to(tl.float32)
    return 1.0 / tl.where(divisor > 0, divisor, tl.maximum(size, 1.0))


class MeanGradient(NamedTuple):
    """Gradient of the means of graphs, which is added to that of their rows.

    Args:
        grad (Tensor): ``[*lead, B, C]``, contiguous.
        graph (Tensor): Graph of each row, ``[*lead, V]``, contiguous.
        ptr (Tensor): First row of each graph and the end of the last, ``[*lead, B + 1]``, contiguous.
        divisor (float): Of the sum of a graph; 0 stands for its number of rows.
    """

    grad: Tensor
    graph: Tensor
    ptr: Tensor
    divisor: float

    @classmethod
    def of(cls, grad: Tensor | None, segments: Segments, divisor: float) -> MeanGradient | None:
        """``None`` without a gradient."""
        if grad is None:
            return None
        return cls(grad.contiguous(), segments.index.contiguous(), segments.ptr.contiguous(), divisor)

    @staticmethod
    def arguments(means: MeanGradient | None, unused: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, float]]:
        """Pointers and numbers as kernels take them."""
        if means is None:
            return (unused, unused, unused), (0, 0.0)
        return means[:3], (means.grad.size(-2), means.divisor)


@triton.jit
def chunk_bounds(ptr, B, r, b, part, SIZE, ROWS_PER_CHUNK):  # type: ignore[no-untyped-def]
    """First row and end of a chunk of graph b of replica r; an empty chunk ends before its first row.

    Graphs have ``SIZE`` rows each, or as ``ptr`` states if that is 0; a chunk has up to ``ROWS_PER_CHUNK`` rows.
    """
    ragged = SIZE == 0
    start = tl.load(ptr + r * (B + 1) + b, mask=ragged, other=0).to(tl.int32)
    end = tl.load(ptr + r * (B + 1) + b + 1, mask=ragged, other=0).to(tl.int32)
    start = tl.where(ragged, start, b * SIZE) + part * ROWS_PER_CHUNK
    end = tl.where(ragged, end, b * SIZE + SIZE)
    return start, tl.minimum(end, start + ROWS_PER_CHUNK)


@triton.jit(do_not_specialize=["V", "B", "L", "ROWS_PER_CHUNK"])
def _sum_kernel(  # type: ignore[no-untyped-def]
    x, ptr, out, V, B, L, ROWS_PER_CHUNK, D, ROWS: tl.constexpr, DB: tl.constexpr, STAGES: tl.constexpr
):
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    columns = tl.cdiv(D, DB)
    part = tl.program_id(2) // columns
    d = tl.program_id(2) % columns * DB + tl.arange(0, DB)
    start, end = chunk_bounds(ptr, B, r, b, part, 0, ROWS_PER_CHUNK)
    total = tl.zeros((ROWS, DB), tl.float32)
    for first in tl.range(start, end, ROWS, num_stages=STAGES):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < end)[:, None] & (d < D)[None, :]
        total += tl.load(x + (r * V + rows)[:, None] * D + d[None, :], mask=inside, other=0.0)
    offsets = ((part * L + r) * B + b) * D + d
    tl.store(out + offsets, tl.sum(total, 0), mask=d < D)


@triton.jit(do_not_specialize=["V", "B"])
def _broadcast_kernel(  # type: ignore[no-untyped-def]
    x, index, out, V, B, D, ROWS: tl.constexpr, DB: tl.constexpr
):
    r = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.program_id(2) * DB + tl.arange(0, DB)
    real = rows < V
    graph = tl.load(index + r * V + rows, mask=real, other=0).to(tl.int64)
    own = (real & (graph < B))[:, None] & (d < D)[None, :]
    values = tl.load(x + (r * B + graph)[:, None] * D + d[None, :], mask=own, other=0.0)
    offsets = (r * V + rows)[:, None] * D + d[None, :]
    tl.store(out + offsets, values, mask=real[:, None] & (d < D)[None, :])


# Its widths are numbers of capsules, of which some are multiples of 16: not worth a kernel of their own.
@triton.jit(do_not_specialize=["V", "B", "L", "ROWS_PER_CHUNK", "N", "D"])
def _product_kernel(  # type: ignore[no-untyped-def]
    a, x, ptr, out, V, B, L, ROWS_PER_CHUNK, N, D,
    ROWS: tl.constexpr, NP: tl.constexpr, DB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    columns = tl.cdiv(D, DB)
    part = tl.program_id(2) // columns
    i = tl.arange(0, NP)
    d = tl.program_id(2) % columns * DB + tl.arange(0, DB)
    start, end = chunk_bounds(ptr, B, r, b, part, 0, ROWS_PER_CHUNK)
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
    offsets = (((part * L + r) * B + b) * N + i)[:, None] * D + d[None, :]
    tl.store(out + offsets, total, mask=(i < N)[:, None] & (d < D)[None, :])


@triton.jit(do_not_specialize=["V", "B", "ROWS_PER_CHUNK", "N", "D"])
def _product_gradient_kernel(  # type: ignore[no-untyped-def]
    a, x, grad, ptr, grad_a, grad_x, V, B, ROWS_PER_CHUNK, N, D,
    ROWS: tl.constexpr, NP: tl.constexpr, DB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Both gradients of a chunk of rows of a graph, from the gradient ``[N, D]`` of its product."""
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    start, end = chunk_bounds(ptr, B, r, b, tl.program_id(2), 0, ROWS_PER_CHUNK)
    i = tl.arange(0, NP)
    grad += (r * B + b) * N * D
    for first in range(start, end, ROWS):
        rows = first + tl.arange(0, ROWS)
        real = rows < end
        left_offsets = (r * V + rows)[:, None] * N + i[None, :]
        left_inside = real[:, None] & (i < N)[None, :]
        left = tl.load(a + left_offsets, mask=left_inside, other=0.0)
        total = tl.zeros((ROWS, NP), tl.float32)
        for column in range(0, D, DB):
            d = column + tl.arange(0, DB)
            g = tl.load(
                grad + i[:, None] * D + d[None, :], mask=(i < N)[:, None] & (d < D)[None, :], other=0.0
            )
            offsets = (r * V + rows)[:, None] * D + d[None, :]
            inside = real[:, None] & (d < D)[None, :]
            right = tl.load(x + offsets, mask=inside, other=0.0)
            total = product(right, tl.trans(g), total, PRECISION)
            change = product(left, g, tl.zeros((ROWS, DB), tl.float32), PRECISION)
            tl.store(grad_x + offsets, change, mask=inside)
        tl.store(grad_a + left_offsets, total, mask=left_inside)


def segment_sum(x: Tensor, segments: Segments) -> Tensor:
    """As :func:`graphcaps.ops.segment_sum`; large graphs are cut into chunks if ``max_size`` is known."""
    total: Tensor = _Sum.apply(x, segments.ptr, segments.index, segments.max_size)
    return total


def segment_broadcast(x: Tensor, segments: Segments) -> Tensor:
    """As :func:`graphcaps.ops.segment_broadcast`.

    The transpose of :func:`segment_sum`: each is the gradient of the other.
    """
    rows: Tensor = _Broadcast.apply(x, segments.ptr, segments.index, segments.max_size)
    return rows


def segment_product(a: Tensor, x: Tensor, segments: Segments) -> Tensor:
    """As :func:`graphcaps.ops.ragged.tiles.segment_product`, in the precision in force."""
    product: Tensor = _Product.apply(a, x, segments.ptr, segments.max_size)
    return product


def _ragged_product(a: Tensor, x: Tensor, ptr: Tensor, max_size: int | None) -> Tensor:
    *lead, V, N = a.shape
    D, B, L = x.size(-1), ptr.size(-1) - 1, torch.Size(lead).numel()
    parts = count_chunks(max_size)
    out = a.new_empty(parts, *lead, B, N, D)
    if not out.numel():
        return out.sum(0)
    DB = min(tile_width(D), 128)
    NP = tile_width(N)
    columns = triton.cdiv(D, DB)
    _product_kernel[(B, L, parts * columns)](
        a, x, ptr, out, V, B, L, rows_per_chunk(parts, V), N, D,
        ROWS=32, NP=NP, DB=DB, PRECISION=dot_precision(), num_warps=4, num_stages=2,
    )  # fmt: skip
    return out[0] if parts == 1 else out.sum(0)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor, ptr: Tensor, max_size: int | None) -> Tensor:
        a, x, ptr = a.contiguous(), x.contiguous(), ptr.contiguous()
        ctx.save_for_backward(a, x, ptr)
        ctx.max_size, ctx.precision = max_size, dot_precision()
        return _ragged_product(a, x, ptr, max_size)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        a, x, ptr = ctx.saved_tensors
        grad_a, grad_x = torch.zeros_like(a), torch.zeros_like(x)  # padding rows are not written
        *lead, V, N = a.shape
        D, B, L = x.size(-1), ptr.size(-1) - 1, torch.Size(lead).numel()
        if grad.numel() and a.numel():
            # A graph is cut where its size is known: the chunks of a gradient need no second launch.
            size = ctx.max_size
            parts, chunk = (
                (1, V) if size is None else (max(1, triton.cdiv(size, _GRADIENT_ROWS)), _GRADIENT_ROWS)
            )
            _product_gradient_kernel[(B, L, parts)](
                a, x, grad.contiguous(), ptr, grad_a, grad_x, V, B, chunk, N, D,
                ROWS=32, NP=tile_width(N), DB=min(tile_width(D), 64),
                PRECISION=ctx.precision, num_warps=4, num_stages=2,
            )  # fmt: skip
        return grad_a, grad_x, None, None


def ragged_sum(x: Tensor, ptr: Tensor, max_size: int | None) -> Tensor:
    """Sum of the rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d]``, without gradient."""
    *lead, V, D = x.shape
    B, L = ptr.size(-1) - 1, torch.Size(lead).numel()
    # Chunks need a second launch, which pays off only for large graphs.
    parts = count_chunks(max_size) if (max_size or 0) > 2 * CHUNK else 1
    out = x.new_empty(parts, *lead, B, D)
    if not out.numel():
        return out.sum(0)
    DB = min(tile_width(D), 64)
    columns = triton.cdiv(D, DB)
    _sum_kernel[(B, L, parts * columns)](
        x.contiguous(),
        ptr.contiguous(),
        out,
        V,
        B,
        L,
        rows_per_chunk(parts, V),
        D,
        ROWS=min(128, _SUM_NUMBERS // DB),
        DB=DB,
        STAGES=_STAGES if DB > _NARROW else 1,
        num_warps=4,
    )
    return out[0] if parts == 1 else out.sum(0)


def _broadcast(x: Tensor, index: Tensor) -> Tensor:
    *lead, B, D = x.shape
    V, L = index.size(-1), torch.Size(lead).numel()
    out = x.new_empty(*lead, V, D)
    if not out.numel():
        return out
    DB = min(tile_width(D), 128)
    rows = 32
    _broadcast_kernel[(triton.cdiv(V, rows), L, triton.cdiv(D, DB))](
        x.contiguous(), index.contiguous(), out, V, B, D, ROWS=rows, DB=DB, num_warps=4
    )
    return out


class _Sum(torch.autograd.Function):
    """A linear map: its gradient is its transpose, to any order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, index: Tensor, max_size: int | None) -> Tensor:
        ctx.save_for_backward(ptr, index)
        ctx.max_size = max_size
        return ragged_sum(x, ptr, max_size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Broadcast.apply(grad, *ctx.saved_tensors, ctx.max_size), None, None, None


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, index: Tensor, max_size: int | None) -> Tensor:
        ctx.save_for_backward(ptr, index)
        ctx.max_size = max_size
        return _broadcast(x, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _Sum.apply(grad, *ctx.saved_tensors, ctx.max_size), None, None, None
