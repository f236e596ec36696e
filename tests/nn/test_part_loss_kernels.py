"""The option ``parts`` gives the same with and without kernels; unsupported cases fall back to torch."""

from typing import Any

import pytest
import torch

from graphcaps.nn import HGCN
from graphcaps.ops._triton.dispatch import use_kernels
from tests.graphs import assert_equal
from tests.nn.test_hgcn_kernels import TOLERANCE, _batch, _run
from tests.ops.conftest import kernel_device  # noqa: F401


@pytest.mark.slow
def test_kernels_change_nothing(kernel_device: str) -> None:  # noqa: F811
    given: dict[str, Any] = {"capsule_dim": 16, "num_capsules": (4,), "lead": (3,), "parts": "blocks"}
    torch.manual_seed(0)
    fast = HGCN(5, 3, **given).to(kernel_device)
    slow = HGCN(5, 3, **given)
    slow.load_state_dict({name: value.cpu() for name, value in fast.state_dict().items()})
    with use_kernels("off"):
        expected = _run(slow.double(), _batch(torch.float64, "cpu"))
    with use_kernels("always"):
        found = _run(fast, _batch(torch.float32, kernel_device))
    for name, value in expected.items():
        assert_equal(found[name], value, name, TOLERANCE)
