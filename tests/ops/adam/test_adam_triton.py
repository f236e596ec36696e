"""Adam's update in one kernel is that of torch, for every replica; one that stands still keeps its bits."""

import pytest
import torch
from torch import nn

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.training import ReplicaAdam
from tests.graphs import assert_equal


class _Bag(nn.Module):
    def __init__(self, *values: torch.Tensor) -> None:
        super().__init__()
        self.values = nn.ParameterList(values)


@pytest.mark.parametrize("decay", [0.0, 0.01, (0.0, 0.02, 0.3)], ids=["none", "one", "per replica"])
def test_update_equals_torch(kernel_device: str, decay: float | tuple[float, ...]) -> None:
    torch.manual_seed(0)
    # More than one launch takes, so that there is a second.
    start = [torch.randn(3, 40, 30), torch.randn(3, 5), torch.randn(3, 1, 1), torch.randn(3, 1025)]
    start += [torch.randn(3, size) for size in range(1, 16)]
    fast = _Bag(*(value.clone().to(kernel_device) for value in start))
    slow = _Bag(*(value.double() for value in start))
    each = isinstance(decay, tuple)
    decays = torch.tensor(decay, dtype=torch.float64) if each else decay
    adams = [ReplicaAdam(bag, 3, weight_decay=decays) for bag in (fast, slow)]
    factors = torch.tensor([1.0, 0.1, 0.5]).double() if each else 1.0
    for step in range(4):
        active = torch.tensor([True, step % 2 == 0, step != 3])
        for i, value in enumerate(start):
            gradient = torch.randn_like(value)
            fast.values[i].grad, slow.values[i].grad = gradient.to(kernel_device), gradient.double()
        still = [value[1].detach().clone() for value in fast.values]
        for adam in adams:
            adam.set_rate(0.1 * factors / (step + 1))
        with use_kernels("always"):
            adams[0].step(active.to(kernel_device))
        adams[1].step(active)
        if not active[1]:
            for value, before in zip(fast.values, still, strict=True):
                assert torch.equal(value[1], before)
    for i in range(len(start)):
        assert_equal(fast.values[i].cpu().double(), slow.values[i], f"parameter {i}", 2e-6)
    assert adams[0].steps.tolist() == adams[1].steps.tolist() == [4, 2, 3]
