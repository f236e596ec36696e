r"""The reconstruction loss of all pairs of nodes and its slope in one pass over the tiles of each graph.

Products and edges are symmetric, so the slope of a row, :math:`2w \sum_j g_{ij} z_j`, needs no other program,
and no atomic addition. Edges are read as bits (:class:`AdjacencyBits`), one word a row and step; where there are none,
a second kernel corrects the sum over all pairs at the listed edges.

Loss and slope stay without the common factor of the average, which the last kernel finds; the backward pass
multiplies by it, and adds up per graph what belongs to the shift, in one kernel.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import fast_log2, fast_reciprocal, product
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops._triton.tiling import count_tiles, tile_at, tile_table
from graphcaps.ops.reconstruction.pair_loss_naive import PairRule
from graphcaps.types import EdgeTable, Segments

__all__ = ["reconstruction_loss"]


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride", "offset"])
def edges_kernel(  # type: ignore[no-untyped-def]
    p, shift, ptr, index, edge_ptr, neighbours, node, first, slope, partial, V, B, d, chunks, stride, offset,
    low, high, epsilon, K: tl.constexpr,
    MEAN_OF_GRAPHS: tl.constexpr, SLOPE: tl.constexpr, SHIFT: tl.constexpr,
    D: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The edges of a slot (program 0) of a replica (1), a chunk of the slope (2): −Σ (log P − log(1 − P))."""
    slot = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    at = replica * V + slot
    store = tl.load(node + at).to(tl.int64)
    side = tl.arange(0, 2)
    ends = tl.load(edge_ptr + store + side, mask=store >= 0, other=0)
    lower = tl.min(ends, 0)
    count = tl.sum(tl.where(side == 1, ends, -ends), 0).to(tl.int32)
    graph = tl.load(index + at)
    rows = p + (replica * V + tl.load(first + at)) * d
    shift += (replica * B + graph) * d
    real = graph < B
    k = tl.arange(0, D)
    own = p + at * d + k
    total = tl.zeros([K], tl.float32)
    grad = tl.zeros([D], tl.float32)
    if WHOLE:
        zi = tl.load(own, mask=(k < d) & (store >= 0), other=0.0)
        if SHIFT:
            s = tl.load(shift + k, mask=(k < d) & real, other=0.0)
            zi += s
    for e in range(0, count, K):
        entry = e + tl.arange(0, K)
        there = entry < count
        local = tl.load(neighbours + lower + entry, mask=there, other=0).to(tl.int64)
        neighbour = rows + local[:, None] * d + k[None, :]
        if WHOLE:
            zj = tl.load(neighbour, mask=there[:, None] & (k[None, :] < d), other=0.0)
            if SHIFT:
                zj += s[None, :]
            S = tl.sum(zj * zi[None, :], 1)
        else:
            S = tl.zeros([K], tl.float32)
            for q in range(0, chunks):
                known = k + q * D < d
                zi = tl.load(own + q * D, mask=known, other=0.0)
                zj = tl.load(neighbour + q * D, mask=there[:, None] & known[None, :], other=0.0)
                if SHIFT:
                    s = tl.load(shift + k + q * D, mask=known & real, other=0.0)
                    zi += s
                    zj += s[None, :]
                S += tl.sum(zj * zi[None, :], 1)
        # Comparisons, not minimum and maximum, which would turn NaN into a bound.
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
                if SHIFT:
                    zj += tl.load(shift + k + part * D, mask=known & real, other=0.0)[None, :]
            grad += tl.sum(g[:, None] * zj, 0)

    weight = 1.0
    if MEAN_OF_GRAPHS:
        begin = ptr + replica * (B + 1) + graph
        n = tl.load(begin + 1, mask=real, other=1) - tl.load(begin, mask=real, other=0)
        wide = n.to(tl.float32)
        weight = 1 / (wide * wide)
    if part == 0:
        tl.store(partial + replica * stride + offset + slot, -weight * tl.sum(total, 0))
    if SLOPE:
        place = slope + at * d + k + part * D
        change = (k + part * D < d) & (count > 0)
        tl.store(place, tl.load(place, mask=change, other=0.0) - (2 * weight) * grad, mask=change)


