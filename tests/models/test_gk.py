"""Graphlets of three nodes: the closed form equals enumeration and grakel, and the kernel equals scikit-learn's."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models import gk
from graphcaps.models.gk import GK, count_graphlets
from graphcaps.ops.edges import clean_edges


def make(*graphs: tuple[int, list[tuple[int, int]]]) -> GraphStore:
    """A store of graphs, each a number of nodes and a list of edges."""
    ptr = np.cumsum([0, *(nodes for nodes, _ in graphs)])
    pairs = [(first + a, first + b) for (_, edges), first in zip(graphs, ptr, strict=False) for a, b in edges]
    ends = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    clean = clean_edges(ends[0], ends[1], int(ptr[-1]))
    return GraphStore.from_clean_edges("made", torch.from_numpy(ptr), clean)


def enumerate_graphlets(store: GraphStore) -> np.ndarray:
    """Every set of three nodes, and how many edges it has."""
    counts = np.zeros((len(store), 4))
    for graph in range(len(store)):
        one = store[graph]
        edges = {
            (node, int(other))
            for node, (a, b) in enumerate(pairwise(one.edge_ptr.tolist()))
            for other in one.neighbours[a:b]
        }
        for triple in combinations(range(one.num_nodes), 3):
            counts[graph, sum(pair in edges for pair in combinations(triple, 2))] += 1
    return counts


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=12)


def test_worked_examples():
    triangle_and_tail = (4, [(0, 1), (1, 2), (2, 0), (2, 3)])
    star, edge, nothing, empty = (4, [(0, 1), (0, 2), (0, 3)]), (2, [(0, 1)]), (3, []), (0, [])
    counts = count_graphlets(make(triangle_and_tail, star, edge, nothing, empty))
    assert counts.tolist() == [[0, 1, 2, 1], [1, 0, 3, 0], [0] * 4, [1, 0, 0, 0], [0] * 4]


@pytest.mark.parametrize("dense_nodes", [0, 512])
def test_counts_equal_enumeration(monkeypatch: pytest.MonkeyPatch, dense_nodes):
    monkeypatch.setattr(gk, "_DENSE_NODES", dense_nodes)
    graphs = planted_parts(num_graphs=6)
    assert np.array_equal(count_graphlets(graphs), enumerate_graphlets(graphs))


def test_frequencies_equal_those_of_grakel_up_to_its_sampling():
    """Samples, since grakel 0.1.11 misses some connected graphlets where it enumerates them."""
    grakel = pytest.importorskip("grakel")
    generator, samples = np.random.default_rng(0), 2000
    edges = [
        [pair for pair in combinations(range(12), 2) if generator.random() < density]
        for density in (0.2, 0.5, 0.8)
    ]
    counts = count_graphlets(make(*((12, each) for each in edges)))
    frequencies = counts / counts.sum(1, keepdims=True)
    near = [{i: [a + b - i for a, b in each if i in (a, b)] for i in range(12)} for each in edges]
    sampling = grakel.GraphletSampling(k=3, sampling={"n_samples": samples}, random_state=0)
    expected = sampling.fit_transform([(each, dict.fromkeys(range(12), 0)) for each in near])
    # The standard deviation of a sampled frequency is at most 0.011.
    np.testing.assert_allclose(frequencies @ frequencies.T, expected / samples**2, atol=0.03)


def test_the_kernel_is_that_of_scikit_learn(store):
    assert store.y is not None
    y, train = store.y.numpy(), np.arange(9)
    model = GK(3, gamma=(1.0,), C=(10.0,))
    model.fit(store, train, y[train])
    counts = count_graphlets(store)
    x = counts / counts.sum(1, keepdims=True)
    expected = SVC(C=10.0, gamma="scale").fit(x[train], y[train])
    assert model.machine.num_supports == len(expected.support_)
    np.testing.assert_allclose(model.machine.intercept, expected.intercept_, atol=1e-6)
    np.testing.assert_allclose(model.machine.dual, expected.dual_coef_, atol=1e-6)


def test_graphs_without_graphlets_are_fitted():
    edge = (2, [(0, 1)])
    store = make(edge, edge, edge, edge)
    model = GK(2)
    model.fit(store, np.arange(4), np.array([0, 1, 0, 0]))
    assert model.columns == 1.0
    assert np.isfinite(model.predict_proba(store, np.arange(4))).all()


def test_options_and_states_are_checked(store):
    assert store.y is not None
    for gamma in ((), (0.0,), (float("nan"),)):
        with pytest.raises(ArgumentError, match="GK: 'gamma' must be"):
            GK(2, gamma=gamma)
    model = GK(3)
    model.fit(store, np.arange(12), store.y.numpy())
    with pytest.raises(ArgumentError, match="GK: 'scale' must be positive"):
        GK(3).load_state(model.state() | {"scale": torch.zeros(1, dtype=torch.float64)})
    with pytest.raises(ArgumentError, match="GK: 'support_rows' must have the shape"):
        GK(3).load_state(model.state() | {"support_rows": torch.zeros(1, 4, dtype=torch.float64)})
