"""ReplicaGINConv against torch-geometric's GINConv."""

from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.nn import MLP, GINConv

from graphcaps.nn import ReplicaGINConv, ReplicaMLP
from tests.graphs import Graphs, assert_equal, random_graphs
from tests.nn.graph_strategies import graphs_with_weights
from tests.nn.pyg_equality import compare_layers


def _pair(in_channels: int, **options: Any) -> tuple[ReplicaGINConv, Any]:
    """Both layers with the same weights."""
    ours = ReplicaGINConv(ReplicaMLP([in_channels, 8, 3]), epsilon=0.25, **options).double()
    theirs = GINConv(
        MLP([in_channels, 8, 3]), eps=0.25, train_eps=options.get("train_epsilon", False)
    ).double()
    with torch.no_grad():
        for one, two in zip(theirs.nn.lins, ours.mlp.linears, strict=True):
            one.weight.copy_(two.weight.T)
            one.bias.copy_(two.bias)
    return ours, theirs


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("train_epsilon", [True, False], ids=["trained epsilon", "fixed epsilon"])
@pytest.mark.parametrize("sizes", [[6, 9, 1], [1, 1]], ids=["mixed", "no edges"])
def test_equals_torch_geometric(sizes: list[int], train_epsilon: bool, training: bool) -> None:
    torch.manual_seed(0)
    graphs = random_graphs(sizes)
    ours, theirs = _pair(5, train_epsilon=train_epsilon)
    ours.train(training)
    theirs.train(training)
    compare_layers(ours, theirs, graphs)
    for mine, other in zip(ours.mlp.linears, theirs.nn.lins, strict=True):
        assert_equal(mine.weight.grad.T, other.weight.grad, "gradient of a weight")
    assert ("epsilon" in dict(ours.named_parameters())) is train_epsilon
    if train_epsilon:
        assert_equal(ours.epsilon.grad.flatten(), theirs.eps.grad.flatten(), "gradient of epsilon")


@given(graphs_with_weights())
def test_edge_weights_multiply_the_messages(drawn: tuple[Graphs, Tensor]) -> None:
    graphs, weight = drawn
    layer, _ = _pair(graphs.x.size(1))
    layer.eval()
    A = torch.zeros(len(graphs.x), len(graphs.x), dtype=torch.float64)
    both = torch.cat([weight, weight])
    A[graphs.edge_index[0], graphs.edge_index[1]] = both
    value = layer(graphs.x, graphs.edge_index, graphs.batch, edge_weight=both)
    assert_equal(value, layer.mlp(1.25 * graphs.x + A @ graphs.x))


def test_reset_restores_epsilon() -> None:
    layer = ReplicaGINConv(ReplicaMLP([5, 3], lead=(2,)), epsilon=0.25, train_epsilon=True)
    assert layer.epsilon.shape == (2, 1, 1)
    torch.nn.init.constant_(layer.epsilon, 7)
    before = layer.mlp.linears[0].weight.clone()
    layer.reset_parameters()
    assert layer.epsilon.flatten().tolist() == [0.25, 0.25]
    assert not torch.equal(layer.mlp.linears[0].weight, before)
