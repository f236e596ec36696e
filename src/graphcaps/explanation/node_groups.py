"""Groups: the connected pieces of each capsule in each graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.explanation.explanation_data import StoreExplanationData
from graphcaps.types import ShapeRepr

__all__ = ["NodeGroups", "edge_rows", "find_groups", "node_capsules"]


@dataclass(frozen=True, repr=False, eq=False)
class NodeGroups(ShapeRepr):
    """The K groups of one level: maximal connected sets of nodes of one graph that share a capsule.

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
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    capsule = node_capsules(explanations, level).numpy()
    graph = explanations.node_graph.numpy()
    ends, N = edge_rows(explanations), len(capsule)
    inside = capsule[ends[0]] == capsule[ends[1]]
    a, b = ends[:, inside]
    pieces = connected_components(coo_array((np.ones(len(a), np.int8), (a, b)), (N, N)), directed=False)[1]
    # Components are numbered by their first node; nodes of a graph are contiguous, so this is the order of graphs.
    order = np.argsort(pieces, kind="stable")
    counts = np.bincount(pieces) if N else np.zeros(0, np.int64)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    first = order[ptr[:-1]]
    return NodeGroups(level, capsule[first], graph[first], ptr, order, pieces)


def edge_rows(explanations: StoreExplanationData) -> np.ndarray:
    """The two ends of each edge as rows among the nodes of all graphs, ``[2, E]``."""
    first = explanations.node_ptr[:-1].repeat_interleave(explanations.edge_ptr.diff())
    return np.asarray((explanations.edges + torch.as_tensor(first)).numpy())
