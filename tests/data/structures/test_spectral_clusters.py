"""Spectral clusters: planted ones are found, without a random start, at any size."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import graphcaps.data.structures.spectral_clusters as module
from graphcaps.data.structures.spectral_clusters import cluster_members, coarse_adjacency, spectral_clusters
from tests.coarse_levels import matrix


def test_planted_clusters_are_found() -> None:
    graph = nx.planted_partition_graph(4, 25, 0.5, 0.03, seed=1)
    assert spectral_clusters(matrix(graph), 4).tolist() == np.repeat(np.arange(4), 25).tolist()


@pytest.mark.parametrize(
    "graph",
    [nx.star_graph(12), nx.cycle_graph(12), nx.empty_graph(7), nx.complete_graph(9), nx.path_graph(2),
     nx.disjoint_union(nx.path_graph(4), nx.star_graph(5))],
    ids=["star", "cycle", "no edges", "complete", "edge", "two parts"],
)  # fmt: skip
def test_every_number_of_clusters_is_reached(graph: nx.Graph) -> None:
    for k in range(1, len(graph) + 1):
        labels = spectral_clusters(matrix(graph), k)
        assert sorted(set(labels.tolist())) == list(range(k))
        first = [labels.tolist().index(cluster) for cluster in range(k)]
        assert first == sorted(first)  # in the order of their first nodes
        assert np.array_equal(labels, spectral_clusters(matrix(graph), k))


def test_two_parts_without_an_edge_between_them_are_two_clusters() -> None:
    graph = nx.disjoint_union(nx.path_graph(5), nx.complete_graph(6))
    assert spectral_clusters(matrix(graph), 2).tolist() == [0] * 5 + [1] * 6


def test_large_graphs_are_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DENSE_LIMIT", 60)
    monkeypatch.setattr(module, "_BLOCK_NODES", 50)
    graph = nx.planted_partition_graph(2, 50, 0.3, 0.01, seed=1)
    # The second eigenvector separates the planted clusters, and the blocks are cut between them.
    assert spectral_clusters(matrix(graph), 2).tolist() == [0] * 50 + [1] * 50
    labels = spectral_clusters(matrix(graph), 9)
    assert sorted(set(labels.tolist())) == list(range(9))
    assert not set(labels[:50].tolist()) & set(labels[50:].tolist())
    assert np.array_equal(labels, spectral_clusters(matrix(graph), 9))
    assert spectral_clusters(matrix(nx.star_graph(99)), 13).max() == 12


def test_members_and_edges_of_a_worked_example() -> None:
    # A path 0 1 2 3 with clusters {0, 3} and {1, 2}: two edges join them.
    labels = np.array([0, 1, 1, 0])
    ptr, members = cluster_members(labels)
    assert (ptr.tolist(), members.tolist()) == ([0, 2, 4], [0, 3, 1, 2])
    assert coarse_adjacency(matrix(nx.path_graph(4)), labels).toarray().tolist() == [[0, 2], [2, 0]]
