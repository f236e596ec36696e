r"""The sampled reconstruction loss and its gradient: one program per row of a large graph, no list of pairs.

A program computes the terms of its row: the edges, read from the store's neighbour lists, the diagonal, and the K
sampled partners. Pairs are symmetric, so that the gradient of a row, :math:`2w \sum_j g_{ij} z_j`, needs no other
program and no atomic addition. Which of the partners are edges follows from the positions of the neighbours in the
shuffle. Small graphs are computed by tiles (:mod:`graphcaps.ops.reconstruction.pair_loss_triton`), into the same sums.

No shape depends on the graphs, and nothing is read by the host: a step with sampled pairs can be captured. The pairs
are those of :mod:`graphcaps.ops.reconstruction.pair_sampling`, bit by bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops.activation.activation_triton import hash_position
from graphcaps.ops.ragged.ragged_triton import ragged_sum
from graphcaps.ops.reconstruction.pair_loss_naive import PairRule
from graphcaps.ops.reconstruction.pair_loss_triton import (
    LargeGraphs,
    PairSums,
    loss_and_gradient,
    pair_sums,
    scale_gradients,
)
from graphcaps.types import EdgeTable, Segments

__all__ = ["sampled_pair_sums", "sampled_reconstruction_loss"]

_WIDE, _CHUNK = 128, 64  # columns of Z that a program holds; a wider Z is read in chunks
_EDGES = 16  # neighbours of a step
_BLOCK = 512  # rows or graphs of a program that hashes them


def sampled_reconstruction_loss(
    z: Tensor,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    shift: Tensor | None,
    keys: Tensor,
    up_to: int,
    pairs: int,
) -> Tensor:
    """As :func:`graphcaps.ops.reconstruction.pair_loss_sampled.sampled_reconstruction_loss`, in float32."""
    loss: Tensor = _RowLoss.apply(z, shift, edges, segments, rule, keys, up_to, pairs)
    return loss


def sampled_pair_sums(
    z: Tensor,
    shift: Tensor,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    keys: Tensor,
    up_to: int,
    pairs: int,
) -> PairSums:
    """As :func:`graphcaps.ops.reconstruction.pair_loss_triton.pair_sums`, with sums of the gradient over graphs."""
    large = _large_graphs(z, shift, edges, segments, rule, keys, up_to, pairs)
    partial, grad_z, _, _ = pair_sums(z, shift, edges, segments, rule, True, large)
    assert grad_z is not None
    *lead, V, d = z.shape
    F = torch.Size(lead).numel()
    # A graph is one tile if a tile is as high as all rows.
    sums = ragged_sum(grad_z.view(F, V, d), segments.ptr.reshape(F, -1).contiguous(), segments.max_size)
    return PairSums(partial, grad_z, sums, V + 1)


def _large_graphs(
    z: Tensor,
    shift: Tensor | None,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    keys: Tensor,
    up_to: int,
    pairs: int,
) -> LargeGraphs:
    shuffle = _shuffle(keys, segments)

    def add(partial: Tensor, offset: int, grad_z: Tensor | None) -> None:
        _add_large_graphs(z, shift, edges, segments, rule, shuffle, up_to, pairs, partial, offset, grad_z)

    return LargeGraphs(up_to, add)


class _RowLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        shift: Tensor | None,
        edges: EdgeTable,
        segments: Segments,
        rule: PairRule,
        keys: Tensor,
        up_to: int,
        pairs: int,
    ) -> Tensor:
        z, shift = z.contiguous(), None if shift is None else shift.contiguous()
        large = _large_graphs(z, shift, edges, segments, rule, keys, up_to, pairs)
        need = any(ctx.needs_input_grad[:2])
        result = loss_and_gradient(z, shift, edges, segments, rule, need, large)
        if result.grad_z is not None:
            ctx.save_for_backward(result.grad_z, result.scale, segments.ptr.contiguous())
            ctx.shifted, ctx.max_size = shift is not None, segments.max_size
        return result.loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad_z, scale, ptr = ctx.saved_tensors
        dz, _ = scale_gradients(grad_z, grad.contiguous(), scale, None, ptr, False, 1)
        # Large graphs are summed in chunks, in parallel.
        grad_shift = ragged_sum(dz, ptr, ctx.max_size) if ctx.shifted else None
        return dz, grad_shift, None, None, None, None, None, None


class _Shuffle(NamedTuple):
    """The nodes of each graph in random order.

    Args:
        order (Tensor): Row of a replica at each position, ``[F, V]``; the positions of a graph are its rows.
        position (Tensor): Position of each row, ``[F, V]``.
        start (Tensor): u of each graph, ``[F, B]``.
    """

    order: Tensor
    position: Tensor
    start: Tensor


def _shuffle(keys: Tensor, segments: Segments) -> _Shuffle:
    """As :func:`graphcaps.ops.reconstruction.pair_sampling.sample_pairs`, by a sort of keys that a kernel computes."""
    index, ptr = segments.index.contiguous(), segments.ptr.contiguous()
    V, B = segments.num_rows, segments.num_graphs
    F = index.numel() // V if V else 0
    shuffled = torch.empty(F, V, dtype=torch.int64, device=index.device)
    start = torch.empty(F, B, dtype=torch.int32, device=index.device)
    if F:
        _shuffle_kernel[(triton.cdiv(max(V, B), _BLOCK), F)](
            index, ptr, keys.contiguous(), shuffled, start, V, B, BLOCK=_BLOCK, num_warps=4
        )
    order = shuffled.argsort(dim=-1, stable=True)
    numbers = torch.arange(V, device=index.device).expand_as(order)
    return _Shuffle(order, torch.empty_like(order).scatter_(-1, order, numbers), start)


def _add_large_graphs(
    z: Tensor,
    shift: Tensor | None,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    shuffle: _Shuffle,
    up_to: int,
    pairs: int,
    partial: Tensor,
    offset: int,
    grad_z: Tensor | None,
) -> None:
    """Writes the sums of all rows into ``partial`` and the gradient of rows of large graphs into ``grad_z``."""
    V, d = z.shape[-2:]
    B, F = segments.num_graphs, partial.size(0)
    D = tile_width(d) if d <= _WIDE else _CHUNK
    chunks = max(1, triton.cdiv(d, D))
    _rows_kernel[(V, F, chunks if grad_z is not None else 1)](
        # Unused pointers must be valid, too.
        z, z if shift is None else shift, segments.ptr.contiguous(), segments.index.contiguous(),
        edges.ptr, edges.neighbours, edges.node.contiguous(), *shuffle, z if grad_z is None else grad_z, partial,
        V, B, d, chunks, partial.size(1), offset, up_to, pairs, rule.low, rule.high, rule.epsilon,
        ZERO_DIAGONAL=rule.zero_diagonal, MEAN_OF_GRAPHS=rule.average == "graphs", GRADIENT=grad_z is not None,
        SHIFT=shift is not None, E=_EDGES, K=max(2, triton.next_power_of_2(pairs)), D=D, SINGLE_CHUNK=chunks == 1,
        num_warps=max(1, D // 32),
    )  # fmt: skip


@triton.jit(do_not_specialize=["V", "B"])
def _shuffle_kernel(  # type: ignore[no-untyped-def]
    index, ptr, keys, shuffled, start, V, B, BLOCK: tl.constexpr
):
    """Keys by which the rows of a replica are sorted, graph by graph, and u of its graphs."""
    replica = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(keys + 2 * replica)
    second = tl.load(keys + 2 * replica + 1)
    is_row = at < V
    graph = tl.load(index + replica * V + at, mask=is_row, other=0).to(tl.int64)
    h = hash_position(at, first, second).to(tl.int64)
    tl.store(shuffled + replica * V + at, (graph << 31) + h, mask=is_row)
    is_graph = at < B
    begin = ptr + replica * (B + 1) + at
    n = tl.load(begin + 1, mask=is_graph, other=1) - tl.load(begin, mask=is_graph, other=0)
    n = tl.maximum(n, 1).to(tl.int64)
    # Two hashes, of the keys in the other order, give 62 bits.
    high = hash_position(2 * at, second, first).to(tl.int64)
    low = hash_position(2 * at + 1, second, first).to(tl.int64)
    u = ((high << 31) + low) % n
    tl.store(start + replica * B + at, u.to(tl.int32), mask=is_graph)


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride", "offset", "up_to", "pairs"])
def _rows_kernel(  # type: ignore[no-untyped-def]
    p, shift, ptr, index, edge_ptr, neighbours, node, order, position, start, grad_z, partial,
    V, B, d, chunks, stride, offset, up_to, pairs, low, high, epsilon,
    ZERO_DIAGONAL: tl.constexpr, MEAN_OF_GRAPHS: tl.constexpr, GRADIENT: tl.constexpr, SHIFT: tl.constexpr,
    E: tl.constexpr, K: tl.constexpr, D: tl.constexpr, SINGLE_CHUNK: tl.constexpr,
):  # fmt: skip
    """The terms of a row (program 0) of a replica (1), a chunk of the gradient (2)."""
    row = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    at = replica * V + row
    graph = tl.load(index + at)
    begin = ptr + replica * (B + 1) + graph
    top = tl.load(begin, mask=graph < B, other=0).to(tl.int32)
    n = tl.load(begin + 1, mask=graph < B, other=0).to(tl.int32) - top
    total = 0.0
    if n > up_to:
        p += replica * V * d
        order += replica * V
        position += replica * V
        shift += (replica * B + graph) * d
        columns = tl.arange(0, D)
        count = tl.minimum(n, pairs)  # of the matchings
        u = tl.load(start + replica * B + graph)
        own = tl.load(position + row).to(tl.int32) - top
        # The partner of each matching.
        k = tl.arange(0, K)
        other = tl.load(order + top + (u + k * n // count - own + n) % n, mask=k < count, other=0)
        sampled = (k < count) & (other != row)
        # The edges, and which of the matchings they are in.
        store = tl.load(node + at).to(tl.int64)
        lower = tl.load(edge_ptr + store)
        degree = (tl.load(edge_ptr + store + 1) - lower).to(tl.int32)
        zi = tl.zeros([D], tl.float32)
        s = tl.zeros([D], tl.float32)
        if SINGLE_CHUNK:
            zi = tl.load(p + row.to(tl.int64) * d + columns, mask=columns < d, other=0.0)
            if SHIFT:
                s = tl.load(shift + columns, mask=columns < d, other=0.0)
                zi += s
        grad = tl.zeros([D], tl.float32)
        logs = tl.zeros([E], tl.float32)
        is_edge = tl.zeros([K], tl.int32)
        for e in range(0, degree, E):
            entry = e + tl.arange(0, E)
            listed = entry < degree
            local = tl.load(neighbours + lower + entry, mask=listed, other=0).to(tl.int32)
            place = tl.load(position + top + local, mask=listed, other=0).to(tl.int32) - top
            t = (own + place - u + n) % n
            # The one matching with ⌊k n / K⌋ = t, if any, is the first with k n / K ≥ t.
            matching = (t * count + n - 1) // n
            paired = listed & (matching < count) & (matching * n // count == t)
            matching = tl.where(paired, matching, K)
            is_edge = tl.maximum(is_edge, tl.max((matching[:, None] == k[None, :]).to(tl.int32), 0))
            rows = (top + local).to(tl.int64)
            zj, S = _products(p, shift, rows, listed, row, zi, s, d, chunks, SHIFT, E, D, SINGLE_CHUNK)
            P, free = _probability(S, low, high)
            present = P + epsilon
            logs += tl.where(listed, tl.log(present), 0.0)
            if GRADIENT:
                if not SINGLE_CHUNK:
                    zj = _columns(p, shift, rows, listed, part, d, SHIFT, D)
                g = tl.where(free & listed, -1 / present, 0.0)
                grad += tl.sum(g[:, None] * zj, 0)
        total = -tl.sum(logs, 0)
        # The diagonal as one more matching that pairs every node with itself.
        ratio = n.to(tl.float32) / count
        for diagonal in tl.static_range(2):
            if diagonal == 0:
                rows = other.to(tl.int64)
                counted = sampled & (is_edge == 0)
                factor = ratio
            else:
                rows = tl.zeros([K], tl.int64) + row
                counted = k == 0
                factor = 1.0
            zj, S = _products(p, shift, rows, counted, row, zi, s, d, chunks, SHIFT, K, D, SINGLE_CHUNK)
            P, free = _probability(S, low, high)
            if diagonal == 1 and ZERO_DIAGONAL:
                P = tl.zeros([K], tl.float32)
                free = k < 0
            absent = 1 - P + epsilon
            total -= factor * tl.sum(tl.where(counted, tl.log(absent), 0.0), 0)
            if GRADIENT:
                if not SINGLE_CHUNK:
                    zj = _columns(p, shift, rows, counted, part, d, SHIFT, D)
                g = tl.where(free & counted, factor / absent, 0.0)
                grad += tl.sum(g[:, None] * zj, 0)
        weight = 1.0
        if MEAN_OF_GRAPHS:
            wide = n.to(tl.float32)
            weight = 1 / (wide * wide)
        total *= weight
        if GRADIENT:
            at_column = columns + part * D
            tl.store(grad_z + at * d + at_column, 2 * weight * grad, mask=at_column < d)
    if part == 0:
        tl.store(partial + replica * stride + offset + row, total)


@triton.jit
def _probability(S, low, high):  # type: ignore[no-untyped-def]
    """The product within its bounds, and whether it is; comparisons, so that NaN stays NaN."""
    below = low > S
    above = high < S
    return tl.where(below, low, tl.where(above, high, S)), (low <= S) & (high >= S)


@triton.jit
def _columns(p, shift, rows, valid, part, d, SHIFT: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """A chunk of columns of some rows, with the shift of their graph."""
    at = part * D + tl.arange(0, D)
    z = tl.load(p + rows[:, None] * d + at[None, :], mask=valid[:, None] & (at < d)[None, :], other=0.0)
    if SHIFT:
        z += tl.load(shift + at, mask=at < d, other=0.0)[None, :]
    return z


@triton.jit
def _products(  # type: ignore[no-untyped-def]
    p, shift, rows, valid, row, zi, s, d, chunks,
    SHIFT: tl.constexpr, N: tl.constexpr, D: tl.constexpr, SINGLE_CHUNK: tl.constexpr,
):  # fmt: skip
    """N rows, if one chunk holds all columns, and their products with the program's row."""
    if SINGLE_CHUNK:
        at = tl.arange(0, D)
        zj = tl.load(p + rows[:, None] * d + at[None, :], mask=valid[:, None] & (at < d)[None, :], other=0.0)
        if SHIFT:
            zj += s[None, :]
        S = tl.sum(zj * zi[None, :], 1)
    else:
        zj = tl.zeros([N, D], tl.float32)
        S = tl.zeros([N], tl.float32)
        own = tl.zeros([N], tl.int64) + row
        for q in range(0, chunks):
            z = _columns(p, shift, rows, valid, q, d, SHIFT, D)
            S += tl.sum(z * _columns(p, shift, own, valid, q, d, SHIFT, D), 1)
    return zj, S
