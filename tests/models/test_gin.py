"""GIN against the same network of torch-geometric's layers, and a worked example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv, global_add_pool

from graphcaps.errors import ArgumentError
from graphcaps.models.gin import GIN
from graphcaps.registry import MODELS
from tests.graphs import assert_equal, random_graphs, with_padding
from tests.models.conv_reference import assert_equals_reference


class _Reference(nn.Module):
    """The network of Xu et al. of torch-geometric's layers; without dropout."""

    def __init__(self, train_epsilon: bool) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(
                nn.Sequential(
                    *(nn.Linear(width, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU()),
                    nn.Linear(8, 8, bias=False),
                ),
                train_eps=train_epsilon,
            )
            for width in (5, 8)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(2))
        self.readouts = nn.ModuleList(nn.Linear(width, 3) for width in (5, 8, 8))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, weight: Tensor | None) -> Tensor:
        logits: Tensor = self.readouts[0](global_add_pool(x, batch))
        for conv, norm, readout in zip(self.convs, self.norms, self.readouts[1:], strict=True):
            x = norm(conv(x, edge_index)).relu()
            logits = logits + readout(global_add_pool(x, batch))
        return logits


def _theirs(name: str) -> str:
    for ours, theirs in (
        ("mlp.linears.0", "nn.0"),
        ("mlp.norms.0", "nn.1"),
        ("mlp.linears.1", "nn.3"),
        ("epsilon", "eps"),
    ):
        name = name.replace(ours, theirs)
    return name


@pytest.mark.parametrize("train_epsilon", [False, True], ids=["GIN-0", "trained epsilon"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_equals_torch_geometric(training: bool, train_epsilon: bool) -> None:
    torch.manual_seed(0)
    model = GIN(5, 3, hidden=8, num_layers=2, dropout=0.0, train_epsilon=train_epsilon).train(training)
    with torch.no_grad():
        for conv in model.convs:
            conv.epsilon.fill_(0.3)
    assert_equals_reference(model, _Reference(train_epsilon), _theirs)


def test_worked_example() -> None:
    """A path of three nodes with the feature 1: sums (2, 3, 2), unit maps, no normalisation, so z = 3 + 7."""
    model = GIN(1, 1, hidden=1, num_layers=1).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    output = model(torch.ones(3, 1, dtype=torch.float64), torch.tensor([[0, 1], [1, 2]]))
    scale = (1 + 1e-5) ** -0.5  # of a BatchNorm with running variance 1
    assert_equal(output.class_scores, torch.tensor([[3 + 7 * scale**2]], dtype=torch.float64))


def test_dropout_acts_on_the_logits_of_each_layer() -> None:
    """With a probability of one half, each of the three terms of the logits is doubled or left out."""
    torch.manual_seed(0)
    graphs = random_graphs([6])
    model = GIN(5, 1, hidden=8, num_layers=2, dropout=0.5).double()
    batch = graphs.as_batch()
    terms = []
    for kept in range(3):
        single = GIN(5, 1, hidden=8, num_layers=2, dropout=0.0).double()
        single.load_state_dict(model.state_dict())
        for number, readout in enumerate(single.readouts):
            if number != kept:
                nn.init.zeros_(readout.weight)
                nn.init.zeros_(readout.bias)
        terms.append(float(single.forward_batch(batch).class_scores.detach()))
    possible = torch.tensor(
        [2 * (a * terms[0] + b * terms[1] + c * terms[2]) for a in (0, 1) for b in (0, 1) for c in (0, 1)]
    )
    drawn = [float(model.forward_batch(batch).class_scores.detach()) for _ in range(40)]
    closest = {int((possible - value).abs().argmin()) for value in drawn}
    assert all(float((possible - value).abs().min()) < 1e-5 for value in drawn)
    assert len(closest) > 3


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


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^GIN: 'num_layers' must be at least 1, got 0\.$"):
        GIN(5, 2, num_layers=0)
