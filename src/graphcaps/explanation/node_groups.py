"""Groups: the connected sets of nodes of each capsule in each graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.explanation.explanation_data import StoreExplanationData
from graphcaps.explanation.truth_metrics import connected_nodes
from graphcaps.types import ShapeRepr

__all__ = ["NodeGroups", "find_groups", "node_capsules"]


@dataclass(frozen=True, repr=False, eq=False)
class NodeGroups(ShapeRepr):
    """The K groups of one level: connected sets of nodes of one graph that share a capsule.

    At the lowest level they are the groups that are assigned as a whole. Above it, and where every node is assigned by
    itself, they are the largest such sets.

    Args:
        level (int): Capsule level, 0 above the nodes.
        capsule (ndarray): Capsule of each group, ``[K]``.
        graph (ndarray): Graph of each group, ``[K]``.
        ptr (ndarray): Offsets into ``nodes``, ``[K + 1]``.
        nodes (ndarray): Rows of the nodes of all groups among the N nodes of all graphs, ascending within a group,
            ``[N]``.
        group (ndarray): Group of each node, ``[N]``.
    """

    level: int
    capsule: np.ndarray
    graph: np.ndarray
    ptr: np.ndarray
    nodes: np.ndarray
    group: np.ndarray

    def __len__(self) -> int:
        return len(self.capsule)

    @property
    def sizes(self) -> np.ndarray:
        """Number of nodes of each group, ``[K]``."""
        return np.diff(self.ptr)


def node_capsules(explanations: StoreExplanationData, level: int = 0) -> Tensor:
    """Capsule of a level that each node leads to, level by level, ``[N]``.

    Args:
        explanations (StoreExplanation): Explanations of graphs.
        level (int): Capsule level, 0 above the nodes; the last one is the class level.

    Raises:
        ArgumentError: If there is no such level.
    """
    levels = len(explanations.assignments)
    if not 0 <= level < levels:
        raise ArgumentError("node_capsules", "level", f"be from 0 to {levels - 1}", level)
    capsule, graph = explanations.capsule, explanations.node_graph
    for above in range(1, level + 1):
        capsule = explanations.capsules_of(above)[graph, capsule]
    return capsule


def find_groups(explanations: StoreExplanationData, level: int = 0) -> NodeGroups:
    """The groups of all graphs at one level, ordered by graph and by their first node.

    Args:
        explanations, level: As in :func:`node_capsules`.
    """
    of_node, N = node_capsules(explanations, level), explanations.node_scores.numel()
    whole = None if level else explanations.groups
    if whole is None:
        source, target = explanations.edge_rows
        same = of_node[source] == of_node[target]
        whole = connected_nodes(N, source[same], target[same])
    pieces = np.unique(whole.numpy(), return_inverse=True)[1]
    capsule, graph = of_node.numpy(), explanations.node_graph.numpy()
    # Numbered by their first node; nodes of a graph are contiguous, so this is the order of graphs.
    order = np.argsort(pieces, kind="stable")
    counts = np.bincount(pieces) if N else np.zeros(0, np.int64)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    first = order[ptr[:-1]]
    return NodeGroups(level, capsule[first], graph[first], ptr, order, pieces)
