"""The option ``parts="blocks"`` of HGCN: a loss that makes the capsules of the first level parts of the graph.

This is an extension; it is not in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.graph_model import GraphModel
from graphcaps.ops.batch_shard import share_of_rank, sum_over_ranks
from graphcaps.ops.coarsening import coarsen
from graphcaps.ops.propagation.propagation import degrees
from graphcaps.ops.ragged.tiles import segment_sum
from graphcaps.types import EdgeTable, GraphBatch, HGCNOutput, Segments

__all__ = [
    "CONTEXT_HOPS",
    "CONTEXT_LAYERS",
    "TEMPERATURE",
    "Parts",
    "PartsOutput",
    "block_loss",
    "check_parts",
    "measure_block_loss",
]

Parts = Literal["blocks", "groups"]

CONTEXT_LAYERS = 3
"""Layers of :class:`graphcaps.nn.Context` under the votes. Six were worse than three or four."""
CONTEXT_HOPS = 3
"""Hops after these layers, which make the votes of neighbours similar. With none, single nodes deviate."""
TEMPERATURE = 0.5
"""Weight of the entropy in :func:`block_loss`. At 0 the assignment saturates early and has almost no gradient; at 1,
the full variational bound, all nodes may collapse onto one capsule."""
_PRIOR = 1.0
"""Pseudo-count of pairs with the overall density in every block: an empty block then has gain 0."""
_SMALLEST = 1e-12


@dataclass(frozen=True, repr=False, eq=False)
class PartsOutput(HGCNOutput):
    """Output of HGCN with the option ``parts="blocks"``.

    Args:
        parts_loss (Tensor, optional): :func:`block_loss` of the first level, one number per replica, ``[*lead]``.
    """

    parts_loss: Tensor | None = None


def check_parts(parts: str | None, weight: float) -> None:
    """Rejects an unknown option, and a negative or infinite weight."""
    if parts is not None and parts not in get_args(Parts):
        raise ArgumentError("HGCN", "parts", "be None, 'blocks' or 'groups'", repr(parts))
    if not 0 <= weight < float("inf"):
        raise ArgumentError("HGCN", "parts_weight", "be 0 or more, and finite", weight)


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
    c = assignment
    if c.shape[:-1] != segments.index.shape:
        expected = f"have one row per node, {list(segments.index.shape)}"
        raise ShapeError("block_loss", "assignment", expected, list(c.shape[:-1]))
    sums = sum_over_ranks(_block_sums(c, edges, segments))
    return _loss_of_sums(share_of_rank(_total_gain(sums)), _entropy(c), sums, temperature)


@torch.no_grad()
def measure_block_loss(model: GraphModel, batches: Iterable[GraphBatch]) -> float:
    """:func:`block_loss` of the lowest level over the graphs of all batches together.

    Args:
        model (GraphModel): An HGCN without leading axes; it is evaluated in evaluation mode, and its mode is restored.
        batches (iterable): At least one batch.
    """
    was_training = model.training
    model.eval()
    sums: Tensor | None = None
    entropy: Tensor | None = None
    for batch in batches:
        output = model.forward_batch(batch)
        assert isinstance(output, HGCNOutput)
        c = output.levels[0].assignment
        # The loss is no mean over graphs: densities are those of all batches.
        part, disorder = _block_sums(c, batch.edges, batch.segments).double(), _entropy(c).double()
        sums = part if sums is None else sums + part
        entropy = disorder if entropy is None else entropy + disorder
    model.train(was_training)
    assert sums is not None, "no batches"
    assert entropy is not None
    return float(_loss_of_sums(_total_gain(sums), entropy, sums, TEMPERATURE))


def _block_sums(c: Tensor, edges: EdgeTable, segments: Segments) -> Tensor:
    """M_j, N_j, M and N of a batch, which add up over batches, ``[*lead, 2 J + 2]``."""
    within = coarsen(c, edges, segments).diagonal(dim1=-2, dim2=-1).sum(-2)  # M_j, [*lead, J]
    sizes = segment_sum(c, segments)  # [*lead, B, J]
    pairs = (sizes.square() - segment_sum(c.square(), segments)).sum(-2)  # N_j
    all_within = degrees(edges).to(c.dtype).sum(-1, keepdim=True)  # M, [*lead, 1]
    n = segments.sizes.to(c.dtype)
    all_pairs = (n * (n - 1)).sum(-1, keepdim=True)  # N
    return torch.cat([within, pairs, all_within, all_pairs], -1)


def _total_gain(sums: Tensor) -> Tensor:
    """Log-likelihood ratio of the best densities over a single density, ``[*lead]``."""
    J = sums.size(-1) // 2 - 1
    within, pairs, all_within, all_pairs = sums.split([J, J, 1, 1], -1)
    density = all_within.clamp_min(_SMALLEST) / all_pairs.clamp_min(1)
    gain = _gain(within, pairs, density).sum(-1)
    across = all_within - within.sum(-1, keepdim=True), all_pairs - pairs.sum(-1, keepdim=True)
    return gain + _gain(*across, density).squeeze(-1)


def _entropy(c: Tensor) -> Tensor:
    """Entropy of the assignment, summed over nodes, ``[*lead]``."""
    return -(c * c.clamp_min(_SMALLEST).log()).sum(
        (-2, -1)
    )  # 0 log 0 is 0, and so is its gradient at padding


def _loss_of_sums(gain: Tensor, entropy: Tensor, sums: Tensor, temperature: float) -> Tensor:
    M = sums[..., -2]
    loss = -(gain + 2 * temperature * entropy) / M.clamp_min(_SMALLEST)
    return loss.masked_fill(M <= 0, 0)  # without edges all assignments are equally likely


def _gain(edges: Tensor, pairs: Tensor, density: Tensor) -> Tensor:
    """M_b log(M_b N / (N_b M)): log-likelihood gain of a separate density for a block."""
    edges = edges.clamp_min(0) + _PRIOR * density
    return edges * (edges / ((pairs.clamp_min(0) + _PRIOR) * density)).log()
