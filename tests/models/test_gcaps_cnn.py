"""GCAPS-CNN against the same network of dense operations, one graph at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.utils import to_dense_adj

from graphcaps.errors import ArgumentError
from graphcaps.models.gcaps_cnn import GCAPSCNN
from tests.graphs import assert_equal, random_graphs


def _vector(model: GCAPSCNN, x: Tensor, adjacency: Tensor, hidden: int, hops: int) -> Tensor:
    """Mean and covariance of one graph, power by power and hop by hop."""
    looped = adjacency + torch.eye(len(x), dtype=x.dtype)
    scale = looped.sum(-1).rsqrt()
    hop = scale.unsqueeze(-1) * looped * scale
    for layer in model.layers:
        linear: Any = layer.linear
        d, results = x.size(1), []
        for p in range(model.powers):
            total = linear.bias[p].expand(len(x), hidden)
            for k in range(hops + 1):
                weight = linear.weight[p, k * d : (k + 1) * d]
                total = total + torch.linalg.matrix_power(hop, k) @ x.pow(p + 1) @ weight
            results.append(total.tanh())
        x = torch.cat(results, -1)
    centred = x - x.mean(0)
    return torch.cat([x.mean(0), (centred.mT @ centred / len(x)).flatten()])


def test_equals_dense_operations() -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 12, 1, 4], classes=3, density=2)
    model = GCAPSCNN(5, 3, hidden=3, powers=3, hops=2, dropout=0.0).double()
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    start = model.input(model.input_norm(graphs.x)).tanh()
    vectors = []
    for g, rows in enumerate(start.split(graphs.sizes.tolist())):
        edge_index = graphs.one(g).edge_index
        adjacency = to_dense_adj(edge_index, max_num_nodes=len(rows))[0].clamp_max(1).double()
        vectors.append(_vector(model, rows, adjacency, hidden=3, hops=2))
    expected = model.outer(model.inner(model.graph_norm(torch.stack(vectors))).relu())
    assert_equal(output.class_scores, expected, "logits")

    def gradients(scores: Tensor) -> list[Tensor]:
        loss = torch.nn.functional.cross_entropy(scores, graphs.y)
        return list(torch.autograd.grad(loss, list(model.parameters())))

    names = [name for name, _ in model.named_parameters()]
    for name, one, other in zip(names, gradients(output.class_scores), gradients(expected), strict=True):
        assert_equal(one, other, f"gradient of {name}", 1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"powers": 0}, "'powers' must be at least 1, got 0"),
        ({"hops": -1}, "'hops' must be at least 0, got -1"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^GCAPSCNN: {message}"):
        GCAPSCNN(5, 2, **options)
