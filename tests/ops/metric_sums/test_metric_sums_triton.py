"""Accumulated metrics: the kernel against torch."""

import pytest
import torch

from graphcaps.ops._triton.dispatch import use_kernels
from graphcaps.training.epoch_metrics import EpochMetrics
from graphcaps.types import LossTerms


@pytest.mark.parametrize(("B", "classes"), [(1, 2), (130, 3), (16, 6)])
def test_kernel_equals_torch(kernel_device: str, B: int, classes: int) -> None:
    accumulators = [EpochMetrics(4, torch.device(device)) for device in (kernel_device, "cpu")]
    generator = torch.Generator().manual_seed(B)
    for step in range(3):
        scores = torch.rand(4, B, classes, generator=generator).round(
            decimals=1
        )  # ties go to the first class
        y = torch.randint(-1, classes, (4, B), generator=generator)
        y[3] = -1
        values = torch.rand(2, 4, generator=generator)
        if step == 1:
            values[1, 2] = float("nan")
        if step == 2:
            values[0, 0] = float("inf")
        for metrics, mode in zip(accumulators, ("always", "off"), strict=True):
            where = metrics.correct.device
            moved = values.to(where)
            with use_kernels(mode):  # type: ignore[arg-type]
                metrics.add(LossTerms(moved[0], {"margin": moved[1]}), scores.to(where), y.to(where))
    actual, expected = (metrics.read() for metrics in accumulators)
    assert actual["correct"].tolist() == expected["correct"].tolist()
    assert actual["finite_steps"] == expected["finite_steps"] == {"total": 2.0, "margin": 2.0}
    for name in ("total", "margin"):
        assert torch.allclose(actual["sums"][name], expected["sums"][name], rtol=1e-12, equal_nan=True), name
