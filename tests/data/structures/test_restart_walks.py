"""Random walks with restart: a worked example, the power series, sorted columns."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from graphcaps.data.structures.restart_walks import RestartWalks, restart_matrix
from graphcaps.ops.structure.precomputation import PlainGraph


def test_worked_example() -> None:
    # An edge, and a node without: (I − cA)⁻¹ of the edge is [[1, c], [c, 1]] / (1 − c²).
    adjacency = sparse.csr_array(np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]]))
    expected = np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 0.75]]) * 0.5 / 0.75
    assert np.allclose(restart_matrix(adjacency, 0.5), expected, atol=1e-15)


def test_equals_the_power_series_and_columns_are_sorted() -> None:
    rng = np.random.default_rng(0)
    dense = np.triu(rng.random((9, 9)) < 0.4, 1).astype(float)
    dense += dense.T
    degree = np.maximum(dense.sum(1), 1)
    normalised = dense / np.sqrt(np.outer(degree, degree))
    series = sum(0.7 * 0.3**length * np.linalg.matrix_power(normalised, length) for length in range(60))
    adjacency = sparse.csr_array(dense)
    assert np.allclose(restart_matrix(adjacency, 0.3), series, atol=1e-12)
    expected = np.sort(series, 1)[:, ::-1]
    graph = PlainGraph.from_adjacency(adjacency)
    for columns in (4, 9, 12):
        actual = RestartWalks(columns, 0.3).compute(graph).columns
        assert actual is not None
        assert actual.shape == (9, columns)
        kept = min(columns, 9)
        assert np.allclose(actual[:, :kept], expected[:, :kept], atol=1e-12)
        assert not actual[:, kept:].any()
