"""DGCNN against the same network of torch's convolutions and torch-geometric's SortAggregation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import SortAggregation
from torch_geometric.utils import to_dense_adj

from graphcaps.config import RunConfig
from graphcaps.errors import ArgumentError
from graphcaps.models.dgcnn import DGCNN
from graphcaps.registry import DatasetSize
from graphcaps.training.auto_config import resolve_config
from tests.graphs import assert_equal, random_graphs

HIDDEN, K = 8, 13


class _Reference(nn.Module):
    """The network of Zhang et al. without graphcaps."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(a, b)
            for a, b in ((in_channels, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1))
        )
        channels = 3 * HIDDEN + 1
        self.sort = SortAggregation(K)
        self.rows = nn.Conv1d(1, 16, channels, channels)
        self.pool = nn.MaxPool1d(2)
        self.windows = nn.Conv1d(16, 32, 5)
        self.inner = nn.Linear(32 * (K // 2 - 4), 128)
        self.outer = nn.Linear(128, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        A = to_dense_adj(edge_index, max_num_nodes=len(x))[0].clamp_max(1).to(x.dtype)
        A = A + torch.eye(len(x), dtype=x.dtype)
        columns = []
        for layer in self.layers:
            x = ((A @ x @ layer.weight.T + layer.bias) / A.sum(-1, keepdim=True)).tanh()
            columns.append(x)
        z = self.sort(torch.cat(columns, -1), batch).unsqueeze(1)
        z = self.windows(self.pool(self.rows(z).relu())).relu()
        logits: Tensor = self.outer(self.inner(z.flatten(1)).relu())
        return logits


def _in_our_layout(name: str, value: Tensor) -> Tensor:
    """A parameter or gradient of the reference in the layout of ``DGCNN``."""
    if name == "inner.weight":  # positions before channels
        return value.unflatten(1, (32, -1)).mT.flatten(1).mT
    return value.flatten(1).mT if value.dim() > 1 else value


def test_equals_torch_geometric() -> None:
    """Graphs with more and with fewer nodes than k; values and gradients."""
    torch.manual_seed(0)
    graphs = random_graphs([6, 23, 1, 13, 14], classes=3)
    reference = _Reference(5, 3).double()
    model = DGCNN(5, 3, hidden=HIDDEN, k=K, dropout=0.0).double()
    ours = {name.removeprefix("head."): value for name, value in model.named_parameters()}
    with torch.no_grad():
        for name, value in reference.named_parameters():
            ours[name].copy_(_in_our_layout(name, value))
    output = model(graphs.x, graphs.edge_index, graphs.batch)
    expected = reference(graphs.x, graphs.edge_index, graphs.batch)
    assert_equal(output.class_scores, expected, "logits")
    model.loss(output, graphs.y).total.backward()
    nn.functional.cross_entropy(expected, graphs.y).backward()
    for name, value in reference.named_parameters():
        gradient: Any = value.grad
        assert ours[name].grad is not None
        assert_equal(ours[name].grad, _in_our_layout(name, gradient), f"gradient of {name}")


def test_saturated_nodes_are_sorted_by_the_layers_before() -> None:
    """With a last column of 1 for all nodes, that of the layer before decides: the order of nodes does not matter."""
    torch.manual_seed(0)
    graphs = random_graphs([12])
    model = DGCNN(5, 2, hidden=HIDDEN, k=10).double().eval()
    with torch.no_grad():
        model.layers[-1].bias.fill_(1e4)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    value = model(graphs.x, graphs.edge_index).class_scores
    other = model(graphs.x[order], order.argsort()[graphs.edge_index]).class_scores
    assert_equal(other, value)


def test_k_follows_from_the_node_counts() -> None:
    rule = DGCNN.data_options["k"].rule
    assert rule(DatasetSize(tuple(range(1, 101)), 2)) == 60
    assert rule(DatasetSize((3, 4, 50), 2)) == 10
    store = random_graphs([12, 13, 14, 15, 40]).as_store()
    assert resolve_config(RunConfig(model="dgcnn"), store).model_arguments["k"] == 14
    given = RunConfig(model="dgcnn", model_arguments={"k": 20})
    assert resolve_config(given, store).model_arguments["k"] == 20


def test_fewer_than_ten_nodes_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^DGCNN: 'k' must be at least 10, got 9\.$"):
        DGCNN(5, 2, k=9)
