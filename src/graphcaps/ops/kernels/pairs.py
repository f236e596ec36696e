r"""The reconstruction loss of all pairs of nodes and its slope in one pass over the tiles of each graph.

Products and edges are symmetric, so the slope of a row, :math:`2w \sum_j g_{ij} z_j`, needs no other program,
and no atomic addition. Edges are read as bits (:class:`BitRows`), one word a row and step; where there are none,
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

from graphcaps.ops.kernels.pair_edges import edges_kernel
from graphcaps.ops.kernels.pair_tiles import tiles_kernel
from graphcaps.ops.kernels.precision import dot_precision
from graphcaps.ops.kernels.tiling import count_tiles, tiles_of
from graphcaps.ops.reconstruct_naive import PairRule
from graphcaps.types import EdgeTable, Segments

__all__ = ["AHEAD", "TALL_FROM", "UNIT", "pair_loss"]

AHEAD = True
"""Whether a program loads the columns of its next step while it works on this one."""
UNIT = 2
"""Numbers that a thread takes at once of them, 4 or 2: tall tiles store them turned, fewer collide with 2."""

TALL_FROM = 48
"""Nodes of the average graph from which tiles have 64 rows, not 32: small graphs would leave them empty."""

_WIDE, _CHUNK = 128, 64  # columns of Z that a program holds; a wider Z is walked through in chunks
_COLUMNS = 32  # a word of bits
_BLOCK = 4096  # numbers that a program of the backward pass scales


def pair_loss(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, shift: Tensor | None = None
) -> Tensor:
    """:func:`graphcaps.ops.reconstruction_loss` by kernels: float32 ``z [*lead, V, d]`` to ``[*lead]``."""
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
        z, unused if shift is None else shift, tiles_of(ptr, edges, T, memo), node if bits is None else bits.words,
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
