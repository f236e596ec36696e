"""A fitted model predicts on new graphs of every supported type, independently of the batching."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch

import graphcaps
from graphcaps.data import FeatureRecipe, to_networkx, to_pyg, truncate_nodes
from graphcaps.data.features.truncate import TruncationWarning
from graphcaps.errors import ArgumentError
from graphcaps.inference import scorer as module
from graphcaps.inference.fitted_model import FittedModel, training_summary
from graphcaps.inference.probabilities import probabilities
from tests.graphs import random_graphs
from tests.small_models import labelled, labelled_model, planted, small_model, train_small


def with_unseen_label(graph: int, label: int = 9) -> graphcaps.GraphStore:
    """The labelled graphs, the first two nodes of one with a label that training never saw."""
    store = labelled()
    labels = store.node_labels.clone()
    labels[store.node_ptr[graph] : store.node_ptr[graph] + 2] = label
    return replace(store, name="new", node_labels=labels)


# ---------------------------------------------------------------------- scores and classes
def test_scores_are_those_of_the_model_by_hand():
    model, store = small_model(), planted()
    x = model.recipe.apply(store)
    with torch.no_grad():
        expected = model.model.eval().forward_batch(store.batch(x)).class_scores
    torch.testing.assert_close(model.scores(store), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nodes", [1, 40, 300])
@pytest.mark.parametrize("kind", ["hgcn", "gin"])
def test_scores_do_not_depend_on_the_batching(monkeypatch, kind, nodes):
    model = small_model() if kind == "hgcn" else train_small(planted(), "gin")
    expected = model.scores(planted())
    batches = []
    forward = model.model.forward_batch
    monkeypatch.setattr(
        model.model, "forward_batch", lambda batch: (batches.append(batch), forward(batch))[1]
    )
    monkeypatch.setattr(module, "_BATCH_NODES", nodes)
    monkeypatch.setattr(module, "MAX_PADDED_ROWS", 0)  # counts calls of forward_batch
    torch.testing.assert_close(model.scores(planted()), expected, rtol=1e-5, atol=1e-6)
    sizes = [(batch.num_graphs, batch.segments.num_rows) for batch in batches]
    assert all(graphs == 1 or rows <= nodes for graphs, rows in sizes)
    assert sum(graphs for graphs, _ in sizes) == len(planted())


def test_the_number_of_edges_bounds_a_batch(monkeypatch):
    model, sizes = small_model(), []
    forward = model.model.forward_batch
    monkeypatch.setattr(
        model.model, "forward_batch", lambda batch: (sizes.append(batch.num_graphs), forward(batch))[1]
    )
    monkeypatch.setattr(module, "_BATCH_ENTRIES", 1)
    monkeypatch.setattr(module, "MAX_PADDED_ROWS", 0)  # counts calls of forward_batch
    model.scores(planted())
    assert sizes == [1] * len(planted())


def test_prediction_runs_in_evaluation_mode_and_leaves_the_weights_unchanged():
    model = train_small(planted(), arguments={"capsule_dim": 8, "num_capsules": (4,), "dropout": 0.5})
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    model.model.train()
    first, second = model.scores(planted()), model.scores(planted())
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert all(torch.equal(value, before[name]) for name, value in model.model.state_dict().items())


def test_predict_names_the_class_of_the_highest_score():
    store = planted()
    model = small_model()
    probability = model.predict_proba(store)
    names = model.predict(store)
    assert probability.shape == (30, 3)
    assert probability.dtype == np.float64
    np.testing.assert_allclose(probability.sum(-1), 1, atol=1e-12)
    best = model.scores(store).argmax(-1)
    assert names.tolist() == [store.class_names[index] for index in best]


def test_lengths_are_divided_by_their_sum_and_logits_go_through_softmax():
    scores = torch.tensor([[0.2, 0.6], [0.0, 0.0]])
    np.testing.assert_allclose(probabilities(scores, "lengths"), [[0.25, 0.75], [0.5, 0.5]], atol=1e-7)
    odds = probabilities(torch.tensor([[0.0, np.log(3.0)], [1000.0, 0.0]]), "logits")
    np.testing.assert_allclose(odds, [[0.25, 0.75], [1, 0]], atol=1e-7)


def test_scores_are_follows_the_model():
    assert small_model().score_kind == "lengths"
    assert train_small(planted(), "gin").score_kind == "logits"


def test_max_nodes_is_applied_after_the_features_are_computed():
    store = planted()
    model = train_small(store, max_nodes=20)
    capped = truncate_nodes(store, 20, model.recipe.apply(store))
    with torch.no_grad():
        expected = model.model.forward_batch(capped.store.batch(capped.x)).class_scores
    with pytest.warns(TruncationWarning) as caught:
        scores = model.scores(store)
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
    (warning,) = caught
    count, first = int((store.sizes > 20).sum()), int((store.sizes > 20).nonzero()[0])
    assert str(warning.message) == (
        f"FittedModel: {count} of {len(store)} graphs are truncated. Graph {first}: it has {int(store.sizes[first])} "
        "nodes, of which the model reads the 20 of highest degree."
    )
    with pytest.warns(TruncationWarning, match="FittedModel: 1 of 1 graphs is truncated"):
        model.predict(store[[first]])
    assert not torch.allclose(expected, replace(model, config=small_model().config).scores(store))


# ---------------------------------------------------------------------- types of graphs
def test_torch_geometric_and_networkx_graphs_score_as_the_store():
    store, model = labelled(), labelled_model()
    expected = model.scores(store)
    listed = to_pyg(store)
    for graphs in (listed, to_pyg(store, as_batch=True), iter(listed)):
        torch.testing.assert_close(model.scores(graphs), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.scores(listed[3]), expected[3:4], rtol=1e-5, atol=1e-6)
    drawn = [to_networkx(store, graph) for graph in range(3)]
    torch.testing.assert_close(model.scores(drawn), expected[:3], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.scores(drawn[1]), expected[1:2], rtol=1e-5, atol=1e-6)


def test_classes_of_the_graphs_are_ignored():
    graphs = to_pyg(planted())[:2]
    graphs[0].y = torch.tensor([0.5, 2.0])
    graphs[1].y = None
    assert small_model().predict(graphs).shape == (2,)
    assert graphs[0].y.tolist() == [0.5, 2.0]  # the caller's object is as it was
    drawn = to_networkx(planted(), 0)
    drawn.graph["y"] = object()
    assert small_model().predict(drawn).shape == (1,)


def test_text_labels_of_a_model_with_numbers_are_unseen():
    drawn = nx.path_graph(3)
    nx.set_node_attributes(drawn, "C", "label")
    nx.set_node_attributes(drawn, (0.5, 1.0), "attributes")
    with pytest.raises(
        ArgumentError, match="got graph 0 of graphs: node label 'C', on 3 nodes, not seen in tr"
    ):
        labelled_model().predict(drawn)


@pytest.mark.parametrize(
    ("graphs", "type_name"),
    [([], "none"), (3, "int"), ([1, "x"], "int, str"), (None, "NoneType")],
)
def test_other_types_are_rejected(graphs, type_name):
    with pytest.raises(ArgumentError, match=f"FittedModel: 'graphs' must .*, got {type_name}"):
        small_model().predict(graphs)


# ---------------------------------------------------------------------- graphs that do not fit
def test_graphs_with_other_columns_are_rejected():
    with pytest.raises(ArgumentError) as caught:
        labelled_model().predict(planted())
    assert str(caught.value) == (
        "FittedModel: 'graphs' must have 1 node label column, as the graphs that the model was trained on, "
        "got no node label columns in planted-parts-easy."
    )
    with pytest.raises(ArgumentError, match="must have no node label columns"):
        small_model().predict(labelled())
    with pytest.raises(ArgumentError, match=r"must have 2 node attribute columns, .* got no node attribute"):
        labelled_model().predict(replace(labelled(), node_attributes=None))


def test_an_unseen_label_is_rejected_with_its_position(monkeypatch):
    monkeypatch.setattr(module, "_BATCH_NODES", 1)  # the position is that in the store, not in the batch
    with pytest.raises(
        ArgumentError, match="got graph 7 of new: node label 9, on 2 nodes, not seen in training"
    ):
        labelled_model().predict(with_unseen_label(7))


def test_an_unseen_label_can_be_ignored_with_one_warning(monkeypatch):
    monkeypatch.setattr(module, "_BATCH_NODES", 1)
    model, store = labelled_model(), with_unseen_label(7)
    with pytest.warns(
        UserWarning, match="encoded as zeros in 1 of 30 graphs. Graph 7: node label 9, on 2 nodes"
    ) as caught:
        scores = model.scores(store, unseen="ignore")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = model.recipe.apply(store, unseen="ignore")
    with torch.no_grad():
        expected = model.model.forward_batch(store.batch(x)).class_scores
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError, match="'unseen' must be 'refuse' or 'ignore', got 'zero'"):
        model.scores(store, unseen="zero")


def test_non_finite_attributes_are_rejected():
    store = labelled()
    attributes = store.node_attributes.clone()
    attributes[5, 1] = float("nan")
    with pytest.raises(ArgumentError, match="attribute 1 of node 5 is nan, which is not a finite number"):
        labelled_model().predict(replace(store, node_attributes=attributes), unseen="ignore")


def test_non_finite_scores_are_rejected(monkeypatch):
    store = labelled()
    attributes = store.node_attributes.clone()
    attributes[store.node_ptr[3]] = 3e38  # finite, and its square is not
    with pytest.raises(
        ArgumentError, match=r"graph 3 of labelled: attribute 0 of node 0 is 3.*, too large to compute"
    ):
        labelled_model().predict(replace(store, node_attributes=attributes))
    monkeypatch.setattr("graphcaps.data.features.compatibility._MAX_FLOAT32", torch.inf)  # whatever the cause
    with pytest.raises(ArgumentError, match="give finite scores, got NaN or infinity for graph 3"):
        labelled_model().predict(replace(store, node_attributes=attributes))


# ---------------------------------------------------------------------- construction and description
def test_mismatched_arguments_are_rejected():
    model = small_model()
    with pytest.raises(ArgumentError, match="'recipe' must be fitted"):
        replace(model, recipe=FeatureRecipe())
    with pytest.raises(ArgumentError, match="'recipe' must produce the model's 8 input columns, got"):
        replace(model, recipe=labelled_model().recipe)
    for names in (("a", "b"), ("a", "b", "b")):
        with pytest.raises(ArgumentError, match="'class_names' must be 3 different names"):
            replace(model, class_names=names)
    with pytest.raises(ArgumentError, match="'model' must be a single model, got 2 replicas"):
        replace(model, model=graphcaps.nn.HGCN(8, 3, lead=(2,)))


def test_info_is_json_and_complete():
    info = labelled_model().info()
    assert json.loads(json.dumps(info, allow_nan=False)) == info
    assert info["model"]["name"] == "hgcn"
    assert info["model"]["formulation"] == "released"
    assert info["model"]["parameters"] == sum(p.numel() for p in labelled_model().model.parameters())
    assert info["class_names"] == ["ring-star", "ring-clique", "ring-ladder"]
    assert info["expects"]["node_labels"] == [[0, 1, 2, 3]]
    assert info["expects"]["node_attributes"] == 2
    assert info["training"]["dataset"] == "labelled"
    assert info["training"]["class_counts"] == {"ring-star": 10, "ring-clique": 10, "ring-ladder": 10}
    assert info["versions"]["graphcaps"] == graphcaps.__version__


def test_training_summary_counts():
    store = random_graphs([2, 4, 6], seed=1).as_store()
    assert training_summary(store, seed=3) == {
        "dataset": "test",
        "graphs": 3,
        "nodes_mean": 4.0,
        "nodes_max": 6,
        "class_counts": {"0": 2, "1": 1},
        "seed": 3,
    }


def test_names_are_public():
    assert graphcaps.FittedModel is FittedModel
    assert repr(small_model()).startswith("FittedModel('hgcn', classes=(ring-star, ")


def test_other_types_of_paths_and_configurations_are_rejected():
    from graphcaps.training.final_training import train_final

    for load in (graphcaps.load, graphcaps.HGCNClassifier.load):
        with pytest.raises(ArgumentError, match=r"^load: 'path' must be text or a path, got None\.$"):
            load(None)
    with pytest.raises(ArgumentError, match=r"^load_dataset: 'name' must be text or a path, got 5\.$"):
        graphcaps.load_dataset(5)
    for owner, run in (("cross_validate", graphcaps.cross_validate), ("train", train_final)):
        with pytest.raises(
            ArgumentError, match=f"^{owner}: 'config' must be a RunConfig, got dict. Convert a dict"
        ):
            run(planted(), {"epochs": 1})
        with pytest.raises(
            ArgumentError, match=f"^{owner}: 'store' must be a GraphStore, got list. Convert graphs"
        ):
            run([planted()[0]], small_model().config)
