"""ReplicaAdam is torch's Adam, for every replica by itself."""

import pytest
import torch
from torch import nn

from graphcaps.training import ReplicaAdam
from tests.graphs import assert_equal


class _Bag(nn.Module):
    def __init__(self, *values: torch.Tensor) -> None:
        super().__init__()
        self.values = nn.ParameterList(values)


def test_replicas_step_like_torch_also_when_some_stand_still() -> None:
    torch.manual_seed(0)
    F = 3
    start = [torch.randn(F, 4, 2, dtype=torch.float64), torch.randn(F, 5, dtype=torch.float64)]
    whole = _Bag(*(value.clone() for value in start))
    ours = ReplicaAdam(whole, F, weight_decay=0.01)
    singles = [_Bag(*(value[f].clone() for value in start)) for f in range(F)]
    theirs = [torch.optim.Adam(single.parameters(), lr=0.1, weight_decay=0.01) for single in singles]
    for step in range(30):
        rate = 0.1 if step < 15 else 0.05
        active = torch.tensor([True, step % 3 != 1, step < 20])
        slopes = [torch.randn_like(value) for value in start]
        for parameter, slope in zip(whole.values, slopes, strict=True):
            parameter.grad = slope
        ours.step(rate, None if bool(active.all()) else active)
        for f in range(F):
            if active[f]:
                theirs[f].param_groups[0]["lr"] = rate
                for parameter, slope in zip(singles[f].values, slopes, strict=True):
                    parameter.grad = slope[f].clone()
                theirs[f].step()
    for f in range(F):
        for parameter, single in zip(whole.values, singles[f].values, strict=True):
            assert_equal(parameter[f], single)


class _WithTrunk(nn.Module):
    """A stacked parameter, and one under each replica's number, as in a trunk."""

    def __init__(self, stacked: torch.Tensor, own: torch.Tensor) -> None:
        super().__init__()
        self.stacked = nn.Parameter(stacked.clone())
        self.trunk = nn.Module()
        self.trunk.replicas = nn.ModuleList([_Bag(row.clone()) for row in own])


@pytest.mark.parametrize("path", ["cpu", "device"])
def test_weights_of_a_trunk_step_with_their_replica(path: str) -> None:
    torch.manual_seed(1)
    F = 3
    start = [torch.randn(F, 4, 2, dtype=torch.float64), torch.randn(F, 5, 3, dtype=torch.float64)]
    whole = _WithTrunk(*start)
    ours = ReplicaAdam(whole, F, weight_decay=0.01)
    step_with = ours._step_on_cpu if path == "cpu" else ours._step_on_device
    singles = [_Bag(*(value[f].clone() for value in start)) for f in range(F)]
    theirs = [torch.optim.Adam(single.parameters(), lr=0.1, weight_decay=0.01) for single in singles]
    ours.set_rate(0.1)
    for step in range(20):
        active = torch.tensor([True, step % 3 != 1, step < 12])
        slopes = [torch.randn_like(value) for value in start]
        whole.stacked.grad = slopes[0]
        for f in range(F):
            whole.trunk.replicas[f].values[0].grad = slopes[1][f].clone()
        with torch.no_grad():
            step_with([0, 1, 2, 3], None if bool(active.all()) else active)
        for f in active.nonzero()[:, 0].tolist():
            for parameter, slope in zip(singles[f].values, slopes, strict=True):
                parameter.grad = slope[f].clone()
            theirs[f].step()
    for f in range(F):
        assert_equal(whole.stacked[f], singles[f].values[0])
        assert_equal(whole.trunk.replicas[f].values[0], singles[f].values[1])


def test_a_parameter_without_gradient_stays() -> None:
    bag = _Bag(torch.ones(1, 2), torch.ones(1, 2))
    adam = ReplicaAdam(bag, 1, weight_decay=0.1)
    bag.values[0].grad = torch.ones(1, 2)
    adam.step(0.1)
    assert not torch.equal(bag.values[0], torch.ones(1, 2))
    assert torch.equal(bag.values[1], torch.ones(1, 2))


def test_state_goes_on() -> None:
    bag, other = _Bag(torch.ones(1, 2)), _Bag(torch.ones(1, 2))
    one, two = ReplicaAdam(bag, 1), ReplicaAdam(other, 1)
    bag.values[0].grad = torch.tensor([[1.0, -2.0]])
    one.step(0.1)
    with torch.no_grad():
        other.values[0].copy_(bag.values[0])
    two.load_state({name: value.clone() for name, value in one.state().items()})
    for each, adam in ((bag, one), (other, two)):
        each.values[0].grad = torch.tensor([[0.5, 0.5]])
        adam.step(0.1)
    assert torch.equal(bag.values[0], other.values[0])
