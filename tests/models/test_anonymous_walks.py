"""Anonymous walks: their list, exact probabilities by enumeration, samples within the bound, and independence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.models import anonymous_walks as module
from graphcaps.models.anonymous_walks import (
    WalkSampling,
    anonymous_walks,
    number_of_samples,
    walk_distributions,
)
from graphcaps.ops.edges import clean_edges
from graphcaps.testing.subject import reorder_nodes

EXACT, SAMPLED = WalkSampling(10**9, 0), WalkSampling(0, 4000)


def make(*graphs: tuple[int, list[tuple[int, int]]]) -> GraphStore:
    """A store of graphs, each a number of nodes and a list of edges."""
    ptr = np.cumsum([0, *(nodes for nodes, _ in graphs)])
    pairs = [(first + a, first + b) for (_, edges), first in zip(graphs, ptr, strict=False) for a, b in edges]
    ends = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    clean = clean_edges(ends[0], ends[1], int(ptr[-1]))
    return GraphStore.from_clean_edges("made", torch.from_numpy(ptr), clean)


def rename(walk: tuple[int, ...]) -> tuple[int, ...]:
    """The anonymous walk of a walk, by its definition."""
    order = list(dict.fromkeys(walk))
    return tuple(order.index(node) for node in walk)


def enumerate_walks(store: GraphStore, graph: int, length: int) -> tuple[Counter, dict]:
    """Number and probability of the walks with each anonymous walk: every walk of a graph, in fractions."""
    one = store[graph]
    near = [one.neighbours[a:b].tolist() for a, b in pairwise(one.edge_ptr.tolist())]
    walks = [((node,), Fraction(1, len(near))) for node in range(len(near))]
    for _ in range(length):
        walks = [((*walk, node), p / len(near[walk[-1]])) for walk, p in walks for node in near[walk[-1]]]
    counts, chances = Counter(rename(walk) for walk, _ in walks), Counter()
    for walk, p in walks:
        chances[rename(walk)] += p
    return counts, chances


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=6)


def test_the_anonymous_walks_are_all_renamed_walks_of_a_complete_graph():
    assert [len(anonymous_walks(length)) for length in range(9)] == [1, 1, 2, 5, 15, 52, 203, 877, 4140]
    for length in (1, 4):
        walks = product(range(length + 1), repeat=length + 1)
        expected = {rename(walk) for walk in walks if all(a != b for a, b in pairwise(walk))}
        assert set(anonymous_walks(length)) == expected
        assert list(anonymous_walks(length)) == sorted(expected)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_probabilities_equal_an_enumeration(store, length):
    p = walk_distributions(store, length, EXACT)
    for graph in range(3):
        _, chances = enumerate_walks(store, graph, length)
        expected = [float(chances[walk]) for walk in anonymous_walks(length)]
        np.testing.assert_allclose(p[graph], expected, atol=1e-9)


def test_counts_on_regular_graphs_equal_an_enumeration():
    """All walks of a regular graph have the same probability, so that probabilities are counts."""
    cycle = (5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])
    complete = (4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    graphs, length = make(cycle, complete), 6
    p = walk_distributions(graphs, length, EXACT)
    for graph, walks in enumerate((5 * 2**length, 4 * 3**length)):
        counts, _ = enumerate_walks(graphs, graph, length)
        assert sum(counts.values()) == walks
        np.testing.assert_allclose(p[graph] * walks, [counts[w] for w in anonymous_walks(length)], atol=1e-6)


def test_a_worked_example():
    """The path a, b, c: from an end the walk of two steps returns in one of two cases, from the middle always."""
    path, lonely, nothing = (3, [(0, 1), (1, 2)]), (4, [(0, 1), (1, 2)]), (2, [])
    p = walk_distributions(make(path, lonely, nothing, (0, [])), 2, EXACT)
    assert anonymous_walks(2) == ((0, 1, 0), (0, 1, 2))
    # A node without neighbours starts no walk.
    np.testing.assert_allclose(p, [[2 / 3, 1 / 3], [1 / 2, 1 / 4], [0, 0], [0, 0]], atol=1e-11)
    sampled = walk_distributions(make(lonely), 2, SAMPLED)
    np.testing.assert_allclose(sampled, [[1 / 2, 1 / 4]], atol=0.03)
    assert sampled.sum() == 0.75


def test_the_number_of_samples_is_that_of_the_publication():
    assert number_of_samples(7, 0.5, 0.05) == 4888
    assert number_of_samples(7, 0.1, 0.01) == 122_500
    assert number_of_samples(1, 0.1, 0.01) == 1
    assert number_of_samples(2, 0.1, 0.5) == 278  # 200 log 4, since 2² − 2 = 2


def test_samples_are_within_the_bound(store):
    error = 0.2
    sampling = WalkSampling(0, number_of_samples(4, error, 0.01))
    difference = walk_distributions(store, 4, sampling) - walk_distributions(store, 4, EXACT)
    assert 0 < np.abs(difference).sum(1).max() < error
    other = walk_distributions(store, 4, replace(sampling, seed=1))
    assert not np.array_equal(other, walk_distributions(store, 4, sampling))


def test_graphs_with_few_walks_are_enumerated_and_the_others_sampled(store):
    counts = [sum(enumerate_walks(store, graph, 3)[0].values()) for graph in range(6)]
    limit = sorted(counts)[2]
    mixed = walk_distributions(store, 3, WalkSampling(limit, 500))
    exact = walk_distributions(store, 3, EXACT)
    sampled = walk_distributions(store, 3, WalkSampling(0, 500))
    few = np.array(counts) <= limit
    assert np.array_equal(mixed[few], exact[few])
    assert np.array_equal(mixed[~few], sampled[~few])


@pytest.mark.parametrize("sampling", [EXACT, WalkSampling(0, 50)])
def test_a_graph_does_not_depend_on_others_nor_on_chunks(monkeypatch: pytest.MonkeyPatch, store, sampling):
    expected = walk_distributions(store, 4, sampling)
    monkeypatch.setattr(module, "_STEP_WALKS", 100)
    moved = walk_distributions(store[torch.tensor([4, 1])], 4, sampling)
    assert np.array_equal(moved, expected[[4, 1]])


def test_the_order_of_nodes_does_not_matter(store):
    """Of sampled graphs: of those whose nodes differ in colour, and of those whose nodes are alike."""
    other, _ = reorder_nodes(store)
    assert np.array_equal(walk_distributions(other, 4, EXACT), walk_distributions(store, 4, EXACT))
    comb = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (2, 6)]
    star = [(0, i) for i in range(1, 6)]
    graphs = make((7, comb), (6, star))
    other, _ = reorder_nodes(graphs)
    sampling = WalkSampling(0, 50)
    assert np.array_equal(walk_distributions(other, 4, sampling), walk_distributions(graphs, 4, sampling))


def test_labels_are_not_read(store):
    labels = torch.arange(store.num_nodes)[:, None]
    labelled = replace(store, node_labels=labels)
    sampling = WalkSampling(0, 50)
    assert np.array_equal(walk_distributions(labelled, 3, sampling), walk_distributions(store, 3, sampling))
