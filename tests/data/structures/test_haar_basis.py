"""Haar bases: orthonormal, and equal to one worked out by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

from graphcaps.data.structures.haar_basis import HaarLevels, cluster_contrasts, haar_basis
from graphcaps.ops.structure.precomputation import PlainGraph
from tests.coarse_levels import matrix


def test_basis_of_a_worked_example() -> None:
    # Nodes 0, 1, 2 in cluster 0 and 3, 4 in cluster 1; both in one.
    basis = haar_basis([np.array([0, 0, 0, 1, 1]), np.array([0, 0])]).toarray()
    half, three, two, six = 0.5**0.5, 3**-0.5, 2**-0.5, 6**-0.5
    expected = np.array(
        [
            [half * three, half * three, 2 * six, 0, 0],
            [half * three, half * three, -six, two, 0],
            [half * three, half * three, -six, -two, 0],
            [half * two, -half * two, 0, 0, two],
            [half * two, -half * two, 0, 0, -two],
        ]
    )
    assert np.allclose(basis, expected, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 32, 33, 70])
def test_contrasts_are_orthonormal(size: int) -> None:
    vectors = cluster_contrasts(size).toarray()
    assert vectors.shape == (size, size - 1)
    assert np.allclose(vectors.T @ vectors, np.eye(size - 1), atol=1e-12)
    assert np.allclose(vectors.sum(0), 0, atol=1e-12)


def test_contrasts_of_four_nodes() -> None:
    expected = np.array([[3**0.5 / 2, 0, 0], [-(12**-0.5), 2 / 6**0.5, 0], [-(12**-0.5), -(6**-0.5), 2**-0.5],
                         [-(12**-0.5), -(6**-0.5), -(2**-0.5)]])  # fmt: skip
    assert np.allclose(cluster_contrasts(4).toarray(), expected, atol=1e-12)


@pytest.mark.parametrize("num_levels", [1, 2, 3])
def test_levels_are_cluster_sums_rotated_by_the_basis_of_the_coarse_level(num_levels: int) -> None:
    graph = PlainGraph.from_adjacency(matrix(nx.gnp_random_graph(23, 0.2, seed=4)))
    levels = HaarLevels(num_levels).compute(graph).levels
    sizes = [23, 12, 7, 1] if num_levels == 3 else [23, 12, 1] if num_levels == 2 else [23, 1]
    assert [level.num_nodes for level in levels] == sizes[1:]
    for n, level in zip(sizes, levels, strict=False):
        shape = (level.num_nodes, n)
        phi = (
            sparse.csr_array((level.weights[:, 0], level.members, level.member_ptr), shape=shape).toarray().T
        )
        assert np.allclose(phi.T @ phi, np.eye(level.num_nodes), atol=1e-12)
        # The vectors are constant on clusters: there are as many different rows as clusters.
        assert len(np.unique(phi.round(9), axis=0)) == level.num_nodes
    assert np.allclose(levels[-1].weights, sizes[-2] ** -0.5)
