"""ReplicaSAGEConv against torch-geometric's SAGEConv, and with edge weights against its GraphConv."""

from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.nn import GraphConv, SAGEConv

from graphcaps.errors import ArgumentError
from graphcaps.nn import ReplicaSAGEConv
from graphcaps.nn.sage_conv import Aggregation
from tests.graphs import Graphs, assert_equal, random_graphs
from tests.nn.graph_strategies import graphs_with_weights
from tests.nn.pyg_equality import compare_layers, compare_weighted_layers


def _copy(ours: ReplicaSAGEConv, neighbours: Any, root: Any) -> None:
    with torch.no_grad():
        neighbours.weight.copy_(ours.neighbours.weight.T)
        if ours.neighbours.bias is not None:
            neighbours.bias.copy_(ours.neighbours.bias)
        if ours.root is not None:
            root.weight.copy_(ours.root.weight.T)


@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"root_weight": False}, {"normalize": True}, {"aggregation": "sum"}],
    ids=["default", "no bias", "no root weight", "normalised", "sum"],
)
@pytest.mark.parametrize("sizes", [[6, 9, 1], [1, 1]], ids=["mixed", "no edges"])
def test_equals_torch_geometric(sizes: list[int], options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    graphs = random_graphs(sizes)
    ours = ReplicaSAGEConv(5, 3, **options).double()
    theirs = SAGEConv(
        5,
        3,
        aggr=options.get("aggregation", "mean"),
        **{name: value for name, value in options.items() if name != "aggregation"},
    ).double()
    _copy(ours, theirs.lin_l, theirs.lin_r if ours.root is not None else None)
    compare_layers(ours, theirs, graphs)
    assert_equal(ours.neighbours.weight.grad.T, theirs.lin_l.weight.grad, "gradient of W₁")
    if ours.root is not None:
        assert_equal(ours.root.weight.grad.T, theirs.lin_r.weight.grad, "gradient of W₂")


@pytest.mark.parametrize("aggregation", ["mean", "sum"])
@given(graphs_with_weights())
def test_weighted_edges_equal_torch_geometric_graph_conv(
    aggregation: Aggregation, drawn: tuple[Graphs, Tensor]
) -> None:
    graphs, weight = drawn
    torch.manual_seed(0)
    ours = ReplicaSAGEConv(graphs.x.size(1), 3, aggregation=aggregation).double()
    theirs = GraphConv(graphs.x.size(1), 3, aggr="mean" if aggregation == "mean" else "add").double()
    _copy(ours, theirs.lin_rel, theirs.lin_root)
    compare_weighted_layers(ours, theirs, graphs, weight)


def test_unknown_aggregation_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"^ReplicaSAGEConv: 'aggregation' must be 'mean' or 'sum', got 'max'\.$"
    ):
        ReplicaSAGEConv(5, 3, aggregation="max")  # type: ignore[arg-type]
