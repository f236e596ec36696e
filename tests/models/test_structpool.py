"""StructPool against the same network of dense operations, one graph at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.utils import to_dense_adj

from graphcaps.errors import ArgumentError
from graphcaps.models.structpool import StructPool
from graphcaps.ops.mean_field import dense_mean_field
from graphcaps.registry import DatasetSize
from tests.graphs import assert_equal, random_graphs


def _reference(model: StructPool, xs: list[Tensor], adjacencies: list[Tensor]) -> Tensor:
    """Logits from dense matrices of each graph."""
    pooled = []
    for x, adjacency in zip(xs, adjacencies, strict=True):
        looped = adjacency + torch.eye(len(x), dtype=x.dtype)
        degree = looped.sum(-1, keepdim=True)

        def convolve(layer: Any, x: Tensor, looped: Tensor = looped, degree: Tensor = degree) -> Tensor:
            return ((looped @ x @ layer.weight + layer.bias) / degree).tanh()

        for layer in model.features:
            x = convolve(layer, x)
        u = x
        for layer in model.unary:
            u = convolve(layer, u)
        s = dense_mean_field(u, x, model.rounds, model.row_sum_guard)
        pooled.append(s.mT @ x)
    logits: Tensor = model.head(torch.stack(pooled))
    return logits


def test_equals_dense_operations() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 12, 1, 4], classes=3, density=2)
    model = StructPool(5, 3, hidden=8, num_clusters=10).double().eval()
    torch.nn.init.uniform_(model.input_norm.running_mean)
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    singles = [graphs.one(g) for g in range(4)]
    dense = [to_dense_adj(g.edge_index, max_num_nodes=len(g.x))[0].clamp_max(1).double() for g in singles]

    def gradients(scores: Tensor) -> list[Tensor]:
        loss = torch.nn.functional.cross_entropy(scores, graphs.y)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    expected = _reference(model, list(model.input_norm(graphs.x).split(graphs.sizes.tolist())), dense)
    assert_equal(output.class_scores, expected, "logits")
    names = [name for name, _ in model.named_parameters()]
    for name, one, other in zip(names, gradients(output.class_scores), gradients(expected), strict=True):
        assert_equal(one, other, f"gradient of {name}", 1e-8)


def test_widths_of_the_publication() -> None:
    model = StructPool(7, 2)
    assert [conv.out_channels for conv in model.features] == [32, 48, 64]
    assert [conv.out_channels for conv in model.unary] == [48, 48, 16]


def test_number_of_clusters_is_the_60th_percentile() -> None:
    rule = StructPool.data_options["num_clusters"].rule
    assert [rule(DatasetSize(counts, 2)) for counts in ((1, 5, 9), (10, 20, 30, 40, 50))] == [10, 30]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clusters": 9}, "'num_clusters' must be at least 10, got 9"),
        ({"rounds": -1}, "'rounds' must be at least 0, got -1"),
        ({"row_sum_guard": float("nan")}, "'row_sum_guard' must be at least 0, got nan"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^StructPool: {message}"):
        StructPool(5, 2, **options)
