"""The margin loss in one kernel is that of torch: loss and gradient, padding graphs, replicas without graphs."""

from typing import Any

import pytest
import torch

from graphcaps.nn.losses import margin_loss
from graphcaps.ops._triton.dispatch import use_kernels
from tests.graphs import assert_equal


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize(("lead", "each"), [((), False), ((3,), False), ((3,), True)])
@pytest.mark.parametrize(("B", "classes"), [(1, 2), (16, 3), (130, 6), (257, 1)])
def test_margin_loss(kernel_device: str, lead: tuple[int, ...], each: bool, B: int, classes: int) -> None:
    margins: dict[str, Any] = {}
    if each:
        margins = {"upper": torch.tensor([0.9, 0.5, 0.7]), "lower": torch.tensor([0.1, 0.3, 0.2])}
        margins = {name: margin.double() for name, margin in margins.items()}
    generator = torch.Generator().manual_seed(B)
    scores = torch.rand(*lead, B, classes, generator=generator)
    y = torch.randint(-1, classes, (*lead, B), generator=generator)
    if lead:
        y[1] = -1
    scores = scores.masked_fill((y < 0).unsqueeze(-1), float("nan"))
    exact = scores.double().requires_grad_()
    weights = torch.arange(1, 1 + max(1, *lead) if lead else 2).double()[: lead[0] if lead else 1]
    with use_kernels("off"):
        clean = exact.masked_fill((y < 0).unsqueeze(-1), 0.5)
        expected = margin_loss(clean, y, **margins)
    (expected * weights.reshape(expected.shape)).sum().backward()
    fast = scores.to(kernel_device).requires_grad_()
    with use_kernels("always"):
        moved = {name: margin.to(kernel_device) for name, margin in margins.items()}
        actual = margin_loss(fast, y.to(kernel_device), **moved)
    (actual * weights.float().to(kernel_device).reshape(actual.shape)).sum().backward()
    assert_equal(actual.cpu().double(), expected, "loss", 1e-6)
    assert fast.grad is not None
    assert exact.grad is not None
    assert_equal(fast.grad.cpu().double(), exact.grad.masked_fill((y < 0).unsqueeze(-1), 0), "gradient", 1e-6)


def test_a_nan_score_gives_a_nan_loss(kernel_device: str) -> None:
    scores = torch.tensor([[[0.5, float("nan")]], [[0.5, 0.1]]], device=kernel_device)
    with use_kernels("always"):
        actual = margin_loss(scores, torch.zeros(2, 1, dtype=torch.long, device=kernel_device))
    assert actual.isnan().tolist() == [True, False]
