"""ReplicaMLP against torch_geometric.nn.MLP."""

from typing import Any

import pytest
import torch
from torch_geometric.nn import MLP

from graphcaps.errors import ArgumentError
from graphcaps.nn import ReplicaMLP
from tests.graphs import assert_equal

WIDTHS = [5, 8, 6, 3]


def _torch_geometric(ours: ReplicaMLP, norm: bool, plain_last: bool) -> Any:
    theirs = MLP(WIDTHS, norm="batch_norm" if norm else None, plain_last=plain_last).double()
    with torch.no_grad():
        for one, two in zip(theirs.lins, ours.linears, strict=True):
            one.weight.copy_(two.weight.T)
            one.bias.copy_(two.bias)
    return theirs


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("plain_last", [True, False], ids=["plain last", "activated last"])
@pytest.mark.parametrize("norm", [True, False], ids=["norm", "no norm"])
def test_equals_torch_geometric(norm: bool, plain_last: bool, training: bool) -> None:
    torch.manual_seed(0)
    ours = ReplicaMLP(WIDTHS, norm=norm, plain_last=plain_last).double().train(training)
    theirs = _torch_geometric(ours, norm, plain_last).train(training)
    x = torch.randn(7, 5, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    value, expected = ours(one), theirs(two)
    assert_equal(value, expected)
    value.sin().sum().backward()
    expected.sin().sum().backward()
    assert_equal(one.grad, two.grad, "gradient of x")
    for mine, other in zip(ours.linears, theirs.lins, strict=True):
        assert_equal(mine.weight.grad.T, other.weight.grad, "gradient of a weight")
        assert_equal(mine.bias.grad, other.bias.grad, "gradient of a bias")


def test_replicas_and_padding_rows() -> None:
    """A replica among others, with NaN in its padding rows, equals the same MLP alone."""
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    x = torch.randn(2, 7, 5, dtype=torch.float64)
    stacked = ReplicaMLP(WIDTHS, dropout=0.4, lead=(2,)).double()
    for f in range(2):
        single = ReplicaMLP(WIDTHS, dropout=0.4).double()
        single.load_state_dict({name: value[f] for name, value in stacked.state_dict().items()})
        rows = int(mask[f].sum())
        expected = single(x[f, :rows])
        state = {name: value.clone() for name, value in stacked.state_dict().items()}
        together = stacked(x.masked_fill(~mask.unsqueeze(-1), 1e3), mask)
        stacked.load_state_dict(state)
        assert_equal(together[f, :rows], expected, f"replica {f}")


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    mlp = ReplicaMLP([5, 400, 3], norm=False, dropout=0.5)
    x = torch.randn(7, 5)
    assert not torch.equal(mlp(x), mlp(x))
    mlp.eval()
    assert torch.equal(mlp(x), mlp(x))


def test_one_width_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"^ReplicaMLP: 'channels' must name at least two widths, got \[5\]\.$"
    ):
        ReplicaMLP([5])
