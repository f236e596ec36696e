r"""An unbiased estimate of the reconstruction loss of large graphs in linear time, from a sample of the pairs.

Not in the paper, and optional: the exact loss has n² terms per graph. For graphs above a given size the terms of the
edges and of the diagonal are exact. Of the other pairs K partners are sampled per node
(:mod:`graphcaps.ops.reconstruction.pair_sampling`), with weight n / K:

.. math::
    -\sum_{(i,j) \in E} \log P_{ij} - \sum_i \log(1 - P_{ii})
    - \frac{n}{K} \sum_{k<K} \sum_{i} [i \ne \pi_k(i)] \, [(i,\pi_k(i)) \notin E] \, \log(1 - P_{i \pi_k(i)})

Two nodes are paired with probability K / n, so the expected loss and gradient are exact; with K = n every sample is
exact. Pairs are symmetric, so the gradient of a row is a sum over its partners. All sums have a fixed order: on one
device, the same sample gives the same bits. The sample follows from keys of the replica and step, on all devices alike.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.batch_layout.small_graphs import select_small_graphs
from graphcaps.ops.compilation import untraced
from graphcaps.ops.propagation.propagation import to_edge_index
from graphcaps.ops.ragged.tiles import segment_broadcast
from graphcaps.ops.reconstruction.pair_loss import reconstruction_loss
from graphcaps.ops.reconstruction.pair_loss_naive import RELEASED, PairRule, pair_weights
from graphcaps.ops.reconstruction.pair_sampling import SampledPairs, sample_pairs
from graphcaps.types import EdgeTable, Segments

__all__ = ["EXACT_UP_TO", "PAIRS_PER_NODE", "sampled_reconstruction_loss"]

EXACT_UP_TO = 4096
"""Default for the largest number of nodes of a graph whose pairs all count."""
PAIRS_PER_NODE = 8
"""Default for the number of sampled partners of a node of a larger graph."""

_CHUNK = 1 << 19
"""Size of a temporary tensor on a CPU that stays in its cache; a GPU uses 32 times as much."""


@untraced
@full_precision
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
    """As :func:`graphcaps.ops.reconstruction_loss`, but an unbiased estimate for graphs above a given size.

    Time and memory grow linearly with the rows and edges of the large graphs. If ``segments.max_size`` shows that no
    graph is large, the exact loss is returned.

    Args:
        z (Tensor): Node vectors, ``[*lead, V, d]``.
        edges (EdgeTable): The edges; their weights are ignored.
        segments (Segments): Which node belongs to which graph.
        rule (PairRule): Bounds, epsilon, diagonal and average. (default: those of the released program)
        shift (Tensor, optional): Added to all node vectors of a graph, ``[*lead, B, d]``. (default: None)
        keys (Tensor, optional): Keys of this chunk's sample, int32, ``[*lead, 2]``, from
            :func:`graphcaps.ops.activation.hashed_dropout.next_step_keys`. (default: always the same sample)
        up_to (int): Largest number of nodes of a graph whose pairs all count. (default: ``EXACT_UP_TO``)
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
    form = select(
        "sampled_reconstruction_loss", _sampled_reconstruction_loss, z, shift, num_rows=shape[-1], pairs=pairs
    )
    return form(z, edges, segments, rule, shift, keys, up_to, pairs)


def _sampled_reconstruction_loss(
    z: Tensor,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule,
    shift: Tensor | None,
    keys: Tensor,
    up_to: int,
    pairs: int,
) -> Tensor:
    large, real = segments.sizes > up_to, segments.sizes > 0
    # On a GPU the check would synchronise: both parts are computed, and one of them may be empty.
    synchronised = z.device.type == "cpu"
    if synchronised and not bool(large.any()):
        return reconstruction_loss(z, edges, segments, rule, shift)
    if shift is not None:
        z = z + segment_broadcast(shift, segments)
    loss: Tensor = _SampledLoss.apply(z, edges, segments, rule, keys, large, pairs)
    if synchronised and bool((large == real).all()):
        return loss
    small = select_small_graphs(up_to, edges, segments)
    rows = z.reshape(-1, z.size(-1)).index_select(0, small.rows).reshape(z.shape)
    exact = reconstruction_loss(rows, small.edges, small.segments, rule)
    return loss + exact * _small_weight(segments, real & ~large, rule, z.dtype)


def _small_weight(segments: Segments, small: Tensor, rule: PairRule, dtype: torch.dtype) -> Tensor:
    """Weight of the average over small graphs in the average over all graphs, ``[*lead]``."""
    power = 2 if rule.average == "pairs" else 0
    counted = torch.where(segments.sizes > 0, segments.sizes.to(dtype) ** power, 0)
    return (counted * small).sum(-1) / counted.sum(-1).clamp_min(1)


