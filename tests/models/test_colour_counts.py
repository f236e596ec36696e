"""Counts of Weisfeiler-Lehman colours against a refinement with nested tuples."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch

from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.store import GraphStore
from graphcaps.models import colour_counts
from graphcaps.models.colour_counts import ColourVocabulary, count_colours


@pytest.fixture(scope="module")
def planted() -> GraphStore:
    store = load_dataset("planted-parts")[:30]
    labels = torch.arange(store.num_nodes).reshape(-1, 1) % torch.tensor([[2, 3]])
    return replace(store, node_labels=labels)


def tuple_colours(graph: nx.Graph, labels: list[tuple[int, ...]], iterations: int) -> list[Counter]:
    """Colours of each iteration as nested tuples, counted."""
    colours: list[object] = list(labels)
    counted = [Counter(colours)]
    for _ in range(iterations):
        colours = [
            (colours[node], tuple(sorted((colours[other] for other in graph[node]), key=repr)))
            for node in graph
        ]
        counted.append(Counter(colours))
    return counted


def test_counts_are_those_of_a_refinement_with_nested_tuples(planted):
    colours = count_colours(planted, 2)
    labels = planted.node_labels
    assert labels is not None
    expected = []
    for index in range(len(planted)):
        graph, first = to_networkx(planted, index), int(planted.node_ptr[index])
        rows = [tuple(labels[first + node].tolist()) for node in graph]
        expected.append(tuple_colours(graph, rows, 2))
    for iteration in range(3):
        columns = colours.vocabulary.iteration == iteration
        names = sorted({name for counted in expected for name in counted[iteration]}, key=repr)
        assert columns.sum() == len(names)
        table = np.array([[counted[iteration][name] for name in names] for counted in expected])
        ours = colours.counts.toarray()[:, columns]
        # The same columns in another order.
        assert sorted(map(tuple, table.T.tolist())) == sorted(map(tuple, ours.T.tolist()))


def test_colours_of_new_graphs_are_found_in_the_vocabulary(planted):
    everything = count_colours(planted, 2)
    vocabulary = everything.frequent(np.arange(20), 2, 10**6)
    alone = count_colours(planted[[25]], 2)
    assert alone.vocabulary.colour is not everything.vocabulary.colour
    expected = everything.select(np.array([25]), vocabulary).toarray()
    assert expected.any()
    assert np.array_equal(alone.select(np.array([0]), vocabulary).toarray(), expected)


def test_frequent_colours_are_those_of_most_graphs(planted):
    colours = count_colours(planted, 2)
    graphs = np.array([3, 7, 8, 20])
    occurs = (colours.counts.toarray()[graphs] > 0).sum(0)
    all_of_them = colours.frequent(graphs, 3, 10**6)
    assert len(all_of_them) == (occurs >= 3).sum() > 5
    few = colours.frequent(graphs, 3, 5)
    assert len(few) == 5
    kept = colours.vocabulary.columns_of(few)
    assert (np.diff(kept) > 0).all()
    assert occurs[kept].min() >= np.sort(occurs)[-5]


def test_an_unknown_colour_has_no_column():
    known = ColourVocabulary(np.array([0, 0, 2]), np.array([3, 9, 5], np.uint64))
    asked = ColourVocabulary(np.array([0, 0, 0, 1, 2, 2, 3]), np.array([1, 3, 10, 3, 5, 9, 5], np.uint64))
    assert known.columns_of(asked).tolist() == [-1, 0, -1, -1, 2, -1, -1]


def test_counts_are_kept_with_the_store_and_freed_with_it(planted):
    store = planted[:3]
    assert count_colours(store, 2) is count_colours(store, 2)
    assert count_colours(store, 1) is not count_colours(store, 2)
    before = len(colour_counts._counted)
    del store
    gc.collect()
    assert len(colour_counts._counted) < before


def test_graphs_without_edges_or_labels_are_counted():
    store = GraphStore(
        "bare", torch.tensor([0, 2, 5]), torch.zeros(6, dtype=torch.long), torch.zeros(0, dtype=torch.int32)
    )
    assert count_colours(store, 1).counts.toarray().tolist() == [[2, 2], [3, 3]]
