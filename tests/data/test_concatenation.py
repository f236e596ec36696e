"""Stores are concatenated if their columns agree; what not all of them have is dropped."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest
import torch

from graphcaps.data import GraphStore, coerce
from graphcaps.data.concatenation import concat_stores
from graphcaps.data.precompute import precompute
from graphcaps.data.structures.cliques import CliqueLevels
from graphcaps.errors import GraphcapsError
from tests.small_models import planted


def people(count: int) -> GraphStore:
    """Cycles with a text label and a named attribute of each node."""
    graphs = []
    for number in range(count):
        graph = nx.cycle_graph(4 + number)
        for node, entry in graph.nodes(data=True):
            entry |= {"label": ("red", "blue")[node % 2], "age": node / 4}
        graphs.append(graph)
    return coerce(graphs).store


def test_concatenated_stores_drop_what_was_precomputed_of_one_of_them() -> None:
    store = planted()[:3]
    computed = precompute(store, CliqueLevels(num_levels=1))
    joined = concat_stores([computed, computed])
    assert computed.structure is not None
    assert joined.structure is None
    assert len(joined.batch(torch.zeros(joined.num_nodes, 1)).segments.sizes) == 6


def test_concatenated_stores_keep_names_and_shared_truth() -> None:
    store = people(4)
    assert concat_stores([store[:2], store[2:]]).label_names == store.label_names
    joined = concat_stores([planted()[:2], planted()[2:5]])
    assert joined.truth.keys() == planted().truth.keys()
    assert all(torch.equal(joined.truth[key], planted()[:5].truth[key]) for key in joined.truth)
    with pytest.raises(
        GraphcapsError, match=r"'stores' must hold stores with equally many columns of 'node_labels'"
    ):
        concat_stores([store, replace(store, node_labels=store.node_labels.repeat(1, 2), source_columns={})])


def test_smiles_stay_with_the_graphs_if_all_stores_have_them() -> None:
    pytest.importorskip("rdkit")
    store = coerce(["OCC", "C1CC1", "CN"]).store
    assert store.smiles == ("CCO", "C1CC1", "CN")
    assert concat_stores([store[:1], store[1:]]).smiles == store.smiles
    assert concat_stores([store, replace(store, smiles=None)]).smiles is None


def test_concatenated_stores_have_one_featurizer() -> None:
    store = replace(planted(), featurizer="standard")
    assert concat_stores([store[:5], store[5:]]).featurizer == "standard"
    expected = r"hold molecules that were read with the same featurizer, got standard and None\."
    with pytest.raises(GraphcapsError, match=expected):
        concat_stores([store, replace(store, featurizer=None)])


def test_stores_with_attributes_of_other_names_are_not_concatenated() -> None:
    store = people(2)
    unnamed = replace(store, source_columns={})
    assert concat_stores([unnamed, store]).column_names("node_attributes") == ("age",)
    other = replace(store, source_columns={"node_attributes": ("size",)})
    with pytest.raises(
        GraphcapsError, match=r"the same names of 'node_attributes', in one order, got age and size\."
    ):
        concat_stores([store, other])
