"""GIN against torch-geometric's layers."""

import torch
from torch_geometric.nn import GINConv, global_add_pool

from graphcaps.models import GIN
from graphcaps.registry import MODELS
from tests.graphs import assert_equal, random_graphs, with_padding


def test_is_torch_geometric_s_gin() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1])
    model = GIN(5, 3, hidden=8, num_layers=2, dropout=0.0).double()
    x = graphs.x
    for layer in model.layers:
        mlp = torch.nn.Sequential(
            torch.nn.Linear(x.size(1), 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 8),
            torch.nn.BatchNorm1d(8), torch.nn.ReLU(),
        ).double()  # fmt: skip
        convolution = GINConv(mlp)  # it draws new weights for the network it is given
        with torch.no_grad():
            for part, own in ((mlp[0], layer.inner), (mlp[3], layer.outer)):
                part.weight.copy_(own.weight.T)
                part.bias.copy_(own.bias)
        x = convolution(x, graphs.edge_index.unique(dim=1))
    pooled = global_add_pool(x, graphs.batch)
    expected = (pooled @ model.inner.weight + model.inner.bias).relu() @ model.outer.weight + model.outer.bias
    assert_equal(model.forward_batch(graphs.as_batch()).class_scores, expected)


def test_padding_never_counts() -> None:
    batch = random_graphs([6, 9]).as_batch()
    found = []
    for each in (batch, with_padding(batch)):
        torch.manual_seed(0)
        model = GIN(5, 2, hidden=8, dropout=0.0).double()
        output = model.forward_batch(each)
        model.loss(output, each.y).total.backward()
        slopes = {name: parameter.grad for name, parameter in model.named_parameters()}
        found.append(
            {
                "scores": output.class_scores[:2],
                "evaluated": model.eval().forward_batch(each).class_scores[:2],
            }
            | slopes
        )
    for name, value in found[0].items():
        assert_equal(found[1][name], value, name)


def test_registered() -> None:
    assert MODELS["gin"] is GIN
    assert "hgcn" in MODELS
