"""ReplicaMeanConv against the dense formula."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.utils import coalesce, to_dense_adj

from graphcaps.nn.mean_conv import ReplicaMeanConv
from tests.graphs import assert_equal, random_graphs


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("width", [3, 7], ids=["narrower", "wider"])
def test_equals_the_dense_formula(width: int, weighted: bool) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1])
    edge_index = coalesce(graphs.edge_index)
    i, j = edge_index
    weight = 0.5 + ((i + 1) * (j + 1)).double().sin().square() if weighted else None
    layer = ReplicaMeanConv(5, width).double()
    torch.nn.init.normal_(layer.bias)
    one, two = graphs.x.clone().requires_grad_(), graphs.x.clone().requires_grad_()
    value = layer(one, edge_index, graphs.batch, edge_weight=weight)
    adjacency = to_dense_adj(edge_index, edge_attr=weight, max_num_nodes=len(two))[0].double()
    adjacency = adjacency + torch.eye(len(two), dtype=torch.float64)
    expected = (adjacency @ two @ layer.weight + layer.bias) / adjacency.sum(1, keepdim=True)
    assert_equal(value, expected)
    value.sin().sum().backward()
    gradient = layer.weight.grad
    assert gradient is not None
    ours = gradient.clone()
    layer.zero_grad()
    expected.sin().sum().backward()
    assert one.grad is not None
    assert two.grad is not None
    assert_equal(one.grad, two.grad, "gradient of x")
    assert layer.weight.grad is not None
    assert_equal(ours, layer.weight.grad, "gradient of the weight")
