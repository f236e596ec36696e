"""Kernels on colours: exact products, and equality with grakel and with plain loops."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.models import colour_kernel
from graphcaps.models.colour_kernel import ColourKernelSVM, count_products
from graphcaps.models.wl import WL
from graphcaps.models.wl_oa import WLOA, minimum_sums


@pytest.fixture(scope="module")
def store() -> GraphStore:
    graphs = planted_parts(num_graphs=12)
    labels = (torch.arange(graphs.num_nodes) * 7 % 5 // 2).reshape(-1, 1)
    return replace(graphs, node_labels=labels)


def graph_lists(store: GraphStore) -> list[tuple[list[list[int]], list[int]]]:
    """Neighbours and label of each node of each graph."""
    graphs = []
    for graph in range(len(store)):
        one = store[graph]
        ptr = one.edge_ptr.tolist()
        neighbours = [one.neighbours[a:b].tolist() for a, b in itertools.pairwise(ptr)]
        labels = [0] * one.num_nodes if one.node_labels is None else one.node_labels[:, 0].tolist()
        graphs.append((neighbours, labels))
    return graphs


def naive_kernel(store: GraphStore, h: int, model: type[ColourKernelSVM]) -> np.ndarray:
    """The definition: colours are nested tuples, and the kernel is a sum over colours of counts."""
    histograms = []
    for neighbours, colours in graph_lists(store):
        counts: Counter[object] = Counter()
        for t in range(h + 1):
            counts.update((t, colour) for colour in colours)
            colours = [  # type: ignore[misc]
                (colour, tuple(sorted(colours[j] for j in near)))
                for colour, near in zip(colours, neighbours, strict=True)
            ]
        histograms.append(counts)
    combine = (lambda a, b: a * b) if model is WL else min
    k = np.array([[sum(combine(a[c], b[c]) for c in a) for b in histograms] for a in histograms], float)
    root = np.sqrt(np.diag(k))
    return k / np.outer(root, root)


def kernel(store: GraphStore, h: int, model: type[ColourKernelSVM]) -> np.ndarray:
    machine = model(2, iterations=(0, 1, 2, 3))
    everything = np.arange(len(store))
    rows = machine._rows(store, everything, machine._fit_columns(store, everything))
    return machine._kernel(rows, rows, (h,))


@pytest.mark.parametrize("model", [WL, WLOA])
@pytest.mark.parametrize("labelled", [True, False])
def test_kernels_equal_their_definition(store, model, labelled):
    graphs = store if labelled else replace(store, node_labels=None)
    for h in (0, 2):
        np.testing.assert_allclose(kernel(graphs, h, model), naive_kernel(graphs, h, model), atol=1e-14)


@pytest.mark.parametrize("model", [WL, WLOA])
def test_kernels_equal_grakel(store, model):
    grakel = pytest.importorskip("grakel")
    graphs = [
        (dict(enumerate(neighbours)), dict(enumerate(labels))) for neighbours, labels in graph_lists(store)
    ]
    kinds = {
        WL: lambda h: grakel.WeisfeilerLehman(
            n_iter=h, base_graph_kernel=grakel.VertexHistogram, normalize=True
        ),
        WLOA: lambda h: grakel.WeisfeilerLehmanOptimalAssignment(n_iter=h, normalize=True),
    }
    for h in (1, 3):
        # Some graphs are fitted, the others are compared with them: colours that are new in those count in their norm.
        reference = kinds[model](h)
        fitted = reference.fit_transform(graphs[:8])
        np.testing.assert_allclose(kernel(store, h, model)[:8, :8], fitted, atol=1e-12)
        machine = model(2, iterations=(h,))
        columns = machine._fit_columns(store, np.arange(8))
        new, old = (machine._rows(store, indices, columns) for indices in (np.arange(8, 12), np.arange(8)))
        np.testing.assert_allclose(
            machine._kernel(new, old, (h,)), reference.transform(graphs[8:]), atol=1e-12
        )


@pytest.mark.parametrize("model", [WL, WLOA])
def test_kernels_of_all_depths_are_those_of_each(store, model):
    machine = model(2, iterations=(3, 0, 2))
    columns = machine._fit_columns(store, np.arange(8))
    left, right = (machine._rows(store, indices, columns) for indices in (np.arange(8, 12), np.arange(8)))
    series = list(machine._kernels([left, right], right))
    assert machine.settings == [(0,), (2,), (3,)]
    for setting, (between, within) in zip(machine.settings, series, strict=True):
        assert np.array_equal(between, machine._kernel(left, right, setting))
        assert np.array_equal(within, machine._kernel(right, right, setting))


@pytest.mark.parametrize("fraction", [0.0, 0.3, 2.0])
def test_dense_and_sparse_columns_give_the_same_products(monkeypatch: pytest.MonkeyPatch, fraction):
    monkeypatch.setattr(colour_kernel, "_DENSE_FRACTION", fraction)
    monkeypatch.setattr(colour_kernel, "_STEP_ENTRIES", 20)
    generator = np.random.default_rng(0)
    left, right = (np.maximum(generator.integers(-4, 6, (n, 9)), 0).astype(float) for n in (7, 5))
    assert np.array_equal(count_products(csr_array(left), csr_array(right)), left @ right.T)
    smallest = np.minimum(left[:, None], right).sum(-1)
    assert np.array_equal(minimum_sums(csr_array(left), csr_array(right)), smallest)


def test_products_of_nothing_are_zero():
    none = csr_array((3, 0))
    assert count_products(none, csr_array((2, 0))).tolist() == [[0, 0]] * 3
    assert minimum_sums(csr_array((3, 4)), csr_array((2, 4))).tolist() == [[0, 0]] * 3
