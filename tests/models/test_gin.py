"""GIN against torch-geometric's GINConv."""

import torch
from torch_geometric.nn import GINConv, global_add_pool

from graphcaps.models.gin import GIN
from graphcaps.registry import MODELS
from tests.graphs import assert_equal, random_graphs, with_padding


def test_equals_torch_geometric_gin() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1])
    model = GIN(5, 3, hidden=8, num_layers=2, dropout=0.0).double()
    x = graphs.x
    for layer in model.layers:
        mlp = torch.nn.Sequential(
            torch.nn.Linear(x.size(1), 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 8),
            torch.nn.BatchNorm1d(8), torch.nn.ReLU(),
        ).double()  # fmt: skip
        convolution = GINConv(mlp)  # the constructor re-initialises the MLP
        with torch.no_grad():
            for theirs, ours in ((mlp[0], layer.inner), (mlp[3], layer.outer)):
                theirs.weight.copy_(ours.weight.T)
                theirs.bias.copy_(ours.bias)
        x = convolution(x, graphs.edge_index.unique(dim=1))
    pooled = global_add_pool(x, graphs.batch)
    expected = (pooled @ model.inner.weight + model.inner.bias).relu() @ model.outer.weight + model.outer.bias
    assert_equal(model.forward_batch(graphs.as_batch()).class_scores, expected)


def test_nan_in_padding_does_not_reach_results() -> None:
    batch = random_graphs([6, 9]).as_batch()
    results = []
    for each in (batch, with_padding(batch)):
        torch.manual_seed(0)
        model = GIN(5, 2, hidden=8, dropout=0.0).double()
        output = model.forward_batch(each)
        model.loss(output, each.y).total.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        results.append(
            {
                "scores": output.class_scores[:2],
                "evaluated": model.eval().forward_batch(each).class_scores[:2],
            }
            | gradients
        )
    for name, value in results[0].items():
        assert_equal(results[1][name], value, name)


def test_both_models_are_registered() -> None:
    assert MODELS["gin"] is GIN
    assert "hgcn" in MODELS
