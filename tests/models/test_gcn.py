"""GCN against the same network of torch and torch-geometric's layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import coalesce

from graphcaps.errors import ArgumentError
from graphcaps.models.gcn import GCN
from tests.graphs import assert_equal, random_graphs


class _Reference(nn.Module):
    """The network of Chen, Bian and Sun without graphcaps; parameters are in the order of ``GCN``."""

    def __init__(self, in_channels: int, num_classes: int, hidden: int, num_layers: int) -> None:
        super().__init__()
        self.input_norm = nn.BatchNorm1d(in_channels)
        self.input = nn.Linear(in_channels, hidden, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(num_layers))
        self.convs = nn.ModuleList(GCNConv(hidden, hidden) for _ in range(num_layers))
        self.inner_norm = nn.BatchNorm1d(hidden)
        self.inner = nn.Linear(hidden, hidden)
        self.outer_norm = nn.BatchNorm1d(hidden)
        self.outer = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, weight: Tensor | None) -> Tensor:
        x = self.input(self.input_norm(x)).relu()
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = conv(norm(x), edge_index, weight).relu()
        g = global_add_pool(x, batch)
        g = self.inner(self.inner_norm(g)).relu()
        logits: Tensor = self.outer(self.outer_norm(g))
        return logits

    def copy(self, model: GCN) -> None:
        """Takes the state of ``model``; torch stores weights transposed."""
        own = self.state_dict()
        for name, value in model.state_dict().items():
            if name.startswith("dropout"):
                continue
            target = own[name.replace("weight", "lin.weight") if "convs" in name else name]
            target.copy_(value.mT if value.dim() == 2 else value)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_equals_torch_geometric(training: bool, weighted: bool) -> None:
    torch.manual_seed(0)
    graphs = random_graphs([6, 9, 1, 4], classes=3)
    model = GCN(5, 3, hidden=8, num_layers=2).double().train(training)
    for value in model.buffers():
        if value.is_floating_point():
            nn.init.uniform_(value, 0.5, 2)
    reference = _Reference(5, 3, 8, 2).double().train(training)
    reference.copy(model)
    edge_index = coalesce(graphs.edge_index)
    weight = None
    if weighted:
        i, j = edge_index
        weight = 0.5 + ((i + 1) * (j + 1)).double().sin().square()  # the same in both directions
    output = model(graphs.x, edge_index, graphs.batch, edge_weight=weight)
    expected = reference(graphs.x, edge_index, graphs.batch, weight)
    assert_equal(output.class_scores, expected, "logits")
    loss = model.loss(output, graphs.y).total
    expected_loss = nn.functional.cross_entropy(expected, graphs.y)
    assert_equal(loss, expected_loss, "loss")
    loss.backward()
    expected_loss.backward()
    gradients: dict[str, Any] = {name: p.grad for name, p in reference.named_parameters()}
    for name, parameter in model.named_parameters():
        theirs = gradients[name.replace("weight", "lin.weight") if "convs" in name else name]
        assert parameter.grad is not None
        assert_equal(parameter.grad, theirs.mT if theirs.dim() == 2 else theirs, f"gradient of {name}")
    running = dict(reference.named_buffers())
    for name, value in model.named_buffers():
        if not name.startswith("dropout"):
            assert_equal(value, running[name], name)


def test_initial_parameters() -> None:
    """Glorot weights with the bound of one replica, and the small shift of every BatchNorm."""
    torch.manual_seed(0)
    model = GCN(10, 3, hidden=14, lead=(40,))
    for weight, bound in ((model.input.weight, 0.5), (model.convs[0].weight, (6 / 28) ** 0.5)):
        assert 0.97 * bound < float(weight.detach().abs().max()) <= bound
    shifts = [value for name, value in model.named_parameters() if "norm" in name and name.endswith("bias")]
    assert len(shifts) == 6
    assert all(bool((shift == 1e-4).all()) for shift in shifts)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^GCN: 'num_layers' must be at least 1, got 0\.$"):
        GCN(5, 2, num_layers=0)
