"""Negative log-likelihood of the edges of a batch under a stochastic block model of a soft assignment of its nodes.

This is an extension; it is not in the paper.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.batch_shard import share_of_rank, sum_over_ranks
from graphcaps.ops.coarsening.coarsening import coarsen
from graphcaps.ops.propagation.propagation import degrees
from graphcaps.ops.ragged.tiles import segment_sum
from graphcaps.types import EdgeTable, Segments

__all__ = ["SMALLEST", "TEMPERATURE", "assignment_entropy", "block_loss", "block_sums", "loss_of_sums"]

TEMPERATURE = 0.5
"""Weight of the entropy in :func:`block_loss`. At 0 the assignment saturates early and has almost no gradient; at 1,
the full variational bound, all nodes may collapse onto one capsule."""
_PRIOR = 1.0
"""Pseudo-count of pairs with the overall density in every block: an empty block then has gain 0."""
SMALLEST = 1e-12
"""Bound below logarithms and divisors."""


def block_loss(
    assignment: Tensor, edges: EdgeTable, segments: Segments, *, temperature: float = TEMPERATURE
) -> Tensor:
    r"""Negative log-likelihood of the edges under a stochastic block model of the assignment, with an entropy term.

    Two nodes of the same capsule in a graph are connected with the density of that capsule; all other pairs of nodes of
    a graph with one common density. Over all graphs of the batch, with assignment c,

    .. math::
        M_j &= \sum_{i \ne k} A_{ik} c_{ij} c_{kj}, \quad N_j = \sum_{i \ne k} c_{ij} c_{kj}, \quad
        M_0 = M - \sum_j M_j, \quad N_0 = N - \sum_j N_j, \\
        L &= -\frac1M \Big( \sum_{b = 0}^{J} M_b \log \frac{M_b \, N}{N_b \, M}
             + 2 T \sum_{ij} c_{ij} \log \frac{1}{c_{ij}} \Big)

    where M is the sum of all degrees and N the number of ordered pairs inside graphs. The first sum is the
    log-likelihood ratio of the best densities over a single density. It is large if capsules are dense inside with few
    edges between them; a capsule that covers two parts loses by the unconnected pairs between them. The second sum is
    the entropy of the assignment with temperature T, which keeps the assignment soft early in training. Densities are
    shared by all graphs, so a capsule represents the same kind of part in all of them. Neither classes nor planted
    parts are used.

    Args:
        assignment (Tensor): c, ``[*lead, V, J]``, 0 at padding.
        edges (EdgeTable): Edges, with nonnegative weights if any.
        segments (Segments): Graph of each node.
        temperature (float): T, 0 or more. (default: 0.5)

    Returns:
        Tensor: One number per replica, ``[*lead]``; 0 where a batch has no edges.
    """
    if assignment.shape[:-1] != segments.index.shape:
        expected = f"have one row per node, {list(segments.index.shape)}"
        raise ShapeError("block_loss", "assignment", expected, list(assignment.shape[:-1]))
    form = select("block_loss", _block_loss, assignment, edges.node, edges.weight)
    return form(assignment, edges, segments, temperature)


def _block_loss(assignment: Tensor, edges: EdgeTable, segments: Segments, temperature: float) -> Tensor:
    sums = sum_over_ranks(block_sums(assignment, edges, segments))
    gain = share_of_rank(_total_gain(sums))
    return _loss(gain, assignment_entropy(assignment), sums, temperature)


def block_sums(c: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
    """M_j, N_j, M and N of a batch, which add up over batches, ``[*lead, 2 J + 2]``."""
    within = coarsen(c, edges, segments).diagonal(dim1=-2, dim2=-1).sum(-2)  # M_j, [*lead, J]
    sizes = segment_sum(c, segments)  # [*lead, B, J]
    pairs = (sizes.square() - segment_sum(c.square(), segments)).sum(-2)  # N_j
    all_within = degrees(edges).to(c.dtype).sum(-1, keepdim=True)  # M, [*lead, 1]
    n = segments.sizes.to(c.dtype)
    all_pairs = (n * (n - 1)).sum(-1, keepdim=True)  # N
    return torch.cat([within, pairs, all_within, all_pairs], -1)


def assignment_entropy(c: Tensor) -> Tensor:
    """Entropy of the assignment, summed over nodes, ``[*lead]``."""
    # 0 log 0 is 0, and so is its gradient at padding.
    return -(c * c.clamp_min(SMALLEST).log()).sum((-2, -1))


def loss_of_sums(sums: Tensor, entropy: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """:func:`block_loss` from :func:`block_sums` and :func:`assignment_entropy`, each added up over batches."""
    return _loss(_total_gain(sums), entropy, sums, temperature)


def _total_gain(sums: Tensor) -> Tensor:
    """Log-likelihood ratio of the best densities over a single density, ``[*lead]``."""
    J = sums.size(-1) // 2 - 1
    within, pairs, all_within, all_pairs = sums.split([J, J, 1, 1], -1)
    density = all_within.clamp_min(SMALLEST) / all_pairs.clamp_min(1)
    gain = _gain(within, pairs, density).sum(-1)
    across = all_within - within.sum(-1, keepdim=True), all_pairs - pairs.sum(-1, keepdim=True)
    return gain + _gain(*across, density).squeeze(-1)


def _loss(gain: Tensor, entropy: Tensor, sums: Tensor, temperature: float) -> Tensor:
    M = sums[..., -2]
    loss = -(gain + 2 * temperature * entropy) / M.clamp_min(SMALLEST)
    return loss.masked_fill(M <= 0, 0)  # without edges all assignments are equally likely


def _gain(edges: Tensor, pairs: Tensor, density: Tensor) -> Tensor:
    """M_b log(M_b N / (N_b M)): log-likelihood gain of a separate density for a block."""
    edges = edges.clamp_min(0) + _PRIOR * density
    return edges * (edges / ((pairs.clamp_min(0) + _PRIOR) * density)).log()
