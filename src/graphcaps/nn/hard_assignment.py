r"""The capsule that a node belongs to: the one that gets more of its group than of an average node.

Routing sends a part of every node to every capsule. If all coefficients of a capsule are a little larger than those of
the others, it has the largest coefficient of every node, although coefficients tell nodes apart. With means of
(0.135, 0.11) over all nodes, a node with coefficients (0.14, 0.10) goes more to the first capsule than an average node
does, and one with (0.13, 0.12) more to the second. The ratio of a coefficient to such a reference is called *lift*.

The reference is between two averages. That over the training graphs tells which capsule a kind of node goes to in all
graphs. That over the node's own graph tells the nodes of a graph apart: routing starts anew in every graph and moves
all of its coefficients together.

Coefficients of single nodes vary within a ring or a chain. Nodes are therefore assigned together with the connected
group that they are in (:func:`graphcaps.ops.structure.modularity_groups.modularity_groups`), by the mean of its
coefficients. Groups come from the edges alone, so that scores and training are those of the model without them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.ops.structure.modularity_groups import modularity_groups
from graphcaps.types import GraphBatch, HGCNOutput, Segments

__all__ = [
    "GRAPH_WEIGHT",
    "LIFT_TOLERANCE",
    "MIN_SHARE",
    "MeanCoefficients",
    "group_nodes",
    "hard_assignment",
    "lift",
    "smallest_share",
]

MIN_SHARE = 0.05
"""Share of the nodes from which a capsule is in use; with more than ten capsules, half of an equal share."""
GRAPH_WEIGHT = 2 / 3
"""Weight of the average over the graph in the reference. Routing moves all coefficients of a graph together, so the
average over the training graphs alone would often give one capsule to all groups of a graph (docs/explaining.md)."""
LIFT_TOLERANCE = 1e-3
"""Largest difference of a lift from 1 that is taken for rounding: TF32 has about three decimal digits."""


def smallest_share(num_capsules: int) -> float:
    """Share of the nodes from which one of J capsules is in use, min(0.05, 1/(2J))."""
    return min(MIN_SHARE, 0.5 / num_capsules)


def lift(coefficients: Tensor, mean: Tensor | None, graph: Tensor | None = None) -> Tensor:
    r"""How many times more of each input capsule goes to each output capsule than on average, float64.

    .. math::
        \ell_{ij} = \frac{c_{ij}}{\max(\bar c_j, s)^{1/3} \max(\bar c_{gj}, s)^{2/3}}, \quad
        s = \min\Big(0.05, \frac{1}{2J}\Big)

    with means over the training graphs, :math:`\bar c`, and over the graph of i, :math:`\bar c_g`. The smallest mean s
    is the share from which a capsule is in use. Without it, a capsule that training left unused, with means of 0.001,
    would have a lift of 10 at a node of which it gets 0.01.

    Args:
        coefficients (Tensor): Routing coefficients c, ``[..., n, J]``.
        mean (Tensor, optional): Their means over training graphs, ``[..., J]``. Without these, the means over the graph
            alone are the reference.
        graph (Tensor, optional): Graph of each of the n rows, from 0 on, ``[..., n]``. (default: all rows are of one)
    """
    c = coefficients.double()
    return c / _reference(_graph_means(c, graph), mean, smallest_share(c.size(-1)))


def _graph_means(c: Tensor, graph: Tensor | None) -> Tensor:
    """Means over the graph of each row, ``[..., n, J]``, or of all rows, ``[..., 1, J]``."""
    return c.mean(-2, keepdim=True) if graph is None else _average(c, graph)


def _reference(own: Tensor, mean: Tensor | None, smallest: float) -> Tensor:
    """Geometric mean of the averages over graphs and over training graphs, which are at least ``smallest``."""
    own = own.clamp_min(smallest)
    if mean is None:
        return own
    whole = mean.to(own.device).double().clamp_min(smallest).unsqueeze(-2)
    return whole ** (1 - GRAPH_WEIGHT) * own**GRAPH_WEIGHT


def group_nodes(batch: GraphBatch) -> Tensor:
    """The group of each node of a batch, as the first row of that group, ``[*lead, V]``; padding rows are groups."""
    segments, pairs = batch.segments, edge_list(batch.edges)
    *lead, V = segments.index.shape
    rows = torch.arange(segments.index.numel()).reshape(math.prod(lead), V)
    once = pairs.source < pairs.target
    source, target = (ends[once].cpu().numpy() for ends in (pairs.source, pairs.target))
    offset = (segments.num_graphs + 1) * torch.arange(len(rows)).unsqueeze(1)  # padding is a graph of its own
    graph = (segments.index.cpu().reshape(rows.shape) + offset).reshape(-1).numpy()
    groups = torch.from_numpy(modularity_groups(source, target, graph)).reshape(rows.shape)
    return (groups - rows[:, :1]).reshape(*lead, V).to(segments.index.device)


def hard_assignment(
    coefficients: Tensor, mean: Tensor | None, groups: Tensor | None = None, graph: Tensor | None = None
) -> Tensor:
    """The output capsule that each input capsule belongs to, ``[..., n]``: that with its largest :func:`lift`.

    An input capsule all of whose coefficients are those of the reference, up to :data:`LIFT_TOLERANCE`, belongs to the
    capsule with its largest coefficient. If all nodes are like that, they share one capsule, and capsules have
    collapsed (:class:`graphcaps.nn.capsule_use.CapsuleUse`); by lift, rounding would distribute them.

    Args:
        coefficients, mean, graph: As in :func:`lift`.
        groups (Tensor, optional): Group of each input capsule, from 0 to n − 1, ``[..., n]``. Coefficients are replaced
            by their means over groups, which leaves ``mean`` as it is. (default: each is a group)
    """
    c = coefficients.double() if groups is None else _average(coefficients.double(), groups)
    own = _graph_means(c, graph)
    reference = _reference(own, mean, smallest_share(c.size(-1)))
    # Where a mean is below the smallest share, the lift of an average capsule is below 1.
    average = _reference(own, mean, 0.0) / reference
    relative = c / reference
    is_average = ((relative - average).abs() <= LIFT_TOLERANCE).all(-1)
    return torch.where(is_average, c.argmax(-1), relative.argmax(-1))


def _average(c: Tensor, index: Tensor) -> Tensor:
    """For each row the mean over the rows with its index, ``[..., n, J]``."""
    rows = index.unsqueeze(-1).expand_as(c)
    shape = (*c.shape[:-2], int(index.max()) + 1 if index.numel() else 0, c.size(-1))
    sums = c.new_zeros(shape).scatter_add_(-2, rows, c)
    counts = c.new_zeros(shape).scatter_add_(-2, rows, torch.ones_like(c))
    return (sums / counts.clamp_min(1)).gather(-2, rows)


class MeanCoefficients:
    """Sums the routing coefficients of batches, level by level, for their means.

    Means are over all nodes at the lowest level, and over all input capsules of all graphs above it.
    """

    def __init__(self) -> None:
        self._sums: list[Tensor] = []
        self._counts: list[Tensor] = []

    def add(self, output: HGCNOutput, segments: Segments) -> None:
        """Adds the coefficients of a batch, those of all iterations if the output has a trace."""
        sizes = segments.sizes
        for number, level in enumerate(output.levels):
            traced = level.assignment.unsqueeze(0) if level.iterations is None else level.iterations
            values = traced.detach().double()  # [R, *lead, V, J], above [R, *lead, B, J_below, J]
            if number == 0:
                mask, count = segments.row_mask, sizes.sum(-1)
                values = values if mask is None else values.masked_fill(~mask.unsqueeze(-1), 0)
            else:
                has_nodes = sizes > 0  # others are padding, or have capsules of zero
                values = values.masked_fill(~has_nodes[..., None, None], 0).sum(-2)
                count = has_nodes.sum(-1) * traced.size(-2)
            total = values.sum(-2)  # [R, *lead, J]
            if number == len(self._sums):
                self._sums.append(total)
                self._counts.append(count)
            else:
                self._sums[number] = self._sums[number] + total
                self._counts[number] = self._counts[number] + count

    def means(self) -> tuple[Tensor, ...] | None:
        """Per level the means of each iteration on the CPU, float64 ``[R, *lead, J]``, R = 1 without a trace.

        The last entry is of the coefficients that count; ``None`` if no batch was added.
        """
        pairs = zip(self._sums, self._counts, strict=True)
        return tuple((total / count.unsqueeze(-1)).cpu() for total, count in pairs) or None
