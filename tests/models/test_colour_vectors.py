"""Vectors of colours: the information of pairs equals a sum over nodes, and vectors approximate it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.sparse import csr_array

from graphcaps.models import colour_vectors
from graphcaps.models.colour_vectors import embed_colours, positive_information


def information_of_nodes(counts: np.ndarray) -> np.ndarray:
    """The definition: every ordered pair of nodes of every graph."""
    pairs = np.zeros((counts.shape[1],) * 2)
    for row in counts:
        nodes = np.repeat(np.arange(len(row)), row.astype(int))
        for a, b in permutations(range(len(nodes)), 2):
            pairs[nodes[a], nodes[b]] += 1 / (len(nodes) - 1)
    marginal = pairs.sum(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(pairs * pairs.sum() / np.outer(marginal, marginal))
    return np.where(pairs > 0, np.maximum(value, 0), 0)


@pytest.fixture(scope="module")
def counts() -> np.ndarray:
    generator = np.random.default_rng(0)
    counts = generator.poisson(0.4, (20, 30)).astype(float)
    counts[0], counts[1] = 0, np.eye(30)[4]  # without nodes, and with a single one
    return counts


def test_a_worked_example():
    """Two graphs of two nodes each, of one colour each: N = 2 for both, and log(2 · 4 / (2 · 2)) = log 2."""
    actual = positive_information(csr_array(np.diag([2.0, 2.0]))).toarray()
    np.testing.assert_allclose(actual, np.log(2) * np.eye(2))


def test_information_equals_a_sum_over_pairs_of_nodes(counts):
    actual = positive_information(csr_array(counts)).toarray()
    np.testing.assert_allclose(actual, information_of_nodes(counts), atol=1e-12)
    assert np.array_equal(actual, actual.T)
    assert actual.any()


def test_vectors_give_the_best_approximation(counts):
    information = information_of_nodes(counts)
    vectors = embed_colours(csr_array(counts), 30)
    u, values, _ = np.linalg.svd(information)
    np.testing.assert_allclose(vectors @ vectors.T, u @ np.diag(values) @ u.T, atol=1e-10)
    np.testing.assert_allclose((vectors**2).sum(0), values, atol=1e-10)
    first = embed_colours(csr_array(counts), 4)
    assert np.array_equal(first, vectors[:, :4])


def test_large_matrices_are_iterated(counts, monkeypatch: pytest.MonkeyPatch):
    expected = embed_colours(csr_array(counts), 3)
    monkeypatch.setattr(colour_vectors, "_DENSE_COLOURS", 0)
    monkeypatch.setattr(colour_vectors, "_POWERS", 60)
    actual = embed_colours(csr_array(counts), 3)
    assert not np.array_equal(actual, expected)
    np.testing.assert_allclose(actual @ actual.T, expected @ expected.T, atol=1e-8)


def test_fewer_colours_than_dimensions_leave_zeros():
    vectors = embed_colours(csr_array(np.diag([2.0, 2.0])), 5)
    np.testing.assert_allclose(vectors @ vectors.T, np.log(2) * np.eye(2), atol=1e-12)
    assert not vectors[:, 2:].any()
    assert embed_colours(csr_array((3, 0)), 2).shape == (0, 2)
    assert not embed_colours(csr_array(np.ones((3, 1))), 2).any()
