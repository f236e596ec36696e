"""Edge labels in the message passing of HGCN: they change the votes, in every form of call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN, CapsuleLayer, Context, EdgeModulation, Trunk
from graphcaps.ops import propagate
from tests.graphs import Graphs, assert_equal, random_graphs

KINDS = (3, 2)
FORMS = [
    {},
    {"context": "residual"},
    {"context": "gin"},
    {"trunk": "gine"},
    {"trunk": "gat"},
    {"parts": "blocks"},
    {"formulation": "paper"},
]


def labelled() -> tuple[Graphs, Tensor]:
    """Graphs, and two label columns of their edges, equal in both directions."""
    graphs = random_graphs([6, 9, 3])
    generator = torch.Generator().manual_seed(1)
    half = graphs.edge_index.size(1) // 2
    one_way = torch.stack([torch.randint(0, n, (half,), generator=generator) for n in KINDS], -1)
    return graphs, one_way.repeat(2, 1)


def trained(**options: object) -> HGCN:
    """A model in evaluation mode whose numbers for each label, zero at the start, are not zero."""
    torch.manual_seed(0)
    model = HGCN(5, 2, capsule_dim=8, num_capsules=(4,), edge_kinds=KINDS, **options).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith((".scale", ".shift", ".label")):
                parameter.normal_()
    return model


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_scores_depend_on_the_labels(options):
    graphs, labels = labelled()
    model = trained(**options)
    call = (graphs.x, graphs.edge_index, graphs.batch)
    scores = model(*call, edge_attr=labels).class_scores.detach()
    for column, count in enumerate(KINDS):
        other = labels.clone()
        other[:, column] = (other[:, column] + 1) % count
        changed = model(*call, edge_attr=other).class_scores.detach()
        assert float((changed - scores).abs().max()) > 1e-6


@pytest.mark.parametrize(
    "options", [{}, {"context": "residual"}, {"context": "gin"}, {"parts": "blocks"}], ids=str
)
def test_a_new_model_equals_one_without_labels(options):
    graphs, labels = labelled()
    models = []
    for kinds in ((), KINDS):
        torch.manual_seed(0)
        models.append(HGCN(5, 2, capsule_dim=8, num_capsules=(4,), edge_kinds=kinds, **options).double())
    plain = models[0](graphs.x, graphs.edge_index, graphs.batch)
    same = models[1](graphs.x, graphs.edge_index, graphs.batch, edge_attr=labels)
    assert_equal(same.class_scores, plain.class_scores)


def test_labels_reach_every_layer_of_the_context():
    graphs, labels = labelled()
    context = Context(5, 2, edge_kinds=KINDS).double()
    context(graphs.x, graphs.edge_index, edge_attr=labels).square().sum().backward()
    assert len(context.modulations) == 2
    for modulation in context.modulations:
        assert float(modulation.scale.grad.abs().max()) > 0
        assert float(modulation.shift.grad.abs().max()) > 0


def test_the_layer_begins_as_the_plain_hop():
    graphs, labels = labelled()
    layer = EdgeModulation(5, KINDS).double()
    assert_equal(layer(graphs.x, graphs.edge_index, edge_attr=labels), propagate(graphs.x, graphs.edges))
    assert "edge_kinds=(3, 2)" in repr(layer)


def test_a_graph_differs_from_another_by_one_label_only():
    """Two paths of three nodes: the model without labels cannot tell them apart, the one with labels learns it."""
    x = torch.eye(3, dtype=torch.float64).repeat(2, 1)
    edge_index, batch = torch.tensor([[0, 1, 3, 4], [1, 2, 4, 5]]), torch.tensor([0, 0, 0, 1, 1, 1])
    labels, y = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1])
    torch.manual_seed(0)
    model = HGCN(3, 2, capsule_dim=8, num_capsules=(4,), edge_kinds=2, reconstruction=False).double()
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        adam.zero_grad()
        output = model(x, edge_index, batch, edge_attr=labels, y=y)
        model.loss(output, y).total.backward()
        adam.step()
    assert output.class_scores.argmax(-1).tolist() == [0, 1]
    assert float(output.class_scores.detach().diff(dim=-1).abs().min()) > 0.3


def test_wrong_calls_are_refused():
    graphs, labels = labelled()
    call = (graphs.x, graphs.edge_index, graphs.batch)
    model = trained()
    with pytest.raises(ArgumentError, match=r"HGCN: 'edge_attr' must hold the labels of the edges, since"):
        model(*call)
    with pytest.raises(ShapeError, match=r"HGCN: 'edge_attr' must have one row per edge, \d+, got \[2, 2\]"):
        model(*call, edge_attr=labels[:2])
    with pytest.raises(
        ArgumentError, match=r"HGCN: 'edge_attr' must be None without edge_kinds, got a tensor\. Build"
    ):
        HGCN(5, 2, capsule_dim=8).double()(*call, edge_attr=labels)
    with pytest.raises(ShapeError, match=r"'edges' must have kinds, got none"):
        model.forward_batch(graphs.as_batch())


def test_options_that_exclude_each_other_are_refused():
    for options, message in (
        ({"context": "gcn"}, r"HGCN: 'context' must be one of none, residual, gated, gin, got 'gcn'"),
        ({"context": "gin", "context_layers": 0}, r"HGCN: 'context_layers' must be at least 1, got 0"),
        ({"context": "gin", "trunk": "gin"}, r"HGCN: 'context' must be 'none' beside a trunk, got 'gin'"),
        (
            {"context": "gin", "parts": "blocks"},
            r"HGCN: 'context' must be 'none' beside parts='blocks', got 'gin'",
        ),
        (
            {"edge_kinds": 3, "trunk": "gin"},
            r"Trunk: 'kind' must read edge labels: gine or gat, or a module",
        ),
        (
            {"trunk": "gine"},
            r"Trunk: 'edge_kinds' must be given for the kind 'gine', got \(\)\. Or use 'gin'",
        ),
    ):
        with pytest.raises(ArgumentError, match=message):
            HGCN(5, 2, capsule_dim=8, **options)
    with pytest.raises(ArgumentError, match=r"'edge_kinds' must be those of its trunk or context"):
        CapsuleLayer(5, 8, 4, context=Context(5, 1), edge_kinds=3)
    with pytest.raises(
        ArgumentError, match=r"EdgeModulation: 'edge_kinds' must name at least one label column"
    ):
        EdgeModulation(5, ())


def one_hot_labels(graphs: Graphs, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The edges once in each direction, and their labels; among repeated edges of a pair the first decides."""
    first: dict[tuple[int, ...], list[int]] = {}
    for pair, label in zip(graphs.edge_index.T.tolist(), labels.tolist(), strict=True):
        first.setdefault(tuple(sorted(pair)), label)
    unique = graphs.edge_index.unique(dim=1)
    one_hot = torch.zeros(unique.size(1), sum(KINDS), dtype=torch.float64)
    for row, pair in enumerate(unique.T.tolist()):
        label = first[tuple(sorted(pair))]
        one_hot[row, label[0]] = one_hot[row, KINDS[0] + label[1]] = 1
    return unique, one_hot


def by_pair(edge_index: Tensor, one_hot: Tensor) -> dict[tuple[int, ...], list[float]]:
    return {tuple(pair): row for pair, row in zip(edge_index.T.tolist(), one_hot.tolist(), strict=True)}


def test_a_trunk_passes_one_hot_labels_to_an_own_module():
    graphs, labels = labelled()
    seen = []

    class Recorder(torch.nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            seen.append((edge_index, edge_attr))
            return x

    trunk = Trunk(Recorder(), 5, edge_kinds=KINDS)
    assert_equal(trunk(graphs.x, graphs.edge_index, edge_attr=labels), graphs.x)
    assert seen[0][1].dtype == torch.float64
    assert by_pair(*seen[0]) == by_pair(*one_hot_labels(graphs, labels))
