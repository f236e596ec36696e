"""ReplicaGATConv against torch-geometric's GATConv, with and without edge labels."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GATConv
from torch_geometric.utils import coalesce

from graphcaps.nn import ReplicaGATConv
from graphcaps.ops.edge_kinds import edge_kind, one_hot_kinds
from tests.graphs import assert_equal, random_graphs


@pytest.mark.parametrize("edge_kinds", [(), (3, 2)], ids=["plain", "labels"])
def test_equals_torch_geometric(edge_kinds: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1])
    edge_index = coalesce(graphs.edge_index)
    i, j = edge_index
    ours = ReplicaGATConv(5, 3, edge_kinds=edge_kinds).double()
    theirs = GATConv(5, 3, add_self_loops=False, edge_dim=sum(edge_kinds) or None).double()
    loops = torch.arange(len(graphs.x)).expand(2, -1)
    labels = one_hot = None
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.weight.mT)
        theirs.att_dst.copy_(ours.attention[:, 0].reshape(1, 1, 3))
        theirs.att_src.copy_(ours.attention[:, 1].reshape(1, 1, 3))
        ours.bias.normal_()
        theirs.bias.copy_(ours.bias)
        if ours.label is not None:
            ours.label.normal_()
            # W_e a of the three columns of torch-geometric is one number per label.
            theirs.lin_edge.weight.zero_()
            theirs.lin_edge.weight[0] = ours.label.squeeze(-1)
            theirs.att_edge.fill_(1)
            labels = torch.stack([(i + j) % 4 - 1, i * j % 2], -1)  # −1 is a label without a column
            one_hot = one_hot_kinds(edge_kinds)[edge_kind(labels, edge_kinds)].double()
            one_hot = torch.cat([one_hot, torch.zeros(len(graphs.x), sum(edge_kinds))])
    x, y = (graphs.x.clone().requires_grad_() for _ in range(2))
    value = ours(x, edge_index, graphs.batch, edge_attr=labels)
    expected = theirs(y, torch.cat([edge_index, loops], 1), one_hot)
    assert_equal(value, expected)
    value.sin().sum().backward()
    expected.sin().sum().backward()
    pairs = {
        "x": (x.grad, y.grad),
        "W": (ours.weight.grad, theirs.lin.weight.grad.mT),
        "a": (ours.attention.grad[:, 0], theirs.att_dst.grad.flatten()),
        "b": (ours.attention.grad[:, 1], theirs.att_src.grad.flatten()),
        "e": (ours.bias.grad, theirs.bias.grad),
    }
    if ours.label is not None:
        pairs["label"] = (ours.label.grad.squeeze(-1), theirs.lin_edge.weight.grad[0])
    for name, (actual, wanted) in pairs.items():
        assert float(wanted.abs().max()) > 1e-6
        assert_equal(actual, wanted, f"gradient of {name}")
