"""What the tests of the kernels share: where they run."""

from __future__ import annotations

import pytest
import torch

from graphcaps.ops.kernels import have_triton


@pytest.fixture
def kernel_device() -> str:
    """The GPU, or the CPU under Triton's interpreter; skips where there is no Triton."""
    if not have_triton():
        pytest.skip("Triton is not installed: pip install triton")
    return "cuda" if torch.cuda.is_available() else "cpu"
