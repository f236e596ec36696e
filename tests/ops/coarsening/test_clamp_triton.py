"""The clamp of the coarse adjacency by a kernel is that of torch."""

from __future__ import annotations

import pytest
import torch

from graphcaps.ops import clamp_adjacency
from graphcaps.ops._triton.dispatch import use_kernels


@pytest.mark.parametrize("shape", [(3, 4, 10, 10), (2, 1, 1), (2, 5, 33, 33)])
def test_the_clamp_equals_torch(kernel_device: str, empty_is_nan: None, shape: tuple[int, ...]) -> None:
    A = (3 * torch.rand(shape) - 1).to(kernel_device)
    A.view(-1)[-2:] = float("nan")
    with use_kernels("always"):
        actual = clamp_adjacency(A)
    with use_kernels("off"):
        expected = clamp_adjacency(A)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
