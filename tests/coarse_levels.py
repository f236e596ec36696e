"""A precomputation with hand-made levels and columns, for tests, and stores with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import networkx as nx
import numpy as np
import torch
from scipy import sparse

from graphcaps.data.precompute import precompute
from graphcaps.data.store import GraphStore
from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, PlainGraph, Precomputation
from tests.graphs import Graphs, random_graphs, with_empty_graphs

__all__ = ["NeighbourLevels", "levelled_store", "matrix"]


@dataclass(frozen=True)
class NeighbourLevels(Precomputation):
    """Two levels and a column. A node c of the first level has the nodes as members whose index is a multiple of c + 1.

    There are ⌈n / 2⌉ of them, which form a path, with two weights per member. The second level has one node with all
    nodes of the first as members, without weights. The column is the degree.
    """

    kind: ClassVar[str] = "multiples"
    weighted_edges: ClassVar[bool] = True

    scale: float = 1.0

    @property
    def level_weights(self) -> tuple[int, ...]:
        return (2, 0)

    @property
    def num_columns(self) -> int:
        return 1

    def compute(self, graph: PlainGraph) -> GraphStructure:
        n = graph.num_nodes
        c = -(-n // 2)
        members = [np.arange(0, n, node + 1) for node in range(c)]
        counts = np.array([len(each) for each in members])
        flat = np.concatenate(members)
        weights = self.scale * np.stack([np.cos(flat), 1.0 + np.repeat(np.arange(c), counts)], 1)
        path = sparse.csr_array(np.diag(np.arange(1.0, c), 1) + np.diag(np.arange(1.0, c), -1) + np.eye(c))
        first = GraphLevel(path, np.concatenate([[0], counts.cumsum()]), flat, weights)
        top = GraphLevel(sparse.csr_array((1, 1)), np.array([0, c]), np.arange(c))
        return GraphStructure((first, top), graph.degree[:, None].astype(float))


def levelled_store(dtype: torch.dtype = torch.float64) -> tuple[GraphStore, Graphs]:
    """Graphs of 6, 9, 1 and 4 nodes and one without nodes, at index 2, with these levels; and the first four alone."""
    graphs = random_graphs([6, 9, 1, 4])
    store, _ = with_empty_graphs(graphs.as_store(), [0, 0, 1, 0, 0])
    return precompute(store, NeighbourLevels(), dtype=dtype), graphs


def matrix(graph: nx.Graph) -> sparse.csr_array:
    """The adjacency of a graph whose nodes are numbers from 0 on."""
    return sparse.csr_array(nx.to_scipy_sparse_array(graph, nodelist=range(len(graph)), dtype=float))
