"""ReplicaAdam equals one torch.optim.Adam per replica."""

import pytest
import torch
from torch import nn

from graphcaps.training import ReplicaAdam
from tests.graphs import assert_equal


class _Parameters(nn.Module):
    def __init__(self, *values: torch.Tensor) -> None:
        super().__init__()
        self.values = nn.ParameterList(values)


def _step(adam: ReplicaAdam, path: str, rate: float | torch.Tensor, active: torch.Tensor | None) -> None:
    """A step on a CPU, or as on a GPU."""
    adam.set_rate(rate)
    if path == "cpu":
        adam.step(active)
        return
    with torch.no_grad():
        adam._step_on_device(list(range(len(adam.parameters))), active)


@pytest.mark.parametrize("path", ["cpu", "device"])
def test_replicas_equal_torch_adam_also_if_some_are_inactive(path: str) -> None:
    torch.manual_seed(0)
    F = 3
    start = [torch.randn(F, 4, 2, dtype=torch.float64), torch.randn(F, 5, dtype=torch.float64)]
    stacked_model = _Parameters(*(value.clone() for value in start))
    ours = ReplicaAdam(stacked_model, F, weight_decay=0.01)
    singles = [_Parameters(*(value[f].clone() for value in start)) for f in range(F)]
    theirs = [torch.optim.Adam(single.parameters(), lr=0.1, weight_decay=0.01) for single in singles]
    for step in range(30):
        rate = 0.1 if step < 15 else 0.05
        active = torch.tensor([True, step % 3 != 1, step < 20])
        gradients = [torch.randn_like(value) for value in start]
        for parameter, gradient in zip(stacked_model.values, gradients, strict=True):
            parameter.grad = gradient
        _step(ours, path, rate, None if bool(active.all()) else active)
        for f in range(F):
            if active[f]:
                theirs[f].param_groups[0]["lr"] = rate
                for parameter, gradient in zip(singles[f].values, gradients, strict=True):
                    parameter.grad = gradient[f].clone()
                theirs[f].step()
    for f in range(F):
        for parameter, single in zip(stacked_model.values, singles[f].values, strict=True):
            assert_equal(parameter[f], single)


def test_a_parameter_without_gradient_is_unchanged() -> None:
    module = _Parameters(torch.ones(1, 2), torch.ones(1, 2))
    adam = ReplicaAdam(module, 1, weight_decay=0.1)
    adam.set_rate(0.1)
    module.values[0].grad = torch.ones(1, 2)
    adam.step()
    assert not torch.equal(module.values[0], torch.ones(1, 2))
    assert torch.equal(module.values[1], torch.ones(1, 2))


def test_a_loaded_state_continues() -> None:
    module, other = _Parameters(torch.ones(1, 2)), _Parameters(torch.ones(1, 2))
    one, two = ReplicaAdam(module, 1), ReplicaAdam(other, 1)
    for adam in (one, two):
        adam.set_rate(0.1)
    module.values[0].grad = torch.tensor([[1.0, -2.0]])
    one.step()
    with torch.no_grad():
        other.values[0].copy_(module.values[0])
    two.load_state({name: value.clone() for name, value in one.state().items()})
    for each, adam in ((module, one), (other, two)):
        each.values[0].grad = torch.tensor([[0.5, 0.5]])
        adam.step()
    assert torch.equal(module.values[0], other.values[0])


@pytest.mark.parametrize("path", ["cpu", "device"])
def test_replicas_have_rates_and_decays_of_their_own(path: str) -> None:
    torch.manual_seed(2)
    rates, decays = torch.tensor([0.1, 0.1, 0.02]).double(), torch.tensor([0.01, 0.01, 0.3]).double()
    F = 3
    start = [torch.randn(F, 4, 2, dtype=torch.float64), torch.randn(F, 5, 3, dtype=torch.float64)]
    stacked_model = _Parameters(*(value.clone() for value in start))
    ours = ReplicaAdam(stacked_model, F, weight_decay=decays)
    singles = [_Parameters(*(value[f].clone() for value in start)) for f in range(F)]
    theirs = [
        torch.optim.Adam(single.parameters(), lr=1.0, weight_decay=float(decay))
        for single, decay in zip(singles, decays, strict=True)
    ]
    for step in range(12):
        active = torch.tensor([True, step % 3 != 1, step < 8])
        rate = rates * (0.5 if step > 5 else 1)
        gradients = [torch.randn_like(value) for value in start]
        for parameter, gradient in zip(stacked_model.values, gradients, strict=True):
            parameter.grad = gradient
        _step(ours, path, rate, None if bool(active.all()) else active)
        for f in active.nonzero()[:, 0].tolist():
            theirs[f].param_groups[0]["lr"] = float(rate[f])
            for parameter, gradient in zip(singles[f].values, gradients, strict=True):
                parameter.grad = gradient[f].clone()
            theirs[f].step()
    for f in range(F):
        for parameter, single in zip(stacked_model.values, singles[f].values, strict=True):
            assert_equal(parameter[f], single)
