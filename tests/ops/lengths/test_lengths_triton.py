"""Lengths of capsules and their gradient are those of torch."""

from __future__ import annotations

import pytest
import torch

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.lengths.lengths import lengths
from tests.graphs import assert_equal


@pytest.mark.parametrize("shape", [(7, 3, 128), (2, 5, 4, 8), (1, 33), (300, 20)])
def test_lengths_equal_torch(kernel_device: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    u = torch.randn(shape)
    u[..., 0, :] = 0
    gradient = torch.randn(shape[:-1])
    reference = u.double().requires_grad_()
    with use_kernels("off"):
        expected = lengths(reference)
    expected.backward(gradient.double())
    leaf = u.to(kernel_device).requires_grad_()
    with use_kernels("always"):
        actual = lengths(leaf)
    actual.backward(gradient.to(kernel_device))
    assert_equal(actual.detach().cpu().double(), expected.detach(), "lengths", 1e-6)
    assert leaf.grad is not None
    assert reference.grad is not None
    assert_equal(leaf.grad.cpu().double(), reference.grad, "gradient", 1e-6)


def test_nan_stays_nan(kernel_device: str) -> None:
    u = torch.tensor([[1.0, float("nan")], [3.0, 4.0]], device=kernel_device, requires_grad=True)
    with use_kernels("always"):
        actual = lengths(u)
    actual.sum().backward()
    assert u.grad is not None
    assert actual[0].isnan()
    assert u.grad[0].isnan().all()
    assert actual[1] == 5
    assert torch.allclose(u.grad[1].cpu(), torch.tensor([0.6, 0.8]))
