"""Trunk: message passing of torch-geometric before the linear votes."""

import pytest
import torch
from torch import Tensor, nn

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import HGCN, Trunk
from graphcaps.ops import edge_table
from tests.graphs import assert_equal, random_graphs


class _Identity(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


class _Narrow(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x[:, :1]


@pytest.mark.parametrize("kind", ["gin", "sage", "gat"])
def test_trunk_equals_torch_geometric_layers(kind: str) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9])
    trunk = Trunk(kind, 5, num_layers=2).double()
    actual = trunk(graphs.x, graphs.edges, graphs.segments)
    stack = trunk.replicas[0].layers
    expected = stack[1](
        stack[0](graphs.x, graphs.edge_index.unique(dim=1)).relu(), graphs.edge_index.unique(dim=1)
    )
    assert_equal(actual, expected)
    assert float((actual - graphs.x).detach().abs().max()) > 1e-3


@pytest.mark.parametrize("kind", ["gin", "sage", "gat"])
def test_factored_and_naive_routing_are_equal_with_a_trunk(kind: str) -> None:
    graphs = random_graphs([6, 9, 3])
    scores = []
    for routing in ("factored", "naive"):
        torch.manual_seed(0)
        model = HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk=kind, routing=routing).double()
        output = model(graphs.x, graphs.edge_index, graphs.batch, y=graphs.y)
        model.loss(output, graphs.y).total.backward()
        assert all(p.grad is not None for p in model.layers[0].trunk.parameters())
        scores.append(output.class_scores)
    assert_equal(scores[0], scores[1])


def test_a_custom_module_and_wrong_arguments() -> None:
    graphs = random_graphs([6])
    assert_equal(Trunk(_Identity(), 5)(graphs.x, graphs.edges, graphs.segments), graphs.x)
    with pytest.raises(ShapeError, match=r"Trunk: 'kind' must keep the width 5, got 1\."):
        Trunk(_Narrow(), 5)(graphs.x, graphs.edges, graphs.segments)
    with pytest.raises(
        ArgumentError, match=r"Trunk: 'kind' must be a name if there are leading axes, got _Identity\."
    ):
        Trunk(_Identity(), 5, lead=(2,))
    weighted = edge_table(graphs.edge_index, 6, torch.ones(graphs.edge_index.size(1)))
    with pytest.raises(ArgumentError, match=r"'edge_weight' must be None with the trunk 'gin'"):
        Trunk("gin", 5).double()(graphs.x, weighted, graphs.segments)
