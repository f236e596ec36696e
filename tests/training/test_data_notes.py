"""Sentences on what a training does not read of its graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps import HGCNClassifier
from graphcaps.config import FeatureConfig, RunConfig
from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.structures.eigen_modes import EigenLevels
from graphcaps.evaluation import cross_validate
from graphcaps.training.data_notes import describe_reading
from graphcaps.training.final_training import train_final
from tests.small_models import planted

CUT = "own: 1 of 2 graphs has more than 4 nodes; 43 % of all nodes, those of lowest degree, are left out; "


@pytest.fixture
def store():
    path = torch.tensor([list(range(9)), list(range(1, 10))])
    graphs = [GraphArrays(10, path, "a"), GraphArrays(4, path[:, :3], "b")]
    return store_from_graphs(graphs, "own")


def test_nodes_that_are_left_out_are_counted(store):
    assert describe_reading(store, RunConfig()) == ()
    assert describe_reading(store, RunConfig(features=FeatureConfig(max_nodes=10))) == ()
    assert describe_reading(store, RunConfig(features=FeatureConfig(max_nodes=4))) == (
        f"{CUT}--max-nodes 0 keeps all.",
    )
    few = RunConfig(features=FeatureConfig(max_nodes=9))
    assert "7 % of all nodes" in describe_reading(store, few)[0]


def test_a_sampled_reconstruction_is_said(store):
    config = RunConfig(model_arguments={"reconstruct_up_to": 5})
    sentence = (
        "own: 1 of 2 graphs has more than 5 nodes; its reconstruction loss is estimated from sampled pairs."
    )
    assert describe_reading(store, config) == (sentence,)
    cut = replace(config, features=FeatureConfig(max_nodes=5))
    assert sentence not in describe_reading(store, cut)


def test_unused_edge_labels_are_said():
    edges = torch.tensor([[0], [1]])
    store = store_from_graphs(
        [GraphArrays(2, edges, y, edge_labels=torch.ones(1, 1).long()) for y in "ab"], "own"
    )
    (sentence,) = describe_reading(store, RunConfig())
    assert sentence.startswith(
        "own: edge labels are not used by hgcn with this preset; edge_labels under [features]"
    )
    assert describe_reading(store, RunConfig(features=FeatureConfig(edge_labels="counts"))) == ()
    for model in ("wl-forest", "features-trees"):
        assert describe_reading(store, RunConfig(model=model)) == (
            f"own: edge labels are not used by {model}.",
        )
    # It reads the molecule, bonds included.
    assert describe_reading(store, RunConfig(model="ecfp-forest")) == ()
    assert describe_reading(replace(store, catalogue_name="MUTAG"), RunConfig()) == ()


def test_models_and_records_keep_the_sentence():
    store = planted()[:12]
    config = RunConfig(
        model="gin", features=FeatureConfig(degree_onehot=2, propagation=0, max_nodes=20)
    ).with_training(epochs=1)
    note = describe_reading(store, config)[0]
    assert "more than 20 nodes" in note
    assert note in train_final(store, config, device="cpu").model.training["notes"]
    assert note in cross_validate(store, config, folds=3, device="cpu").notes


def test_classes_that_differ_in_case_only_are_said(store) -> None:
    alike = replace(store, class_names=("No", "no"))
    (sentence,) = describe_reading(alike, RunConfig())
    assert sentence == (
        "own: one class may be written in several ways: 'No' and 'no' differ in case only; "
        "write it in one way in the data."
    )
    mixed = replace(store, class_names=("1", "no"))
    assert describe_reading(mixed, RunConfig()) == (
        "own: one class may be written in several ways: '1' is a number beside the text 'no'; "
        "write it in one way in the data.",
    )
    with pytest.warns(UserWarning, match="'No' and 'no' differ in case only"):
        HGCNClassifier(epochs=1, device="cpu").fit(planted()[:12], ["No", "no"] * 6)


def test_blocks_of_large_graphs_are_said(store, monkeypatch):
    monkeypatch.setattr(EigenLevels, "sparse_above", 5)
    sentence = (
        "own: 1 of 2 graphs has more than 5 nodes; eigenpool clusters it in blocks, "
        "which a sparse eigensolver finds."
    )
    assert describe_reading(store, RunConfig(model="eigenpool")) == (sentence,)
    cut = RunConfig(model="eigenpool", features=FeatureConfig(max_nodes=5))
    assert sentence not in describe_reading(store, cut)
    assert describe_reading(store, RunConfig(model="cliquepool")) == ()


@pytest.mark.parametrize("model", ["wl", "wl-oa", "dgk", "wl-forest"])
def test_attributes_in_place_of_labels_are_named(store, model):
    attributed = replace(store, node_attributes=torch.rand(store.num_nodes, 2))
    expected = (
        f"own: node attributes are not used by {model}, which reads labels: without them all nodes start "
        "alike, and it sees the edges alone."
    )
    assert describe_reading(attributed, RunConfig(model=model)) == (expected,)
    labelled = replace(attributed, node_labels=torch.ones(store.num_nodes, 1, dtype=torch.long))
    (note,) = describe_reading(labelled, RunConfig(model=model))
    assert note == f"own: node attributes are not used by {model}."
    assert not describe_reading(replace(attributed, catalogue_name="MUTAG"), RunConfig(model=model))
    assert not describe_reading(labelled, RunConfig(model="features-trees"))
    assert not describe_reading(labelled, RunConfig(model="majority"))


def test_models_of_edges_name_what_they_do_not_read(store):
    labels = torch.ones(store.num_nodes, 1, dtype=torch.long)
    both = replace(store, node_attributes=torch.rand(store.num_nodes, 2), node_labels=labels)
    for model in ("gk", "awe", "ldp-forest"):
        (note,) = describe_reading(both, RunConfig(model=model))
        assert note == f"own: node labels and node attributes are not used by {model}."
        assert not describe_reading(store, RunConfig(model=model))
