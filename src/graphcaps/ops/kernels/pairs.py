r"""The reconstruction loss of all pairs of nodes and its slope, tile by tile in one pass.

A program keeps T rows of Z and walks over all nodes of their graph, 32 columns at a time: products, bounds,
cross-entropy, and the row's slope :math:`2w \sum_j g_{ij} z_j`. Products and edges are symmetric, so the slope
of a row needs no other program, and no atomic addition. Edges are read as bits (:class:`BitRows`), one word a
row and step; where there are none, a second kernel corrects the sum over all pairs at the listed edges.

Loss and slope stay without the common factor of the average, which the last kernel finds.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.kernels.tiling import SEARCH, tile_of
from graphcaps.ops.reconstruct_naive import PairRule
from graphcaps.types import EdgeTable, Segments

__all__ = ["PRECISION", "pair_loss"]

PRECISION = "tf32x3"
"""How the tensor cores multiply float32: three products of the rounded halves, close to float32."""

_WIDE = 128  # columns of Z that a program holds; a wider Z is walked through in chunks
_COLUMNS = 32  # a word of bits


def pair_loss(z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule) -> Tensor:
    """:func:`graphcaps.ops.reconstruction_loss` by kernels: float32 ``z [*lead, V, d]`` to ``[*lead]``."""
    loss: Tensor = _PairLoss.apply(z, edges, segments, rule)
    return loss


class _PairLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule) -> Tensor:
        loss, slope, scale = _launch(z.contiguous(), edges, segments, rule, ctx.needs_input_grad[0])
        if slope is not None:
            ctx.save_for_backward(slope, scale)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        slope, scale = ctx.saved_tensors
        return slope * (grad * scale)[..., None, None], None, None, None


def _launch(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, need_slope: bool
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Loss ``[*lead]``, slope ``[*lead, V, d]`` before its common factor, and that factor ``[*lead]``."""
    *lead, V, d = z.shape
    F, B = torch.Size(lead).numel(), segments.num_graphs
    loss, scale = z.new_empty(lead), z.new_empty(lead)
    slope = torch.empty_like(z) if need_slope else None
    if not F:
        return loss, slope, scale
    D = min(max(16, triton.next_power_of_2(d)), _WIDE)
    chunks = max(1, triton.cdiv(d, D))
    T = 64 if D <= 64 and (segments.max_size is None or segments.max_size > 64) else 32
    warps = 2 if T == 32 and D <= 32 else 4  # of four warps, two would repeat the work of the others
    # The padding rows behind the last graph take tiles like one more graph, which are filled with zeros.
    N = V // T + B + 1
    bits = edges.bits
    partial = z.new_empty(F, N + V if bits is None else N)
    ptr, node = segments.ptr.contiguous(), edges.node.contiguous()
    bounds = (rule.low, rule.high, rule.epsilon)
    mean_of_graphs = rule.average == "graphs"
    whole, parts = chunks == 1, chunks if need_slope else 1
    common: dict[str, Any] = {"MEAN_OF_GRAPHS": mean_of_graphs, "SLOPE": need_slope, "D": D, "WHOLE": whole}
    _tiles_kernel[(N, F, parts)](
        z, ptr, node,
        node if bits is None else bits.start, node if bits is None else bits.words,
        z if slope is None else slope, partial, V, B, d, chunks, partial.size(1), *bounds,
        ZERO_DIAGONAL=rule.zero_diagonal, BITS=bits is not None, PRECISION=PRECISION, TIMES=_factors(rule),
        T=T, C=_COLUMNS, SEARCH=SEARCH, **common, num_warps=warps, num_stages=2 if whole else 1,
    )  # fmt: skip
    if bits is None and V:
        _edges_kernel[(V, F, parts)](
            z, ptr, segments.index.contiguous(), edges.ptr, edges.neighbours, node, edges.first.contiguous(),
            z if slope is None else slope, partial, V, B, d, chunks, partial.size(1), N, *bounds,
            K=32, **common, num_warps=max(1, D // 32),
        )  # fmt: skip
    _finish_kernel[(F,)](partial, ptr, loss, scale, B, partial.size(1), mean_of_graphs, BLOCK=1024)
    return loss, slope, scale


def _factors(rule: PairRule) -> int:
    """How many probabilities may be multiplied before a logarithm is taken, without leaving float32."""
    smallest = min(rule.low, 1 - rule.high) + rule.epsilon
    largest = max(rule.high, 1 - rule.low) + rule.epsilon
    for times in (4, 2):
        if smallest > 0 and times * math.log(smallest) > -80 and times * math.log(largest) < 80:
            return times
    return 1


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride"])
def _tiles_kernel(  # type: ignore[no-untyped-def]
    z, ptr, node, start, words, slope, partial, V, B, d, chunks, stride, low, high, epsilon,
    ZERO_DIAGONAL: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr, TIMES: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr, SEARCH: tl.constexpr,
    MEAN_OF_GRAPHS: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """T rows of a graph (program 0) of a replica (1) against the whole graph; a chunk of the slope (2)."""
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    ptr += replica * (B + 1)
    z += replica * V * d
    graph, first, end = tile_of(ptr, tile, V, B, T, SEARCH)
    n = end - first
    row = first + (tile - first // T - graph) * T + tl.arange(0, T)
    inside = row < end
    used = inside & (graph < B)
    # Nothing to do in a tile of padding rows, or in one that the graph does not need.
    columns = tl.max(tl.where(used, n, 0), 0)
    k = tl.arange(0, D)
    rows = z + row.to(tl.int64)[:, None] * d + k[None, :]
    lane = tl.arange(0, C)
    if BITS:
        store = tl.load(node + replica * V + row, mask=used, other=0)
        row_words = words + tl.load(start + store, mask=used, other=0)
    if WHOLE:
        za = tl.load(rows, mask=used[:, None] & (k[None, :] < d), other=0.0)
    total = tl.zeros([T, C], tl.float32)
    product = tl.full([T, C], 1.0, tl.float32)
    grad = tl.zeros([T, D], tl.float32)

    for c in range(0, columns, C):
        column = c + lane
        there = column < n
        others = z + (first + column).to(tl.int64)[:, None] * d + k[None, :]
        if WHOLE:
            zb = tl.load(others, mask=there[:, None] & (k[None, :] < d), other=0.0)
            S = tl.dot(za, tl.trans(zb), input_precision=PRECISION)
        else:
            S = tl.zeros([T, C], tl.float32)
            for q in range(0, chunks):
                known = k[None, :] + q * D < d
                zq = tl.load(rows + q * D, mask=used[:, None] & known, other=0.0)
                zb = tl.load(others + q * D, mask=there[:, None] & known, other=0.0)
                S = tl.dot(zq, tl.trans(zb), S, input_precision=PRECISION)
        # Comparisons, not minimum and maximum, which would turn NaN into a bound.
        below = low > S
        above = high < S
        P = tl.where(below, low, tl.where(above, high, S))
        flat = below | above
        if ZERO_DIAGONAL:
            diagonal = row[:, None] == (first + column)[None, :]
            P = tl.where(diagonal, 0.0, P)
            flat = flat | diagonal
        value = 1 - P + epsilon
        if BITS:
            word = tl.load(row_words + c // C, mask=inside, other=0)
            joined = ((word[:, None] >> lane[None, :]) & 1) != 0
            value = tl.where(joined, P + epsilon, value)
        value = tl.where(inside[:, None] & there[None, :], value, 1.0)
        # Logarithms are dear and products are cheap.
        product = product * value
        if (c // C) % TIMES == TIMES - 1:
            total += tl.log(product)
            product = tl.full([T, C], 1.0, tl.float32)
        if SLOPE:
            g = 1 / value
            if BITS:
                g = tl.where(joined, -g, g)
            g = tl.where(flat, 0.0, g)
            if not WHOLE:
                known = k[None, :] + part * D < d
                zb = tl.load(others + part * D, mask=there[:, None] & known, other=0.0)
            grad = tl.dot(g, zb, grad, input_precision=PRECISION)

    weight = 1.0
    if MEAN_OF_GRAPHS:
        wide = tl.maximum(n, 1).to(tl.float32)
        weight = 1 / (wide * wide)
    if part == 0:
        found = tl.sum(tl.sum(total + tl.log(product), 1), 0)
        tl.store(partial + replica * stride + tile, -weight * found)
    if SLOPE:
        place = slope + replica * V * d + row.to(tl.int64)[:, None] * d + k[None, :] + part * D
        tl.store(place, grad * (2 * weight), mask=inside[:, None] & (k[None, :] + part * D < d))


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride", "offset"])
def _edges_kernel(  # type: ignore[no-untyped-def]
    z, ptr, index, edge_ptr, neighbours, node, first, slope, partial, V, B, d, chunks, stride, offset,
    low, high, epsilon, K: tl.constexpr,
    MEAN_OF_GRAPHS: tl.constexpr, SLOPE: tl.constexpr, D: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """What the edges of a slot (program 0) change in the sum over all pairs: −Σ (log P − log(1 − P))."""
    slot = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    at = replica * V + slot
    store = tl.load(node + at).to(tl.int64)
    side = tl.arange(0, 2)
    ends = tl.load(edge_ptr + store + side, mask=store >= 0, other=0)
    lower = tl.min(ends, 0)
    count = tl.sum(tl.where(side == 1, ends, -ends), 0).to(tl.int32)
    rows = z + (replica * V + tl.load(first + at)) * d
    k = tl.arange(0, D)
    own = z + at * d + k
    total = tl.zeros([K], tl.float32)
    grad = tl.zeros([D], tl.float32)
    if WHOLE:
        zi = tl.load(own, mask=(k < d) & (store >= 0), other=0.0)
    for e in range(0, count, K):
        entry = e + tl.arange(0, K)
        there = entry < count
        local = tl.load(neighbours + lower + entry, mask=there, other=0).to(tl.int64)
        neighbour = rows + local[:, None] * d + k[None, :]
        if WHOLE:
            zj = tl.load(neighbour, mask=there[:, None] & (k[None, :] < d), other=0.0)
            S = tl.sum(zj * zi[None, :], 1)
        else:
            S = tl.zeros([K], tl.float32)
            for q in range(0, chunks):
                known = k + q * D < d
                zi = tl.load(own + q * D, mask=known, other=0.0)
                zj = tl.load(neighbour + q * D, mask=there[:, None] & known[None, :], other=0.0)
                S += tl.sum(zj * zi[None, :], 1)
        below = low > S
        above = high < S
        P = tl.where(below, low, tl.where(above, high, S))
        joined = P + epsilon
        missing = 1 - P + epsilon
        total += tl.where(there, tl.log(joined) - tl.log(missing), 0.0)
        if SLOPE:
            g = tl.where(below | above | (entry >= count), 0.0, 1 / joined + 1 / missing)
            if not WHOLE:
                known = k + part * D < d
                zj = tl.load(neighbour + part * D, mask=there[:, None] & known[None, :], other=0.0)
            grad += tl.sum(g[:, None] * zj, 0)

    weight = 1.0
    if MEAN_OF_GRAPHS:
        graph = tl.load(index + at)
        begin = ptr + replica * (B + 1) + graph
        n = tl.load(begin + 1, mask=graph < B, other=1) - tl.load(begin, mask=graph < B, other=0)
        wide = n.to(tl.float32)
        weight = 1 / (wide * wide)
    if part == 0:
        tl.store(partial + replica * stride + offset + slot, -weight * tl.sum(total, 0))
    if SLOPE:
        place = slope + at * d + k + part * D
        change = (k + part * D < d) & (count > 0)
        tl.store(place, tl.load(place, mask=change, other=0.0) - (2 * weight) * grad, mask=change)


@triton.jit(do_not_specialize=["B", "stride"])
def _finish_kernel(  # type: ignore[no-untyped-def]
    partial, ptr, loss, scale, B, stride, MEAN_OF_GRAPHS: tl.constexpr, BLOCK: tl.constexpr
):
    """Adds what the programs of a replica found, and scales it by Σn² or by the number of graphs."""
    replica = tl.program_id(0).to(tl.int64)
    partial += replica * stride
    ptr += replica * (B + 1)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    at = 0
    while at < stride:
        total += tl.load(partial + at + lane, mask=at + lane < stride, other=0.0)
        at += BLOCK
    counted = tl.zeros([BLOCK], tl.float32)
    at = 0
    while at < B:
        real = at + lane < B
        n = tl.load(ptr + at + lane + 1, mask=real, other=0) - tl.load(ptr + at + lane, mask=real, other=0)
        wide = n.to(tl.float32)
        if MEAN_OF_GRAPHS:
            wide = tl.minimum(wide, 1.0)  # a graph counts once, however large
        counted += wide * wide
        at += BLOCK
    factor = 1 / tl.maximum(tl.sum(counted, 0), 1.0)
    tl.store(loss + replica, tl.sum(total, 0) * factor)
    tl.store(scale + replica, factor)
