"""Hashes of graphs: independent of store and node order, different for what a model reads differently."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.data import FeatureRecipe, GraphStore, to_networkx
from graphcaps.data.coercion import coerce
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.features.compatibility import check_graphs
from graphcaps.data.quality.graph_hashes import graph_hashes
from tests.small_models import labelled

EDGES = FeatureRecipe(edge_labels="counts")


def weighted(store: GraphStore, weight: float) -> GraphStore:
    return replace(store, edge_weight=torch.full((store.neighbours.numel(),), weight))


def permuted(store: GraphStore, graph: int, seed: int) -> GraphStore:
    """One graph with its nodes in another order."""
    import networkx as nx

    one = to_networkx(store, graph)
    order = np.random.default_rng(seed).permutation(len(one)).tolist()
    moved = nx.relabel_nodes(one, dict(enumerate(order)))
    ordered = nx.Graph()
    ordered.add_nodes_from((node, moved.nodes[node]) for node in range(len(moved)))
    ordered.add_edges_from(moved.edges(data=True))
    return coerce(ordered).store


def test_hashes_do_not_depend_on_the_other_graphs_of_a_store() -> None:
    store = planted_parts(num_graphs=30)
    hashes = graph_hashes(store, FeatureRecipe())
    assert len(np.unique(hashes)) == 30
    chosen = [7, 3, 20]
    np.testing.assert_array_equal(graph_hashes(store[chosen], FeatureRecipe()), hashes[chosen])
    np.testing.assert_array_equal(
        graph_hashes(concat_stores([store[5], store[5]]), FeatureRecipe()), hashes[[5, 5]]
    )


def test_hashes_do_not_depend_on_the_order_of_nodes() -> None:
    store = replace(labelled(), node_attributes=None)
    hashes = graph_hashes(store, FeatureRecipe())
    for graph in range(4):
        other = permuted(store, graph, seed=graph)
        np.testing.assert_array_equal(graph_hashes(other, FeatureRecipe()), hashes[[graph]])


def test_one_molecule_has_one_hash_however_it_is_written() -> None:
    pytest.importorskip("rdkit")
    written = ["OCC", "CCO", "C(O)C", "[CH3][CH2][OH]", "CCN"]
    hashes = graph_hashes(coerce(written).store, EDGES)
    assert len(np.unique(hashes[:4])) == 1
    assert hashes[4] != hashes[0]


def test_edge_labels_count_if_the_recipe_reads_them() -> None:
    pytest.importorskip("rdkit")
    store = coerce(["C1CCCCC1", "C1=CCCCC1"]).store
    store = replace(store, node_labels=store.node_labels[:, :1])
    plain, with_edges = graph_hashes(store, FeatureRecipe()), graph_hashes(store, EDGES)
    assert plain[0] == plain[1]
    assert with_edges[0] != with_edges[1]
    # A recipe that reads nothing belongs to a model that reads something else: everything counts.
    nothing = FeatureRecipe(labels=False, attributes=False)
    assert len(np.unique(graph_hashes(store, nothing))) == 2


def test_labels_and_attributes_count_if_the_recipe_reads_them() -> None:
    store = labelled()
    labels, attributes = store.node_labels.clone(), store.node_attributes.clone()
    labels[0], attributes[0, 0] = labels[0] + 1, attributes[0, 0] + 1
    changed = replace(store, node_labels=labels, node_attributes=attributes)
    for recipe, differs in (
        (FeatureRecipe(), True),
        (FeatureRecipe(attributes=False), True),
        (FeatureRecipe(labels=False), True),
        (FeatureRecipe(labels=False, attributes=False, edge_labels="counts"), False),
    ):
        equal = graph_hashes(store, recipe) == graph_hashes(changed, recipe)
        assert equal[1:].all()
        assert equal[0] != differs


def test_precision_of_attributes_and_missing_weights_do_not_count() -> None:
    store, recipe = labelled(), FeatureRecipe()
    hashes = graph_hashes(store, recipe)
    double = replace(store, node_attributes=store.node_attributes.double())
    np.testing.assert_array_equal(graph_hashes(double, recipe), hashes)
    np.testing.assert_array_equal(graph_hashes(weighted(store, 1.0), recipe), hashes)
    assert not (graph_hashes(weighted(store, 2.0), recipe) == hashes).any()


def test_empty_stores_and_graphs_without_nodes() -> None:
    store = planted_parts(num_graphs=3)
    assert len(graph_hashes(store[[]], FeatureRecipe())) == 0
    empty = GraphStore("empty", torch.tensor([0, 0]), torch.tensor([0]), torch.empty(0, dtype=torch.int32))
    single = GraphStore("one", torch.tensor([0, 1]), torch.tensor([0, 0]), torch.empty(0, dtype=torch.int32))
    assert graph_hashes(empty, FeatureRecipe())[0] != graph_hashes(single, FeatureRecipe())[0]


def test_mutag_has_as_many_hashes_as_distinguishable_graphs(shared_data) -> None:
    from graphcaps.data.quality.weisfeiler_lehman import wl_graph_colours

    store = graphcaps.load_dataset("MUTAG", root=shared_data)
    assert len(np.unique(graph_hashes(store, FeatureRecipe()))) == len(np.unique(wl_graph_colours(store)))


def test_values_that_no_training_molecule_has_count_as_the_model_reads_them() -> None:
    pytest.importorskip("rdkit")
    recipe = FeatureRecipe(edge_labels="counts").fit(coerce(["CCO", "CCN", "C[Pt]C"]).store)
    new = coerce(["CCI", "C#N", "CCO"]).store
    checked = check_graphs(new, recipe)
    assert set(checked.others) == {0, 1}
    np.testing.assert_array_equal(graph_hashes(new, recipe), graph_hashes(checked.store, recipe))
