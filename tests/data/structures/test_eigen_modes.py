"""Eigenvectors of clusters: orthonormal, and equal to those worked out by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from graphcaps.data.structures.eigen_modes import EigenLevels, cluster_modes, laplacian_modes
from graphcaps.data.structures.spectral_clusters import spectral_clusters
from graphcaps.ops.structure.precomputation import PlainGraph
from tests.coarse_levels import matrix

ROOT2, ROOT3, ROOT6 = 2**0.5, 3**0.5, 6**0.5


def test_modes_of_a_path_of_three_nodes() -> None:
    # Eigenvalues 0, 1, 3.
    expected = [
        [1 / ROOT3, 1 / ROOT2, 1 / ROOT6],
        [1 / ROOT3, 0, -2 / ROOT6],
        [1 / ROOT3, -1 / ROOT2, 1 / ROOT6],
    ]
    assert np.allclose(laplacian_modes(nx.to_numpy_array(nx.path_graph(3)), 3), expected, atol=1e-7)
    # The first entry of the last mode is 0: the next one is positive.
    middle_first = nx.to_numpy_array(nx.path_graph(3), nodelist=[1, 0, 2])
    assert np.allclose(laplacian_modes(middle_first, 2)[:, 1], [0, 1 / ROOT2, -1 / ROOT2], atol=1e-7)


def test_missing_modes_repeat_the_last() -> None:
    edge = laplacian_modes(np.array([[0.0, 1.0], [1.0, 0.0]]), 4)
    assert np.allclose(edge, np.array([[1, 1, 1, 1], [1, -1, -1, -1]]) / ROOT2)
    assert laplacian_modes(np.zeros((1, 1)), 3).tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    "graph", [nx.gnp_random_graph(9, 0.4, seed=2), nx.star_graph(6), nx.empty_graph(5), nx.cycle_graph(8)]
)
def test_modes_are_orthonormal_eigenvectors(graph: nx.Graph) -> None:
    A = nx.to_numpy_array(graph)
    U = laplacian_modes(A, len(A))
    assert np.allclose(U.T @ U, np.eye(len(A)), atol=1e-12)
    L = np.diag(A.sum(1)) - A
    values = np.diag(U.T @ L @ U)
    assert np.allclose(L @ U, U * values, atol=1e-6)
    assert np.all(np.diff(values) > -1e-6)
    assert np.allclose(U[:, 0], len(A) ** -0.5)


def test_cluster_modes_are_those_of_induced_subgraphs() -> None:
    graph = nx.gnp_random_graph(30, 0.2, seed=0)
    A = nx.to_numpy_array(graph)
    labels = spectral_clusters(matrix(graph), 4)
    weights = cluster_modes(matrix(graph), labels, 3)
    order = labels.argsort(kind="stable")
    for cluster in range(4):
        nodes = np.flatnonzero(labels == cluster)
        expected = laplacian_modes(A[np.ix_(nodes, nodes)], 3)
        assert np.allclose(weights[labels[order] == cluster], expected, atol=1e-12)


def test_levels() -> None:
    graph = PlainGraph.from_adjacency(matrix(nx.gnp_random_graph(27, 0.2, seed=5)))
    precomputation = EigenLevels((5, 2), modes=2, final_modes=3)
    levels = precomputation.compute(graph).levels
    assert [level.num_nodes for level in levels] == [5, 2, 1]
    assert [level.weights.shape[1] for level in levels] == list(precomputation.level_weights) == [2, 2, 3]
    assert [len(level.members) for level in levels] == [27, 5, 2]
    # The weights of the second level's edges count edges of the graph, also in its own clustering.
    assert levels[0].adjacency.sum() == 2 * sum(
        1 for a, b in zip(np.repeat(np.arange(27), graph.degree), graph.neighbours, strict=True)
        if a < b and cluster_of(levels[0], a) != cluster_of(levels[0], b)
    )  # fmt: skip
    assert np.allclose(levels[2].weights[:, 0], 1 / ROOT2)


def cluster_of(level, node: int) -> int:
    return int(np.searchsorted(level.member_ptr, np.flatnonzero(level.members == node)[0], side="right"))
