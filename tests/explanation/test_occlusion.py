"""Occlusion equals the predictions of graphs whose nodes are masked one group at a time."""

from __future__ import annotations

import pytest
import torch

from graphcaps.explanation import occlusion
from graphcaps.explanation.baselines import attribute
from graphcaps.explanation.fidelity import pyg_batches
from graphcaps.explanation.model_inputs import encode_for_model
from graphcaps.explanation.occlusion import neighbourhood_occlusion, occlude_groups
from graphcaps.explanation.pyg_explainer import GraphProbabilities, PyGBatch, groups_of_nodes
from tests.graphs import assert_equal
from tests.small_models import bonded, bonded_model, planted, train_small


def prepare(model: str) -> tuple[GraphProbabilities, PyGBatch]:
    if model == "bonds":
        fitted, store = bonded_model(), bonded()[:3]
    else:
        fitted, store = train_small(planted(), model), planted()[:3]
    encoded = encode_for_model(fitted, store)
    module = GraphProbabilities(fitted, centred=True, reference=encoded.x.mean(0))
    (graphs,) = pyg_batches(module, encoded, torch.tensor([0, 1, 2]))
    return module, graphs


@torch.no_grad()
def masked_one_by_one(module: GraphProbabilities, graphs: PyGBatch, groups: list[list[int]]) -> torch.Tensor:
    """The decrease for each group, from a prediction of the whole batch with nothing but that group masked."""
    before = module(graphs.x, graphs.edge_index, graphs.batch, graphs.edge_attr)
    decreases = []
    for nodes in groups:
        graph = int(graphs.batch[nodes[0]])
        x = graphs.x.clone()
        x[nodes] = 0
        after = module(x, graphs.edge_index, graphs.batch, graphs.edge_attr)
        decreases.append((before - after)[graph, graphs.target[graph]])
    return torch.stack(decreases)


@pytest.mark.parametrize("model", ["hgcn", "gin", "bonds"])
def test_neighbourhoods(model, monkeypatch):
    module, graphs = prepare(model)
    scores = neighbourhood_occlusion(module, graphs)
    source, target = graphs.edge_index
    groups = [[node, *target[source == node].tolist()] for node in range(graphs.x.size(0))]
    assert_equal(scores, masked_one_by_one(module, graphs, groups), "decrease", 1e-5)
    assert float(scores.abs().max()) > 1e-5
    monkeypatch.setattr(occlusion, "_MAX_NODES", 50)  # several batches, of one copy or two
    assert_equal(neighbourhood_occlusion(module, graphs), scores, "in parts", 1e-5)
    assert_equal(attribute("occlusion", module, graphs).nodes, scores, "by name", 1e-5)


def test_groups_that_overlap_and_differ_in_size():
    module, graphs = prepare("hgcn")
    groups = [[0, 3, 5], [3], [40, 41], [0, 1, 2, 3, 4, 5]]
    number = torch.tensor([index for index, nodes in enumerate(groups) for _ in nodes])
    node = torch.tensor([node for nodes in groups for node in nodes])
    order = torch.randperm(len(node), generator=torch.Generator().manual_seed(0))
    found = occlude_groups(module, graphs, number[order], node[order])
    assert_equal(found, masked_one_by_one(module, graphs, groups), "decrease", 1e-5)


def test_groups_of_nodes():
    module, graphs = prepare("hgcn")
    groups = groups_of_nodes(module, graphs)
    assert sorted(set(groups.tolist())) == list(
        range(int(groups.max()) + 1)
    )  # a gap would cost a forward pass
    scores = attribute("group-occlusion", module, graphs).nodes
    for start in (0, 20, 50, 80):
        group = (groups == groups[start]).nonzero().flatten().tolist()
        assert start in group
        expected = masked_one_by_one(module, graphs, [group])
        assert_equal(scores[group], expected.expand(len(group)), "group", 1e-5)
