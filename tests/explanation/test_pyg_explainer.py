"""HGCN under torch-geometric's Explainer: its metrics and its own algorithms run on it."""

from typing import Any

import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.metric import fidelity, unfaithfulness

from graphcaps.errors import ArgumentError
from graphcaps.explanation import CapsuleExplainer, GraphProbabilities, explain_store
from graphcaps.explanation.attributions import reference_features
from graphcaps.explanation.baselines import MODEL_CONFIG
from graphcaps.explanation.model_inputs import encode_for_model
from graphcaps.explanation.pyg_explainer import node_scores
from graphcaps.models.gin import GIN
from graphcaps.ops.edge_kinds import kind_labels
from tests.graphs import assert_equal
from tests.small_models import bonded, bonded_model, planted, small_model


def _given(graphs: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features, edges and batch of the first graphs."""
    encoded = encode_for_model(small_model(), planted()[:graphs])
    store = encoded.store
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    other = store.neighbours + store.node_ptr[store.node_graph[source]]
    return encoded.x, torch.stack([source, other]), store.node_graph


def _explainer(algorithm: Any, **settings: Any) -> Explainer:
    settings = {
        "node_mask_type": "object",
        "edge_mask_type": "object",
        "model_config": MODEL_CONFIG,
    } | settings
    model = settings.pop("model", None) or GraphProbabilities(small_model())
    return Explainer(model, algorithm, explanation_type="model", **settings)


def test_masks_are_our_scores_and_the_metrics_run() -> None:
    x, edge_index, batch = _given()
    explainer = _explainer(CapsuleExplainer())
    explanation = explainer(x, edge_index, batch=batch)
    assert explanation.validate()
    ours = explain_store(small_model(), planted()[:6])
    assert torch.equal(explanation.target, ours.predicted)
    for graph in range(6):
        scores = ours[graph].node_scores.clamp_min(0)
        mask = explanation.node_mask[batch == graph].squeeze(-1)
        assert_equal(mask, scores / scores.max(), "mask", 1e-4)
    assert_equal(explanation.edge_mask, explanation.node_mask.squeeze(-1)[edge_index].mean(0), "edge mask")
    plus, minus = fidelity(explainer, explanation)
    assert 0 <= plus <= 1
    assert 0 <= minus <= 1
    assert 0 <= unfaithfulness(explainer, explanation) <= 1


def test_one_graph_needs_no_batch_and_an_index_leaves_the_others_out() -> None:
    x, edge_index, batch = _given()
    alone = _explainer(CapsuleExplainer(), edge_mask_type=None)
    full = alone(x, edge_index, batch=batch)
    assert "edge_mask" not in full
    rows = batch == 0
    inside = edge_index[:, rows[edge_index[0]]]
    assert_equal(alone(x[rows], inside).node_mask, full.node_mask[rows], "alone", 1e-4)
    second = alone(x, edge_index, batch=batch, index=1)
    assert_equal(second.node_mask[batch == 1], full.node_mask[batch == 1], "index")
    assert float(second.node_mask[batch != 1].abs().max()) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"node_mask_type": "attributes"},
        {"model_config": MODEL_CONFIG | {"task_level": "node"}},
        {"model_config": {"mode": "regression", "task_level": "graph"}},
    ],
)
def test_what_it_does_not_do_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="does not support"):
        _explainer(CapsuleExplainer(), **settings)


def test_probabilities_are_the_model_s() -> None:
    x, edge_index, batch = _given()
    expected = torch.from_numpy(small_model().predict_proba(planted()[:6])).float()
    assert_equal(GraphProbabilities(small_model())(x, edge_index, batch), expected, "raw", 1e-5)
    centred = GraphProbabilities(small_model(), centred=True)
    assert_equal(centred(centred.centre(x), edge_index, batch), expected, "centred", 1e-5)
    blank = reference_features(small_model().model).expand_as(x)
    masked = centred(torch.zeros_like(x), edge_index, batch)
    assert_equal(masked, GraphProbabilities(small_model())(blank, edge_index, batch), "blank", 1e-5)
    ours = node_scores(small_model().model, x, edge_index, batch, target=expected.argmax(-1))
    same = node_scores(centred, centred.centre(x), edge_index, batch, target=expected.argmax(-1))
    assert_equal(same, ours, "scores", 1e-4)


def test_edge_masks_reach_the_model() -> None:
    x, edge_index, batch = _given(1)
    explainer = _explainer(CapsuleExplainer())
    without = (edge_index[0] != 0) & (edge_index[1] != 0)
    masked = explainer.get_masked_prediction(x, edge_index, None, without.float(), batch=batch)
    cut = explainer.get_prediction(x, edge_index[:, without], batch=batch)
    full = explainer.get_prediction(x, edge_index, batch=batch)
    assert_equal(masked, cut, "without the edges of node 0", 1e-5)
    assert float((full - cut).abs().max()) > 1e-4
    assert_equal(explainer.get_prediction(x, edge_index, batch=batch), full, "mask taken off")


def test_explainers_leave_the_model_as_it_was() -> None:
    x, edge_index, batch = _given(1)
    before = {name: value.clone() for name, value in small_model().model.state_dict().items()}
    explainer = _explainer(GNNExplainer(epochs=3))
    explanation = explainer(x, edge_index, batch=batch)
    assert explanation.node_mask.shape == (x.size(0), 1)
    assert float(explanation.edge_mask.std()) > 0  # weights of edges got a gradient
    assert not small_model().model.training
    for name, value in small_model().model.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    "algorithm", [CapsuleExplainer(), GNNExplainer(epochs=3)], ids=["capsules", "gnnexplainer"]
)
def test_edge_labels_are_passed_on(algorithm: Any) -> None:
    encoded = encode_for_model(bonded_model(), bonded()[:1])
    store, network = encoded.store, bonded_model().model
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    edge_index = torch.stack([source, store.neighbours.long()])
    labels = kind_labels(store.edge_kind, network.edge_kinds)
    explainer = _explainer(algorithm, model=GraphProbabilities(bonded_model()))
    explanation = explainer(encoded.x, edge_index, edge_attr=labels)
    assert explanation.validate()
    assert int(explanation.target) == int(explain_store(bonded_model(), bonded()[:1]).predicted)
    if isinstance(algorithm, CapsuleExplainer):
        scores = explain_store(bonded_model(), bonded()[:1])[0].node_scores.clamp_min(0)
        assert_equal(explanation.node_mask.squeeze(-1), scores / scores.max(), "mask", 1e-4)
    with pytest.raises(ArgumentError, match=r"'edge_attr' must hold the labels of the edges"):
        explainer(encoded.x, edge_index)


def test_a_probability_of_zero_has_a_logarithm_with_a_finite_gradient() -> None:
    """Explainers minimise −log p. Logits that differ by a thousand give p = 0 in float32, and a gradient of NaN."""
    torch.manual_seed(0)
    network = GIN(3, 2, hidden=4).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(30)
    module = GraphProbabilities(network)
    x = torch.randn(4, 3, requires_grad=True)
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    p = module(x, edges)
    assert float(network(x.detach(), edges).class_scores.softmax(-1).min().detach()) == 0
    assert 0 < float(p.min().detach()) < 1e-18
    p.min().log().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
