r"""The reconstruction loss of large graphs, estimated in linear time: all edges, and a sample of the other pairs.

Ours, and an option: the paper counts all n² pairs of a graph, which are too many where n is large. Of a graph of
more than a stated size the edges and the diagonal count as they are; of the other pairs every node meets K
(:mod:`graphcaps.ops.reconstruction.pair_sampling`), each of which counts n / K times:

.. math::
    -\sum_{(i,j) \in E} \log P_{ij} - \sum_i \log(1 - P_{ii})
    - \frac{n}{K} \sum_{k<K} \sum_{i} [i \ne \pi_k(i)] \, [(i,\pi_k(i)) \notin E] \, \log(1 - P_{i \pi_k(i)})

Two nodes meet with probability K / n, so the mean over draws is the exact loss, and the mean of the gradient the
exact gradient; with K = n each draw is exact. Who is met meets back, so that a row's slope is a sum over its own
partners, and all sums have a fixed order: on one device, the same draw gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.batch_layout.small_graphs import select_small_graphs
from graphcaps.ops.propagation.propagation import to_edge_index
from graphcaps.ops.ragged.tiles import segment_broadcast
from graphcaps.ops.reconstruction.pair_loss import reconstruction_loss
from graphcaps.ops.reconstruction.pair_loss_naive import RELEASED, PairRule, pair_weights
from graphcaps.ops.reconstruction.pair_sampling import SampledPairs, sample_pairs
from graphcaps.types import EdgeTable, Segments

__all__ = ["EXACT_UP_TO", "PAIRS_PER_NODE", "sampled_reconstruction_loss"]

EXACT_UP_TO = 4096
"""Nodes of a graph up to which all its pairs are counted, unless another size is asked for."""
PAIRS_PER_NODE = 8
"""Other nodes that a node of a larger graph meets in one draw."""

_CHUNK = 1 << 19
"""Numbers that a temporary tensor may hold on a CPU, to stay in its cache; a GPU takes 32 times as many."""


def sampled_reconstruction_loss(
    z: Tensor,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule = RELEASED,
    shift: Tensor | None = None,
    *,
    keys: Tensor | None = None,
    up_to: int = EXACT_UP_TO,
    pairs: int = PAIRS_PER_NODE,
) -> Tensor:
    """As :func:`graphcaps.ops.reconstruction_loss`, of graphs above a size an unbiased estimate.

    Time and memory grow with the rows and edges of the large graphs. A batch whose host knows that no graph is
    large (``segments.max_size``) is handed on as it is.

    Args:
        z (Tensor): Node vectors, ``[*lead, V, d]``.
        edges (EdgeTable): The edges; weights are not looked at, an edge is there or not.
        segments (Segments): Which node belongs to which graph.
        rule (PairRule): Bounds, epsilon, diagonal and average. (default: the released program's)
        shift (Tensor, optional): Added to all node vectors of a graph, ``[*lead, B, d]``. (default: None)
        keys (Tensor, optional): Of this step's draw, ``[*lead, 2]`` of int32, as
            :func:`graphcaps.ops.activation.hashed_dropout.next_step_keys` returns them.
            (default: always the same draw)
        up_to (int): Nodes of a graph up to which all pairs are counted. (default: ``EXACT_UP_TO``)
        pairs (int): K, at least 1. (default: ``PAIRS_PER_NODE``)

    Returns:
        Tensor: ``[*lead]``.
    """
    if pairs < 1:
        raise ArgumentError("sampled_reconstruction_loss", "pairs", "be at least 1", pairs)
    shape = segments.index.shape
    if z.shape[:-1] != shape:
        expected = f"have one row per node of the batch, {list(shape)}"
        raise ShapeError("sampled_reconstruction_loss", "z", expected, list(z.shape[:-1]))
    if segments.max_size is not None and segments.max_size <= up_to:
        return reconstruction_loss(z, edges, segments, rule, shift)
    if keys is None:
        keys = torch.zeros(*shape[:-1], 2, dtype=torch.int32, device=z.device)
    large, some = segments.sizes > up_to, segments.sizes > 0
    # A GPU is not asked what there is: it takes both parts, of which one may find nothing to do.
    asked = z.device.type == "cpu"
    if asked and not bool(large.any()):
        return reconstruction_loss(z, edges, segments, rule, shift)
    if shift is not None:
        z = z + segment_broadcast(shift, segments)
    loss: Tensor = _SampledPairs.apply(z, edges, segments, rule, keys, large, pairs)
    if asked and bool((large == some).all()):
        return loss
    small = select_small_graphs(up_to, edges, segments)
    rows = z.reshape(-1, z.size(-1)).index_select(0, small.rows).reshape(z.shape)
    exact = reconstruction_loss(rows, small.edges, small.segments, rule)
    return loss + exact * _share(segments, some & ~large, rule, z.dtype)


def _share(segments: Segments, small: Tensor, rule: PairRule, dtype: torch.dtype) -> Tensor:
    """The average over small graphs, as a part of the average over all, ``[*lead]``."""
    power = 2 if rule.average == "pairs" else 0
    counted = torch.where(segments.sizes > 0, segments.sizes.to(dtype) ** power, 0)
    return (counted * small).sum(-1) / counted.sum(-1).clamp_min(1)


class _SampledPairs(torch.autograd.Function):
    """Of large graphs alone. The loss is one number: its slope is found in the same pass."""

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        edges: EdgeTable,
        segments: Segments,
        rule: PairRule,
        keys: Tensor,
        large: Tensor,
        pairs: int,
    ) -> Tensor:
        lead, d = z.shape[:-2], z.size(-1)
        weight = torch.where(large, pair_weights(segments, rule, z.dtype), 0)
        of_row = torch.nn.functional.pad(weight, (0, 1)).gather(-1, segments.index).reshape(-1)
        flat = z.reshape(-1, d)
        slope = torch.zeros_like(flat) if ctx.needs_input_grad[0] else None
        samples = sample_pairs(keys, segments, pairs)
        each, joined = _edges(flat, edges, samples, of_row, rule, slope)
        step = max(1, _room(z) // d)
        for start in range(0, flat.size(0), step):
            _others(flat, slice(start, start + step), samples, joined, of_row, rule, each, slope)
        if slope is not None:
            ctx.save_for_backward(slope.reshape(z.shape))
        return each.reshape(*lead, -1).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (slope,) = ctx.saved_tensors
        return slope * grad[..., None, None], None, None, None, None, None, None


def _edges(
    flat: Tensor,
    edges: EdgeTable,
    samples: SampledPairs,
    weight: Tensor,
    rule: PairRule,
    slope: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """−Σ log P over the edge entries of each row, ``[F · V]``; and which samples are edges, ``[F · V, K]``."""
    K, rows = samples.pairs, flat.size(0)
    each = flat.new_zeros(rows)
    joined = torch.zeros(rows, K + 1, dtype=torch.bool, device=flat.device)  # the last column: no meeting
    source, target = to_edge_index(edges)
    step = max(1, _room(flat) // flat.size(-1))
    for start in range(0, target.numel(), step):
        i, j = target[start : start + step], source[start : start + step]
        joined.view(-1)[i * (K + 1) + samples.sample_of(i, j)] = True
        zj, w = flat.index_select(0, j), weight.index_select(0, i)
        S = flat.index_select(0, i).mul_(zj).sum(-1)
        there = S.clamp(rule.low, rule.high) + rule.epsilon
        _add(each, i, -there.log() * w)
        if slope is not None:
            g = (-2 * w / there).masked_fill_((rule.low > S) | (rule.high < S), 0)
            _add(slope, i, zj.mul_(g.unsqueeze(-1)))
    return each, joined


def _others(
    flat: Tensor,
    rows: slice,
    samples: SampledPairs,
    joined: Tensor,
    weight: Tensor,
    rule: PairRule,
    each: Tensor,
    slope: Tensor | None,
) -> None:
    """−log(1 − P) of the diagonal and of the samples of some rows, added to their loss and slope."""
    z, w = flat[rows], weight[rows]
    counts = w > 0  # rows of large graphs; others may hold anything
    own = torch.arange(rows.start, rows.start + z.size(0), device=flat.device)
    n, count = samples.size[rows], samples.count(rows)
    often = w * (n / count).to(w.dtype)
    found = torch.zeros_like(w)
    total = torch.zeros_like(z)
    for k in range(-1, samples.pairs):  # −1: each with itself
        if k < 0:
            other, factor, use = z, w, counts
        else:
            met = samples.partner(rows, k)
            other, factor = flat.index_select(0, met), often
            use = counts & (k < count) & (met != own) & ~joined[rows, k]
        S = (z * other).sum(-1)
        P = S.clamp(rule.low, rule.high)
        free = (rule.low <= S) & (rule.high >= S) & use
        if k < 0 and rule.zero_diagonal:
            P, free = torch.zeros_like(P), torch.zeros_like(free)
        missing = 1 - P + rule.epsilon
        found += torch.where(use, -missing.log() * factor, 0)
        total.addcmul_(other, torch.where(free, 2 * factor / missing, 0).unsqueeze(-1))
    each[rows] += found
    if slope is not None:
        slope[rows] += total.masked_fill_(~counts.unsqueeze(-1), 0)


def _add(total: Tensor, rows: Tensor, values: Tensor) -> None:
    """Adds each value to its row, in the order in which they stand."""
    if total.device.type == "cuda":
        # There index_add_ adds in any order, and index_put_ sorts first; on a CPU it is the other way round.
        total.index_put_((rows,), values, accumulate=True)
    else:
        total.index_add_(0, rows, values)


def _room(z: Tensor) -> int:
    return _CHUNK if z.device.type == "cpu" else 32 * _CHUNK
