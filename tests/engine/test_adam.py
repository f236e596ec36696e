"""ReplicaAdam is torch's Adam, for every replica by itself."""

import torch
from torch import nn

from graphcaps.engine import ReplicaAdam
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
