"""The program that checks routing kernels with many output capsules, under the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from benchmarks.check_wide_kernels import MARGIN, Case, GuardedAllocations, check

pytest.importorskip("triton")

from benchmarks import check_wide_kernels
from graphcaps.ops.routing import weighted_sum_triton

CASE = Case(33, (20, 12), "float32")


@pytest.fixture(autouse=True)
def _wide(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_wide_kernels, "SIZES", (0, 3, 33))


@pytest.mark.slow  # interpreted
def test_the_kernel_with_many_capsules_equals_the_factored_form(kernel_device: str) -> None:
    assert check(CASE, kernel_device) == "equal"


@pytest.mark.slow  # interpreted
def test_a_wrong_value_is_found(kernel_device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = weighted_sum_triton.input_gradient

    def wrong(*args: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        dh, dres = right(*args)
        dh[0, -1, -1] += 1
        return dh, dres

    monkeypatch.setattr("graphcaps.ops.routing.route_triton.input_gradient", wrong)
    assert check(CASE, kernel_device).startswith("gradient of h differ by")


def test_a_write_beyond_a_tensor_is_found() -> None:
    guards = GuardedAllocations()
    with guards:
        tensor = torch.empty(4, 3)
        assert bool(tensor.isnan().all())
        assert tensor.shape == (4, 3)
    assert guards.is_intact()
    for offset in (MARGIN - 1, MARGIN + 12):
        guards._buffers[0][0][offset] = 0.0
        assert not guards.is_intact()
        guards._buffers[0][0][offset] = check_wide_kernels.MARKER
