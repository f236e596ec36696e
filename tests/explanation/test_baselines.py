"""Attribution methods against slow forms, on HGCN and on GIN."""

from __future__ import annotations

import pytest
import torch

from graphcaps.errors import ArgumentError
from graphcaps.explanation.baselines import ATTRIBUTION_METHODS, attribute
from graphcaps.explanation.explainer import explain_encoded
from graphcaps.explanation.explanation_metrics import CAPSULE_METHODS
from graphcaps.explanation.fidelity import pyg_batches
from graphcaps.explanation.model_inputs import encode_for_model, unwrap_hgcn
from graphcaps.explanation.pyg_explainer import GraphProbabilities, PyGBatch
from tests.graphs import assert_equal
from tests.small_models import planted, train_small

PAPER = {"capsule_dim": 8, "num_capsules": (4,), "formulation": "paper"}  # gradients through the routing


def prepare(model: str, graphs: int = 3) -> tuple[GraphProbabilities, PyGBatch]:
    fitted = train_small(planted(), model, PAPER if model == "hgcn" else None)
    encoded = encode_for_model(fitted, planted()[:graphs])
    module = GraphProbabilities(fitted, centred=True, reference=encoded.x.mean(0)).double()
    (batch,) = pyg_batches(module, encoded, torch.arange(graphs) % 3)
    x = batch.x.double()
    return module, PyGBatch(x, batch.edge_index, batch.batch, batch.target)


def probability(module: GraphProbabilities, graphs: PyGBatch, x: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(graphs.target.numel())
    return module(x, graphs.edge_index, graphs.batch)[rows, graphs.target]


@pytest.mark.parametrize("model", ["hgcn", "gin"])
def test_gradient_times_input_is_the_directional_derivative(model):
    """The score of a node is the derivative along its own features, here by central differences."""
    module, graphs = prepare(model)
    scores = attribute("gradient", module, graphs).nodes
    step = 1e-5
    for node in (0, 7, 40, 90):
        change = torch.zeros_like(graphs.x)
        change[node] = step * graphs.x[node]
        with torch.no_grad():
            up, down = (probability(module, graphs, graphs.x + sign * change).sum() for sign in (1, -1))
        assert_equal(scores[node], (up - down) / (2 * step), f"node {node}", 1e-6)


@pytest.mark.parametrize("model", ["hgcn", "gin"])
def test_integrated_gradients_add_up_to_the_difference(model, monkeypatch):
    monkeypatch.setattr("graphcaps.explanation.baselines.INTEGRATION_STEPS", 300)
    module, graphs = prepare(model)
    scores = attribute("integrated-gradients", module, graphs).nodes
    with torch.no_grad():
        difference = probability(module, graphs, graphs.x) - probability(module, graphs, 0 * graphs.x)
    assert float(difference.abs().max()) > 1e-3
    total = torch.zeros_like(difference).index_add_(0, graphs.batch, scores)
    assert_equal(total, difference, "completeness", 5e-3)


@pytest.mark.parametrize("model", ["hgcn", "gin"])
def test_every_method_scores_every_node_and_edge(model, monkeypatch):
    monkeypatch.setattr("graphcaps.explanation.baselines.GNN_EXPLAINER_EPOCHS", 2)
    monkeypatch.setattr("graphcaps.explanation.baselines.PG_EXPLAINER_EPOCHS", 2)
    fitted = train_small(planted(), model)
    encoded = encode_for_model(fitted, planted()[:3])
    module = GraphProbabilities(fitted, centred=True)
    (graphs,) = pyg_batches(module, encoded, torch.tensor([0, 1, 2]))
    state = {name: value.clone() for name, value in module.state_dict().items()}
    for name in ATTRIBUTION_METHODS:
        if model == "gin" and name in CAPSULE_METHODS:
            with pytest.raises(ArgumentError, match="be an HGCN"):
                attribute(name, module, graphs)
            continue
        one = attribute(name, module, graphs, seed=3)
        assert (one.nodes.shape, one.edges.shape) == ((graphs.x.size(0),), (graphs.edge_index.size(1),)), name
        assert float(one.nodes.std()) > 0, name
        again = attribute(name, module, graphs, seed=3)
        assert torch.equal(one.nodes, again.nodes), name
        assert torch.equal(one.edges, again.edges), name
        key = graphs.edge_index[0] * 1000 + graphs.edge_index[1]
        reverse = graphs.edge_index[1] * 1000 + graphs.edge_index[0]
        assert torch.equal(one.edges[key.argsort()], one.edges[reverse.argsort()]), name  # both directions
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    if model == "hgcn":
        explanations = explain_encoded(unwrap_hgcn(fitted), encoded, target=graphs.target)
        assert_equal(attribute("capsules", module, graphs).nodes, explanations.node_scores, "capsules", 1e-4)


def test_pg_explainer_scores_edges_and_nodes_have_their_highest_edge(monkeypatch):
    monkeypatch.setattr("graphcaps.explanation.baselines.PG_EXPLAINER_EPOCHS", 2)
    module, graphs = prepare("gin")
    one = attribute("pgexplainer", module, graphs)
    for node in (0, 30, 60):
        edges = one.edges[graphs.edge_index[0] == node]
        assert float(one.nodes[node]) == float(edges.max())


def test_embeddings_depend_on_neighbours():
    module, graphs = prepare("gin")
    rows = module.embeddings(graphs.x, graphs.edge_index, graphs.batch)
    assert rows.size(0) == graphs.x.size(0)
    changed = graphs.x.clone()
    neighbour = int(graphs.edge_index[1][graphs.edge_index[0] == 0][0])
    changed[neighbour] += 1
    assert not torch.equal(module.embeddings(changed, graphs.edge_index, graphs.batch)[0], rows[0])


def test_probabilities_of_logits_sum_to_one():
    module, graphs = prepare("gin")
    probabilities = module(graphs.x, graphs.edge_index, graphs.batch)
    output = module.network(graphs.x + module.reference, graphs.edge_index, graphs.batch)
    assert_equal(probabilities, output.class_scores.softmax(-1), "softmax", 1e-12)