_LOG_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _rounded(x):  # type: ignore[no-untyped-def]
    """The upper bits of x, as many as the tensor cores read."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total + a b``; three products are written out, since Triton's own look for NaN in each of them."""
    if PRECISION == "tf32x3":
        upper_a = _rounded(a)
        upper_b = _rounded(b)
        total = tl.dot(upper_a, b - upper_b, total, input_precision="tf32")
        total = tl.dot(a - upper_a, upper_b, total, input_precision="tf32")
        total = tl.dot(upper_a, upper_b, total, input_precision="tf32")
    else:
        total = product(a, b, total, PRECISION)
    return total


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride"])
def tiles_kernel(  # type: ignore[no-untyped-def]
    p, shift, table, words, slope, sums, partial, V, B, d, chunks, stride, low, high, epsilon,
    ZERO_DIAGONAL: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr, TIMES: tl.constexpr,
    THROUGH: tl.constexpr, NARROW: tl.constexpr, AHEAD: tl.constexpr, UNIT: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr,
    MEAN_OF_GRAPHS: tl.constexpr, SLOPE: tl.constexpr, SHIFT: tl.constexpr,
    D: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """T rows of a graph (program 0) of a replica (1) against the whole graph; a chunk of the slope (2).

    ``sums`` receives the sum of the slope over the rows of the tile. ``NARROW``: sums over columns are taken in
    each step (cheap where a warp has whole rows), for fewer registers. ``AHEAD``: columns and words of the next
    step are loaded in this one, ``UNIT`` numbers by a thread at once. Two products take the columns in two
    layouts, and such a load Triton does not move ahead by itself.
    """
    tl.static_assert(C == 32, "a word of bits serves one step")
    tile = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    p += replica * V * d
    slope += replica * V * d
    graph, first, end, top, word_at = tile_at(table, replica * tl.num_programs(0) + tile)
    n = end - first
    begin = top - first  # the tile's first row, counted inside its graph
    row = top + tl.arange(0, T)
    inside = row < end
    used = inside & (graph < B)
    # Nothing to do in a tile of padding rows, or in one that the graph does not need.
    columns = tl.where((graph < B) & (top < end), n, 0)
    k = tl.arange(0, D)
    place = row.to(tl.int64)[:, None] * d + k[None, :]
    own = used[:, None] & (k[None, :] < d)
    shift += (replica * B + graph) * d
    shifted = (k < d) & (graph < B)
    lane = tl.arange(0, C)
    bit = 1 << lane
    # The rows of bits of a graph lie one after another, with as many words each.
    words += word_at
    row_words = (begin + tl.arange(0, T)) * tl.cdiv(n, C)
    # Offsets inside a graph fit into 32 bits.
    around = p + first.to(tl.int64) * d
    near = lane[:, None] * d + k[None, :]
    if AHEAD:
        places = around + near
        if UNIT < 4:
            places = tl.max_contiguous(places, [1, UNIT])
        next_zb = tl.load(places, mask=(lane < columns)[:, None] & (k[None, :] < d), other=0.0)
        if BITS:
            next_word = tl.load(words + row_words, mask=used, other=0)
    term = tl.zeros([T], tl.float32)  # zᵢ s
    if WHOLE:
        za = tl.load(p + place, mask=own, other=0.0)
        if SHIFT:
            s = tl.load(shift + k, mask=shifted, other=0.0)
            za += s[None, :]
            term = tl.sum(za * s[None, :], 1)
            if THROUGH:
                # What was loaded is multiplied out of shared memory, what was computed out of registers, of
                # which there are too few. The slope's place is free until the end.
                tl.store(slope + place, za, mask=own)
                tl.debug_barrier()
                za = tl.load(slope + place, mask=own, other=0.0)
                tl.debug_barrier()
    elif SHIFT:
        for q in range(0, chunks):
            known = k + q * D < d
            s = tl.load(shift + k + q * D, mask=known & (graph < B), other=0.0)
            zq = tl.load(p + place + q * D, mask=used[:, None] & known[None, :], other=0.0) + s[None, :]
            term += tl.sum(zq * s[None, :], 1)
    # Where registers are short, places are computed anew in each step.
    SHORT: tl.constexpr = PRECISION == "tf32x3" and D > 64
    grad = tl.zeros([T, D], tl.float32)
    so_far = tl.full([T, C], 1.0, tl.float32)
    total = tl.zeros([T] if NARROW else [T, C], tl.float32)
    pull = tl.zeros([T] if NARROW else [T, C], tl.float32)  # Σⱼ g

    for c in range(0, columns, C):
        there = c + lane < n
        anew = p + (first + c + lane).to(tl.int64)[:, None] * d + k[None, :]
        others = anew if SHORT else around + c * d + near
        S = tl.zeros([T, C], tl.float32)
        if WHOLE:
            if AHEAD:
                zb = next_zb
                coming = (c + C + lane < n)[:, None] & (k[None, :] < d)
                places = others + C * d
                if UNIT < 4:
                    places = tl.max_contiguous(places, [1, UNIT])
                next_zb = tl.load(places, mask=coming, other=0.0)
            else:
                zb = tl.load(others, mask=there[:, None] & (k[None, :] < d), other=0.0)
            S = _product(za, tl.trans(zb), S, PRECISION)
        else:
            for q in range(0, chunks):
                known = k + q * D < d
                zq = tl.load(p + place + q * D, mask=used[:, None] & known[None, :], other=0.0)
                if SHIFT:
                    zq += tl.load(shift + k + q * D, mask=known & (graph < B), other=0.0)[None, :]
                zb = tl.load(others + q * D, mask=there[:, None] & known[None, :], other=0.0)
                S = _product(zq, tl.trans(zb), S, PRECISION)
        if SHIFT:
            S += term[:, None]
        P = tl.clamp(S, low, high, propagate_nan=tl.PropagateNan.ALL)
        value = 1 - P + epsilon
        if BITS:
            if AHEAD:
                word = next_word
                next_word = tl.load(words + (row_words + c // C + 1), mask=inside & (c + C < n), other=0)
            else:
                word = tl.load(words + (row_words + c // C), mask=inside, other=0)
            value = tl.where((word[:, None] & bit[None, :]) != 0, -epsilon - P, value)
        # Two comparisons, which the compiler makes one: a product that is NaN is no bound.
        g = tl.where((P < S) | (P > S), 0.0, fast_reciprocal(value))
        special = c + C > n
        if ZERO_DIAGONAL:
            special = special | ((c + C > begin) & (c < begin + T))
        if special:
            if ZERO_DIAGONAL:
                same = row[:, None] == (first + c + lane)[None, :]
                value = tl.where(same, 1 + epsilon, value)
                g = tl.where(same, 0.0, g)
            value = tl.where(there[None, :], value, 1.0)
            g = tl.where(there[None, :], g, 0.0)
        # Logarithms are dear and products are cheap.
        so_far = so_far * value
        if (c // C) % TIMES == TIMES - 1:
            logs = fast_log2(tl.abs(so_far))
            total += tl.sum(logs, 1) if NARROW else logs
            so_far = tl.full([T, C], 1.0, tl.float32)
        if SLOPE:
            if SHIFT:
                pull += tl.sum(g, 1) if NARROW else g
            if not WHOLE:
                known = k[None, :] + part * D < d
                zb = tl.load(others + part * D, mask=there[:, None] & known, other=0.0)
            grad = _product(g, zb, grad, PRECISION)

    weight = 1.0
    if MEAN_OF_GRAPHS:
        wide = tl.maximum(n, 1).to(tl.float32)
        weight = 1 / (wide * wide)
    if part == 0:
        logs = tl.sum(fast_log2(tl.abs(so_far)), 1)
        logs += total if NARROW else tl.sum(total, 1)
        found = tl.sum(tl.where(inside, logs, 0.0), 0)
        tl.store(partial + replica * stride + tile, (-_LOG_2 * weight) * found)
    if SLOPE:
        at = k + part * D
        if SHIFT:
            s = tl.load(shift + at, mask=(at < d) & (graph < B), other=0.0)
            grad += (pull if NARROW else tl.sum(pull, 1))[:, None] * s[None, :]
        grad *= 2 * weight
        tl.store(slope + place + part * D, grad, mask=inside[:, None] & (at[None, :] < d))
        if SHIFT:
            found = tl.sum(tl.where(inside[:, None], grad, 0.0), 0)
            tl.store(sums + (replica * tl.num_programs(0) + tile) * d + at, found, mask=at < d)


AHEAD = True
"""Whether a program loads the columns of its next step while it works on this one."""
UNIT = 2
"""Numbers that a thread takes at once of them, 4 or 2: tall tiles store them turned, fewer collide with 2."""

TALL_FROM = 48
"""Nodes of the average graph from which tiles have 64 rows, not 32: small graphs would leave them empty."""

_WIDE, _CHUNK = 128, 64  # columns of Z that a program holds; a wider Z is walked through in chunks
_COLUMNS = 32  # a word of bits
_BLOCK = 4096  # numbers that a program of the backward pass scales


def reconstruction_loss(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, shift: Tensor | None
) -> Tensor:
    """As :func:`graphcaps.ops.reconstruction_loss`, in float32: ``z [*lead, V, d]`` to ``[*lead]``."""
    loss: Tensor = _PairLoss.apply(z, shift, edges, segments, rule)
    return loss


class _Found(NamedTuple):
    """Loss and factor ``[*lead]``; before that factor the slope ``[*lead, V, d]`` and its sums over tiles."""

    loss: Tensor
    scale: Tensor
    slope: Tensor | None
    sums: Tensor | None
    height: int


class _PairLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, shift: Tensor | None, edges: EdgeTable, segments: Segments, rule: PairRule
    ) -> Tensor:
        need = any(ctx.needs_input_grad[:2])
        shift = None if shift is None else shift.contiguous()
        found = _launch(z.contiguous(), shift, edges, segments, rule, need)
        if found.slope is not None:
            # Listed edges change the slope after its sums over tiles were taken.
            sums = found.sums if edges.bits is not None else None
            ctx.save_for_backward(found.slope, found.scale, sums, segments.ptr.contiguous())
            ctx.shifted, ctx.height = shift is not None, found.height
        return found.loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        slope, scale, sums, ptr = ctx.saved_tensors
        change, pull = _scaled(slope, grad.contiguous(), scale, sums, ptr, ctx.shifted, ctx.height)
        return change, pull, None, None, None


def _launch(
    z: Tensor, shift: Tensor | None, edges: EdgeTable, segments: Segments, rule: PairRule, need_slope: bool
) -> _Found:
    *lead, V, d = z.shape
    F, B = torch.Size(lead).numel(), segments.num_graphs
    loss, scale = z.new_empty(lead), z.new_empty(lead)
    slope = torch.empty_like(z) if need_slope else None
    D = max(16, triton.next_power_of_2(d)) if d <= _WIDE else _CHUNK
    chunks = max(1, triton.cdiv(d, D))
    precision = dot_precision()
    T = _height(V, B, D, precision)
    warps = 2 if T == 32 and D <= 32 else 4  # of four warps, two would repeat the work of the others
    # The padding rows behind the last graph take tiles like one more graph, which are filled with zeros.
    N = count_tiles(V, B, T)
    sums = z.new_empty(F, N, d) if need_slope and shift is not None else None
    if not F:
        return _Found(loss, scale, slope, sums, T)
    bits = edges.bits
    partial = z.new_empty(F, N + V if bits is None else N)
    ptr, node = segments.ptr.contiguous(), edges.node.contiguous()
    bounds = (rule.low, rule.high, rule.epsilon)
    mean_of_graphs = rule.average == "graphs"
    whole, parts = chunks == 1, chunks if need_slope else 1
    through = whole and need_slope and T == 64 and D > 64 and precision == "tf32"
    ahead = AHEAD and whole and (D <= 64 or precision != "tf32x3")  # there, no registers are left for it
    unused = z  # in place of what is not there; never read or written
    common: dict[str, Any] = {
        **{"MEAN_OF_GRAPHS": mean_of_graphs, "SLOPE": need_slope, "SHIFT": shift is not None},
        **{"D": D, "WHOLE": whole},
    }
    # Products with the edges of the batch are cut into the same tiles.
    memo = edges.memo if edges.graphs is segments.ptr else {}
    tiles_kernel[(N, F, parts)](
        z, unused if shift is None else shift, tile_table(ptr, edges, T, memo), node if bits is None else bits.words,
        unused if slope is None else slope, unused if sums is None else sums, partial,
        V, B, d, chunks, partial.size(1), *bounds,
        ZERO_DIAGONAL=rule.zero_diagonal, BITS=bits is not None, PRECISION=precision, TIMES=_factors(rule),
        THROUGH=through, NARROW=T == 64, AHEAD=ahead, UNIT=UNIT, T=T, C=_COLUMNS, **common,
        num_warps=warps, num_stages=1 if ahead else 2,
    )  # fmt: skip
    if bits is None and V:
        edges_kernel[(V, F, parts)](
            z, unused if shift is None else shift, ptr, segments.index.contiguous(), edges.ptr,
            edges.neighbours, node, edges.first.contiguous(), unused if slope is None else slope, partial,
            V, B, d, chunks, partial.size(1), N, *bounds, K=32, **common, num_warps=max(1, D // 32),
        )  # fmt: skip
    _finish_kernel[(F,)](partial, ptr, loss, scale, B, partial.size(1), mean_of_graphs, BLOCK=1024)
    return _Found(loss, scale, slope, sums, T)


def _height(V: int, B: int, D: int, precision: str) -> int:
    """Rows of a tile; three products of 64 rows of 128 numbers do not fit into the registers."""
    fits = D <= 64 or precision != "tf32x3"
    return 64 if fits and TALL_FROM * max(B, 1) <= V else 32


def _scaled(
    slope: Tensor, grad: Tensor, scale: Tensor, sums: Tensor | None, ptr: Tensor, shifted: bool, height: int
) -> tuple[Tensor, Tensor | None]:
    """The gradient in z, and in the shift where there is one: slope times ``grad · scale``, both ``[*lead]``."""
    *lead, V, d = slope.shape
    F, B = torch.Size(lead).numel(), ptr.size(-1) - 1
    change = torch.empty_like(slope)
    pull = slope.new_empty(*lead, B, d) if shifted else None
    graphs = B if pull is not None else 0
    blocks = triton.cdiv(V * d, _BLOCK)
    if F and graphs + blocks:
        source = slope if sums is None else sums
        _scale_kernel[(graphs + blocks, F)](
            slope, source, ptr, grad, scale, change, change if pull is None else pull,
            V, B, d, graphs, source.size(-2), 1 if sums is None else height,
            BY_TILES=sums is not None, BLOCK=_BLOCK, ROWS=16, DB=64, num_warps=4,
        )  # fmt: skip
    return change, pull


def _factors(rule: PairRule) -> int:
    """How many probabilities may be multiplied before a logarithm is taken, without leaving float32."""
    smallest = min(rule.low, 1 - rule.high) + rule.epsilon
    largest = max(rule.high, 1 - rule.low) + rule.epsilon
    for times in (4, 2):
        if smallest > 0 and times * math.log(smallest) > -80 and times * math.log(largest) < 80:
            return times
    return 1


@triton.jit(do_not_specialize=["V", "B", "graphs", "height", "tile"])
def _scale_kernel(  # type: ignore[no-untyped-def]
    slope, source, ptr, grad, scale, change, pull, V, B, d, graphs, height, tile,
    BY_TILES: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, DB: tl.constexpr,
):  # fmt: skip
    """The first programs sum the rows of ``source`` over a graph each, in order; the others scale a block."""
    program = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    factor = tl.load(grad + replica) * tl.load(scale + replica)
    if program < graphs:
        first = tl.load(ptr + replica * (B + 1) + program).to(tl.int32)
        end = tl.load(ptr + replica * (B + 1) + program + 1).to(tl.int32)
        if BY_TILES:
            n = end - first
            first = first // tile + program
            end = first + (n + tile - 1) // tile
        for c in range(0, d, DB):
            at = c + tl.arange(0, DB)
            total = tl.zeros([ROWS, DB], tl.float32)
            for r in range(first, end, ROWS):
                row = r + tl.arange(0, ROWS)
                place = (replica * height + row)[:, None] * d + at[None, :]
                total += tl.load(source + place, mask=(row < end)[:, None] & (at < d)[None, :], other=0.0)
            tl.store(pull + (replica * B + program) * d + at, tl.sum(total, 0) * factor, mask=at < d)
    else:
        size = V.to(tl.int64) * d
        at = (program - graphs).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        found = tl.load(slope + replica * size + at, mask=at < size, other=0.0)
        tl.store(change + replica * size + at, found * factor, mask=at < size)


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