class _SampledLoss(torch.autograd.Function):
    """The estimate for large graphs; its gradient is computed in the same pass."""

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
        grad_z = torch.zeros_like(flat) if ctx.needs_input_grad[0] else None
        samples = sample_pairs(keys, segments, pairs)
        each, is_edge = _edge_pairs(flat, edges, samples, of_row, rule, grad_z)
        chunk = max(1, _chunk_size(z) // d)
        for start in range(0, flat.size(0), chunk):
            _add_sampled_pairs(
                flat, slice(start, start + chunk), samples, is_edge, of_row, rule, each, grad_z
            )
        if grad_z is not None:
            ctx.save_for_backward(grad_z.reshape(z.shape))
        return each.reshape(*lead, -1).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (grad_z,) = ctx.saved_tensors
        return grad_z * grad[..., None, None], None, None, None, None, None, None


def _edge_pairs(
    flat: Tensor,
    edges: EdgeTable,
    samples: SampledPairs,
    weight: Tensor,
    rule: PairRule,
    grad_z: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """−Σ log P over the edges of each row, ``[F · V]``, and which sampled pairs are edges, ``[F · V, K + 1]``."""
    K, rows = samples.pairs, flat.size(0)
    each = flat.new_zeros(rows)
    is_edge = torch.zeros(rows, K + 1, dtype=torch.bool, device=flat.device)  # last column: not sampled
    source, target = to_edge_index(edges)
    chunk = max(1, _chunk_size(flat) // flat.size(-1))
    for start in range(0, target.numel(), chunk):
        i, j = target[start : start + chunk], source[start : start + chunk]
        is_edge.view(-1)[i * (K + 1) + samples.matching_of(i, j)] = True
        zj, w = flat.index_select(0, j), weight.index_select(0, i)
        S = flat.index_select(0, i).mul_(zj).sum(-1)
        present = S.clamp(rule.low, rule.high) + rule.epsilon
        _add(each, i, -present.log() * w)
        if grad_z is not None:
            g = (-2 * w / present).masked_fill_((rule.low > S) | (rule.high < S), 0)
            _add(grad_z, i, zj.mul_(g.unsqueeze(-1)))
    return each, is_edge


def _add_sampled_pairs(
    flat: Tensor,
    rows: slice,
    samples: SampledPairs,
    is_edge: Tensor,
    weight: Tensor,
    rule: PairRule,
    each: Tensor,
    grad_z: Tensor | None,
) -> None:
    """−log(1 − P) of the diagonal and of the samples of real rows, added to their loss and grad_z."""
    z, w = flat[rows], weight[rows]
    counts = w > 0  # rows of large graphs; the values of other rows are undefined
    row = torch.arange(rows.start, rows.start + z.size(0), device=flat.device)
    n, count = samples.size[rows], samples.count(rows)
    sample_weight = w * (n / count).to(w.dtype)
    loss = torch.zeros_like(w)
    total = torch.zeros_like(z)
    for k in range(-1, samples.pairs):  # −1: the diagonal
        if k < 0:
            other, factor, counted = z, w, counts
        else:
            partner = samples.partner(rows, k)
            other, factor = flat.index_select(0, partner), sample_weight
            counted = counts & (k < count) & (partner != row) & ~is_edge[rows, k]
        S = (z * other).sum(-1)
        P = S.clamp(rule.low, rule.high)
        free = (rule.low <= S) & (rule.high >= S) & counted
        if k < 0 and rule.zero_diagonal:
            P, free = torch.zeros_like(P), torch.zeros_like(free)
        absent = 1 - P + rule.epsilon
        loss += torch.where(counted, -absent.log() * factor, 0)
        total.addcmul_(other, torch.where(free, 2 * factor / absent, 0).unsqueeze(-1))
    each[rows] += loss
    if grad_z is not None:
        grad_z[rows] += total.masked_fill_(~counts.unsqueeze(-1), 0)


def _add(total: Tensor, rows: Tensor, values: Tensor) -> None:
    """Adds each value to its row, in order."""
    if total.device.type == "cuda":
        # On a GPU index_put_ sorts and index_add_ has no fixed order; on a CPU only index_add_ has one.
        total.index_put_((rows,), values, accumulate=True)
    else:
        total.index_add_(0, rows, values)


def _chunk_size(z: Tensor) -> int:
    return _CHUNK if z.device.type == "cpu" else 32 * _CHUNK
