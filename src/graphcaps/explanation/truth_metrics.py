"""Agreement of explanations with a known reason: node and edge scores, and groups of nodes.

The deciding groups of a graph are numbered in ``store.truth["reason"]``, −1 elsewhere (docs/known-reasons.md). An edge
is deciding if both of its nodes are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.store import GraphStore

__all__ = [
    "MIN_OVERLAP",
    "GroupAgreement",
    "PartitionShape",
    "connected_groups",
    "connected_nodes",
    "group_agreement",
    "partition_shape",
    "purity",
    "score_auc",
]

MIN_OVERLAP = 0.5
"""Overlap from which on a group is found: nodes in both groups divided by nodes in either."""


def score_auc(scores: Tensor, deciding: Tensor, ptr: Tensor) -> float | None:
    """Area under the ROC curve of scores for deciding nodes, within a graph, mean over graphs.

    It is the probability that a deciding node has a higher score than another node of its graph; ties count half.
    Graphs in which all or no nodes are deciding do not count. Edges take the place of nodes with their own offsets.

    Args:
        scores (Tensor): Score of each node, ``[N]``.
        deciding (Tensor): Whether each node is deciding, ``[N]``.
        ptr (Tensor): Offsets of the graphs' nodes, ``[G + 1]``.

    Returns:
        float, optional: ``None`` if no graph counts.
    """
    from scipy.stats import rankdata

    values, truth = scores.double().numpy(), deciding.numpy().astype(bool)
    areas = []
    for start, end in pairwise(ptr.tolist()):
        positive = int(truth[start:end].sum())
        negative = end - start - positive
        if positive and negative:
            ranks = rankdata(values[start:end])[truth[start:end]]
            areas.append((ranks.sum() - positive * (positive + 1) / 2) / (positive * negative))
    return float(np.mean(areas)) if areas else None


def connected_groups(partition: Tensor, store: GraphStore) -> Tensor:
    """Connected groups of nodes with the same part: a number of each node's group over the whole store, ``[N]``.

    Args:
        partition (Tensor): Part of each node, ``[N]``.
        store (GraphStore): The graphs.
    """
    source, target = store.entry_rows()
    same = partition[source] == partition[target]
    return connected_nodes(store.num_nodes, source[same], target[same])


def connected_nodes(count: int, source: Tensor, target: Tensor) -> Tensor:
    """Connected component of each of ``count`` nodes by the edges between ``source`` and ``target``, from 0 on."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    ends = source.cpu().numpy(), target.cpu().numpy()
    links = coo_matrix((np.ones(len(ends[0])), ends), shape=(count, count))
    return torch.from_numpy(connected_components(links, directed=False)[1]).long().to(source.device)


@dataclass(frozen=True)
class GroupAgreement:
    """Agreement of connected groups of nodes with the deciding groups.

    Args:
        groups (int): Number of deciding groups.
        graphs (int): Number of graphs that have one.
        overlap (float): Overlap of a deciding group with the connected group that is most like it (intersection over
            union), mean over deciding groups.
        recall (float): Fraction of deciding groups with an overlap of at least :data:`MIN_OVERLAP`.
        exact (float): Fraction of deciding groups that equal a connected group.
        graph_recall (float): Fraction of graphs all of whose deciding groups are found.
    """

    groups: int
    graphs: int
    overlap: float
    recall: float
    exact: float
    graph_recall: float


def group_agreement(partition: Tensor, reason: Tensor, store: GraphStore) -> GroupAgreement | None:
    """How far the deciding groups are connected groups of nodes with the same part; ``None`` without deciding groups.

    Args:
        partition (Tensor): Part of each node, such as its capsule, ``[N]``.
        reason (Tensor): Deciding group of each node, −1 elsewhere, ``[N]``.
        store (GraphStore): The graphs.
    """
    deciding = reason >= 0
    if not bool(deciding.any()):
        return None
    found = connected_groups(partition, store)
    graph = store.node_graph
    _, true = torch.unique((graph * (int(reason.max()) + 1) + reason)[deciding], return_inverse=True)
    true_sizes, found_sizes = torch.bincount(true), torch.bincount(found)
    pairs, both = torch.unique(torch.stack([true, found[deciding]]), dim=1, return_counts=True)
    overlap = both / (true_sizes[pairs[0]] + found_sizes[pairs[1]] - both)
    best = overlap.new_zeros(true_sizes.numel()).scatter_reduce(0, pairs[0], overlap, "amax")
    of_graph = torch.zeros_like(true_sizes).scatter(0, true, graph[deciding])
    # A graph counts as found if its worst group is.
    worst = best.new_full((len(store),), 2.0).scatter_reduce(0, of_graph, best, "amin")
    worst = worst[worst < 2]
    return GroupAgreement(
        groups=best.numel(),
        graphs=worst.numel(),
        overlap=float(best.double().mean()),
        recall=float((best >= MIN_OVERLAP).double().mean()),
        exact=float((best == 1).double().mean()),
        graph_recall=float((worst >= MIN_OVERLAP).double().mean()),
    )


def purity(partition: Tensor, kind: Tensor) -> float:
    """Fraction of all nodes that are of the most frequent kind of their part; 1 if every part has one kind.

    Args:
        partition, kind (Tensor): Part and true kind of each node, over all graphs, ``[N]``.
    """
    table = torch.zeros(int(partition.max()) + 1, int(kind.max()) + 1, dtype=torch.long)
    table.index_put_((partition, kind), torch.ones_like(kind), accumulate=True)
    return float(table.amax(1).sum()) / kind.numel()


@dataclass(frozen=True)
class PartitionShape:
    """Number and connectedness of the parts of graphs.

    Args:
        parts_per_graph (float): Number of parts with a node of a graph, mean over graphs with nodes.
        low, high (float): 5 % and 95 % quantile of that number.
        connected (float): Fraction of the parts of all graphs whose nodes are connected.
    """

    parts_per_graph: float
    low: float
    high: float
    connected: float


def partition_shape(partition: Tensor, store: GraphStore) -> PartitionShape:
    """Number and connectedness of the parts of graphs.

    Args:
        partition (Tensor): Part of each node, ``[N]``.
        store (GraphStore): The graphs, at least one with a node.
    """
    width = int(partition.max()) + 1
    parts, part_of = torch.unique(store.node_graph * width + partition, return_inverse=True)
    pieces = torch.unique(torch.stack([part_of, connected_groups(partition, store)]), dim=1)[0]
    counts = torch.bincount(parts // width, minlength=len(store))[store.sizes > 0].double()
    return PartitionShape(
        parts_per_graph=float(counts.mean()),
        low=float(counts.quantile(0.05)),
        high=float(counts.quantile(0.95)),
        connected=float((torch.bincount(pieces) == 1).double().mean()),
    )
