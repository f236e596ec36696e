"""Agreement of node partitions with a reference or with each other, and use of the capsules."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.nn.hard_assignment import smallest_share

__all__ = [
    "capsule_usage",
    "graphs_with_distinct_kinds",
    "member_agreement",
    "nearly_uniform",
    "partition_agreement",
    "rank_correlation",
]

_NEARLY_EQUAL = 1.2
"""Largest ratio of coefficients that are nearly equal."""


def partition_agreement(
    partition: Tensor, truth: Tensor, node_ptr: Tensor, graphs: Tensor | None = None
) -> dict[str, float]:
    """Agreement of two partitions of the nodes of G graphs, independent of the numbering of the parts.

    Args:
        partition, truth (Tensor): Part of each node, ``[N]``.
        node_ptr (Tensor): Offsets of the graphs' nodes, ``[G + 1]``.
        graphs (Tensor, optional): Mask of the graphs to include, ``[G]``. (default: all)

    Returns:
        dict: ``nmi``, normalised mutual information within a graph, mean over graphs; ``nmi_all``, over all nodes
        together, which requires the same part number in every graph; ``ari``, adjusted Rand index within a graph, mean
        over graphs. All are 1 for equal partitions. For independent partitions ``ari`` and ``nmi_all`` are about 0, but
        ``nmi`` is not: with few nodes and many parts some agreement occurs by chance (docs/explaining.md).
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    if partition.shape != truth.shape or partition.dim() != 1 or int(node_ptr[-1]) != partition.numel():
        raise ShapeError(
            "partition_agreement",
            "partition, truth",
            f"have {int(node_ptr[-1])} nodes",
            list(partition.shape),
        )
    a, b = partition.numpy(), truth.numpy()
    spans = [slice(*span) for span in pairwise(node_ptr.tolist())]
    if graphs is not None:
        spans = [spans[graph] for graph in graphs.nonzero().flatten().tolist()]
    rows = np.concatenate([np.arange(s.start, s.stop) for s in spans])
    return {
        "nmi": float(np.mean([normalized_mutual_info_score(b[s], a[s]) for s in spans])),
        "nmi_all": float(normalized_mutual_info_score(b[rows], a[rows])),
        "ari": float(np.mean([adjusted_rand_score(b[s], a[s]) for s in spans])),
    }


def graphs_with_distinct_kinds(kind: Tensor, part: Tensor, node_ptr: Tensor) -> Tensor:
    """Mask of the graphs whose planted parts are all of different kinds, ``[G]``; nodes of part −1 are ignored."""
    graph = torch.arange(node_ptr.numel() - 1).repeat_interleave(node_ptr.diff())
    planted = part >= 0
    width = int(torch.cat([kind, part]).max()) + 1
    parts = torch.unique((graph * width + part)[planted])
    pairs = torch.unique(((graph * width + kind) * width + part)[planted])
    kinds = torch.unique(pairs // width)
    count = torch.bincount(parts // width, minlength=node_ptr.numel() - 1)
    return count == torch.bincount(kinds // width, minlength=node_ptr.numel() - 1)


def capsule_usage(assignment: Tensor, capsule: Tensor, node_ptr: Tensor) -> dict[str, Any]:
    """Use of the J capsules of the lowest level.

    Args:
        assignment (Tensor): Routing weights, ``[N, J]``.
        capsule (Tensor): Capsule that each node belongs to, ``[N]``.
        node_ptr (Tensor): Offsets of the nodes of each graph, ``[G + 1]``.

    Returns:
        dict: ``entropy`` of a node's weights divided by log J, mean over nodes: 0 for hard assignments, 1 for uniform
        ones; ``dead_capsules``, number of capsules to which no node belongs; ``share``, fraction of a graph's nodes
        that belong to each capsule, mean over graphs, ``J`` numbers; ``used_per_graph``,
        number of capsules with at least one node of a graph, mean over graphs. Graphs without nodes do not count.
    """
    J = assignment.size(-1)
    entropy = -torch.xlogy(assignment.double(), assignment.double()).sum(-1).mean() / math.log(max(J, 2))
    sizes = node_ptr.unique_consecutive().diff()  # without graphs that have no nodes
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes)
    counts = torch.bincount(graph * J + capsule, minlength=sizes.numel() * J).reshape(-1, J)
    share = (counts / sizes.unsqueeze(-1)).double().mean(0)
    return {
        "entropy": float(entropy),
        "dead_capsules": int((counts.sum(0) == 0).sum()),
        "share": [round(value, 6) for value in share.tolist()],
        "used_per_graph": float((counts > 0).double().sum(-1).mean()),
    }


def nearly_uniform(assignment: Tensor, node_ptr: Tensor) -> Tensor:
    """Graphs whose nodes all have nearly the same coefficients, so that capsules hardly tell them apart, ``[G]``.

    The largest coefficient to each capsule is then at most 1.2 times the smallest one in the graph. Coefficients below
    the share from which a capsule is in use count as that share, as in
    :func:`graphcaps.nn.hard_assignment.lift`. A graph of one node is not counted.

    Args:
        assignment (Tensor): Routing coefficients, ``[N, J]``.
        node_ptr (Tensor): Offsets of the nodes of each graph, ``[G + 1]``.
    """
    sizes, J = node_ptr.diff(), assignment.size(-1)
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes).unsqueeze(-1).expand(-1, J)
    c = assignment.double().clamp_min(smallest_share(J))
    ends = c.new_ones(sizes.numel(), J)
    largest, smallest = (
        ends.scatter_reduce(0, graph, c, how, include_self=False) for how in ("amax", "amin")
    )
    return (largest <= _NEARLY_EQUAL * smallest).all(-1) & (sizes > 1) & (J > 1)


def rank_correlation(one: Tensor, two: Tensor, node_ptr: Tensor) -> float:
    """Spearman correlation of two node scores ``[N]`` within a graph, mean over graphs in which both vary."""
    from scipy.stats import rankdata

    a, b = one.double().numpy(), two.double().numpy()
    correlations = []
    for start, end in pairwise(node_ptr.tolist()):
        ranks = rankdata(a[start:end]), rankdata(b[start:end])
        if min(rank.std() for rank in ranks) > 0:
            correlations.append(np.corrcoef(*ranks)[0, 1])
    return float(np.mean(correlations)) if correlations else float("nan")


def member_agreement(scores: Tensor, node_ptr: Tensor) -> Tensor:
    """How far the members of a committee agree on the nodes of each graph, float64 ``[G]``.

    It is the Spearman correlation of two members' node scores, mean over all pairs of members; NaN for a graph in which
    the scores of a member do not vary.

    Args:
        scores (Tensor): Node scores of M members, at least two, ``[M, N]``.
        node_ptr (Tensor): Offsets of the graphs' nodes, ``[G + 1]``.
    """
    from scipy.stats import rankdata

    values, upper = scores.double().numpy(), np.triu_indices(len(scores), 1)
    agreement = np.full(node_ptr.numel() - 1, np.nan)
    for graph, (start, end) in enumerate(pairwise(node_ptr.tolist())):
        if end - start > 1:
            ranks = rankdata(values[:, start:end], axis=1)
            if ranks.std(1).min() > 0:
                agreement[graph] = np.corrcoef(ranks)[upper].mean()
    return torch.from_numpy(agreement)
