"""The baseline without edges against the same network of torch's layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool

from graphcaps.errors import ArgumentError
from graphcaps.models.mlp import MLP
from tests.graphs import random_graphs
from tests.models.conv_reference import assert_equals_reference


class _Reference(nn.Module):
    def __init__(self, node_layers: int) -> None:
        super().__init__()
        self.nodes = nn.ModuleList([nn.Linear(5, 8), nn.Linear(8, 8)][:node_layers])
        self.inner, self.outer = nn.Linear(8 if node_layers else 5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, weight: Tensor | None) -> Tensor:
        for linear in self.nodes:
            x = linear(x).relu()
        logits: Tensor = self.outer(self.inner(global_add_pool(x, batch)).relu())
        return logits


@pytest.mark.parametrize("node_layers", [0, 1, 2])
def test_equals_torch(node_layers: int) -> None:
    torch.manual_seed(0)
    assert_equals_reference(MLP(5, 3, hidden=8, node_layers=node_layers), _Reference(node_layers))


def test_no_edge_is_read() -> None:
    graphs = random_graphs([6, 9, 4])
    model = MLP(5, 3, hidden=8).double().eval()
    scores = model(graphs.x, graphs.edge_index, graphs.batch).class_scores
    assert torch.equal(scores, model(graphs.x, graphs.edge_index[:, :2], graphs.batch).class_scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, r"^MLP: 'hidden' must be at least 1, got 0\.$"),
        ({"node_layers": -1}, r"^MLP: 'node_layers' must be at least 0, got -1\.$"),
    ],
)
def test_sizes_out_of_range_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        MLP(5, 2, **options)
