"""ReplicaGCNConv against torch-geometric's GCNConv."""

import pytest
import torch
from hypothesis import given
from torch import Tensor
from torch_geometric.nn import GCNConv

from graphcaps.errors import ShapeError
from graphcaps.nn import ReplicaGCNConv
from tests.graphs import Graphs, assert_equal, random_graphs
from tests.nn.graph_strategies import graphs_with_weights
from tests.nn.pyg_equality import compare_layers, compare_weighted_layers


def _pair(in_channels: int, out_channels: int, bias: bool = True) -> tuple[ReplicaGCNConv, GCNConv]:
    """Both layers with the same weights."""
    ours = ReplicaGCNConv(in_channels, out_channels, bias=bias).double()
    theirs = GCNConv(in_channels, out_channels, bias=bias).double()
    if ours.bias is not None:
        torch.nn.init.normal_(ours.bias)
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.weight.T)
        if ours.bias is not None:
            theirs.bias.copy_(ours.bias)
    return ours, theirs


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("width", [3, 5, 9], ids=["narrower", "equal", "wider"])
@pytest.mark.parametrize("sizes", [[6, 9, 1], [1, 1], [4]], ids=["mixed", "no edges", "one graph"])
def test_equals_torch_geometric(sizes: list[int], width: int, bias: bool) -> None:
    torch.manual_seed(0)
    graphs = random_graphs(sizes)
    ours, theirs = _pair(5, width, bias)
    compare_layers(ours, theirs, graphs)
    assert_equal(ours.weight.grad.T, theirs.lin.weight.grad, "gradient of the weight")
    if ours.bias is not None:
        assert_equal(ours.bias.grad, theirs.bias.grad, "gradient of the bias")


@given(graphs_with_weights())
def test_equals_torch_geometric_on_weighted_graphs(drawn: tuple[Graphs, Tensor]) -> None:
    """Also isolated nodes and graphs without edges; weights have the same gradient."""
    graphs, weight = drawn
    torch.manual_seed(0)
    ours, theirs = _pair(graphs.x.size(1), 3)
    compare_weighted_layers(ours, theirs, graphs, weight)


def test_initial_weights_have_the_bound_of_one_replica() -> None:
    torch.manual_seed(0)
    layer = ReplicaGCNConv(10, 14, lead=(50,))
    assert 0.49 < float(layer.weight.detach().abs().max()) <= 0.5  # √(6 / 24)
    assert bool((layer.bias == 0).all())


def test_wrong_width_is_refused() -> None:
    graphs = random_graphs([4])
    with pytest.raises(ShapeError, match=r"^ReplicaGCNConv: 'x' must have 6 columns, got 5\.$"):
        ReplicaGCNConv(6, 3).double()(graphs.x, graphs.edge_index)
