r"""The capsule that a node belongs to: the one that gets more of its group than of an average node.

Routing sends a part of every node to every capsule. If all coefficients of a capsule are a little larger than those of
the others, it has the largest coefficient of every node, although coefficients tell nodes apart. With means of
(0.135, 0.11) over all nodes of the training graphs, a node with coefficients (0.14, 0.10) goes more to the first
capsule than an average node does, and one with (0.13, 0.12) more to the second. The ratio of a coefficient to its mean
is called *lift*.

Coefficients of single nodes vary within a ring or a chain. Nodes are therefore assigned together with the connected
group that they are in (:func:`graphcaps.ops.structure.modularity_groups.modularity_groups`), by the mean of its
coefficients. Groups come from the edges alone, so that scores and training are those of the model without them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.ops.structure.modularity_groups import modularity_groups
from graphcaps.types import GraphBatch, HGCNOutput, Segments

__all__ = [
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
LIFT_TOLERANCE = 1e-3
"""Largest difference of a lift from 1 that is taken for rounding: TF32 has about three decimal digits."""


def smallest_share(num_capsules: int) -> float:
    """Share of the nodes from which one of J capsules is in use, min(0.05, 1/(2J))."""
    return min(MIN_SHARE, 0.5 / num_capsules)


def lift(coefficients: Tensor, mean: Tensor) -> Tensor:
    r"""How many times more of each input capsule goes to each output capsule than on average, float64.

    .. math::
        \ell_{ij} = c_{ij} / \max\Big(\bar c_j, \min\Big(0.05, \frac{1}{2J}\Big)\Big)

    The denominator is at least the share from which a capsule is in use. Without this, a capsule that training left
    unused, with a mean of 0.001, would have a lift of 10 at a node of which it gets 0.01.

    Args:
        coefficients (Tensor): Routing coefficients c, ``[..., n, J]``.
        mean (Tensor): Their means over training graphs, ``[..., J]``.
    """
    smallest = smallest_share(mean.size(-1))
    return coefficients.double() / mean.to(coefficients.device).double().clamp_min(smallest).unsqueeze(-2)


def group_nodes(batch: GraphBatch) -> Tensor:
    """The group of each node of a batch, as the first row of that group, ``[*lead, V]``; padding rows are groups."""
    segments, pairs = batch.segments, edge_list(batch.edges)
    *lead, V = segments.index.shape
    rows = torch.arange(segments.index.numel()).reshape(-1, V)
    once = pairs.source < pairs.target
    source, target = (ends[once].cpu().numpy() for ends in (pairs.source, pairs.target))
    offset = (segments.num_graphs + 1) * torch.arange(len(rows)).unsqueeze(1)  # padding is a graph of its own
    graph = (segments.index.cpu().reshape(-1, V) + offset).reshape(-1).numpy()
    groups = torch.from_numpy(modularity_groups(source, target, graph)).reshape(-1, V)
    return (groups - rows[:, :1]).reshape(*lead, V).to(segments.index.device)


def hard_assignment(coefficients: Tensor, mean: Tensor | None, groups: Tensor | None = None) -> Tensor:
    """The output capsule that each input capsule belongs to, ``[..., n]``: that with its largest :func:`lift`.

    An input capsule all of whose coefficients are the means, up to :data:`LIFT_TOLERANCE`, belongs to the capsule with
    its largest coefficient. If all nodes are like that, they share one capsule, and capsules have collapsed
    (:class:`graphcaps.nn.capsule_use.CapsuleUse`); by lift, rounding would distribute them.

    Args:
        coefficients (Tensor): Routing coefficients, ``[..., n, J]``.
        mean (Tensor, optional): Their means over training graphs, ``[..., J]``. Without these, the capsule with the
            largest coefficient is returned.
        groups (Tensor, optional): Group of each input capsule, from 0 to n − 1, ``[..., n]``. Coefficients are replaced
            by their means over groups, which leaves ``mean`` as it is. (default: each is a group)
    """
    if groups is not None:
        coefficients = _average(coefficients, groups)
    largest = coefficients.argmax(-1)
    if mean is None:
        return largest
    relative = lift(coefficients, mean)
    # The lift of an average capsule, which is below 1 for a mean below the smallest share.
    average = lift(mean.to(coefficients.device).unsqueeze(-2), mean)
    is_average = ((relative - average).abs() <= LIFT_TOLERANCE).all(-1)
    return torch.where(is_average, largest, relative.argmax(-1))


def _average(coefficients: Tensor, groups: Tensor) -> Tensor:
    """Coefficients of the group of each row, in float64: the order of rows hardly changes the sums."""
    values, index = coefficients.double(), groups.unsqueeze(-1).expand_as(coefficients)
    sums = torch.zeros_like(values).scatter_add_(-2, index, values)
    counts = torch.zeros_like(values).scatter_add_(-2, index, torch.ones_like(values))
    return (sums / counts.clamp_min(1)).gather(-2, index)


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
