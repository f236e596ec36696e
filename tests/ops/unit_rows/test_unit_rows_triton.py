"""Rows of length 1 by the kernels against the torch form in float64."""

from __future__ import annotations

import pytest
import torch

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.ops.unit_rows.unit_rows import unit_rows
from tests.graphs import assert_equal


@pytest.fixture(autouse=True)
def _device(kernel_device: str, empty_is_nan: None) -> None:
    """Fills new memory with NaN, so that elements a kernel does not write are detected."""


@pytest.mark.parametrize("shape", [(7, 1), (2, 33, 20), (3, 2, 5, 130)], ids=str)
def test_values_and_gradients(shape: tuple[int, ...], kernel_device: str) -> None:
    torch.manual_seed(0)
    x, grad = torch.randn(shape), torch.randn(shape)
    x[0, 0], grad[0, 0] = 0, 0  # stays 0
    one, other = x.to(kernel_device).requires_grad_(), x.double().requires_grad_()
    with use_kernels("always"):
        actual = unit_rows(one)
        (gradient,) = torch.autograd.grad(actual, one, grad.to(kernel_device))
    with use_kernels("off"):
        expected = unit_rows(other)
        (wanted,) = torch.autograd.grad(expected, other, grad.double())
    assert_equal(actual.cpu().double(), expected, "rows", 2e-6)
    assert_equal(gradient.cpu().double(), wanted, "gradient", 2e-6)
