"""The comparison of trainings by several processes."""

from __future__ import annotations

import pytest
from benchmarks.measure_several_gpus import compare


def history(loss: float, *seconds: float) -> list[dict[str, float]]:
    return [{"train_loss": loss, "seconds": each} for each in seconds]


def test_the_first_epoch_is_not_timed():
    result = compare({1: history(0.5, 9, 2, 2, 2), 2: history(0.5001, 9, 1, 1, 1)})
    assert result["2"] == {"seconds_per_epoch": 1, "speedup": 2}
    assert result["1"]["speedup"] == 1


def test_a_run_with_another_loss_is_not_timed():
    with pytest.raises(SystemExit, match="nothing is timed"):
        compare({1: history(0.5, 1, 1), 2: history(0.6, 1, 1)})
