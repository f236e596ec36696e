"""Ceilings: bytes and operations by the clock, and the roofline of a pair of numbers."""

from __future__ import annotations

import itertools

import pytest
import torch

from graphcaps.bench import Ceilings, measure_ceilings, roofline
from graphcaps.errors import ArgumentError

CPU = torch.device("cpu")


def test_the_longer_of_the_two_counts() -> None:
    found = Ceilings(bandwidth=100.0, rate=1000.0)
    assert found.seconds(200, 1000) == 2.0
    assert found.seconds(200, 5000) == 5.0


def test_rates_follow_from_the_best_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pairs of readings: the runs of the copy take 4, 2 and 3 seconds, those of the product 8, 16 and 5.
    lengths = (4, 2, 3, 8, 16, 5)
    readings = itertools.chain.from_iterable((100.0 * k, 100.0 * k + s) for k, s in enumerate(lengths))
    monkeypatch.setattr(roofline.time, "perf_counter", lambda: next(readings))
    found = measure_ceilings(CPU, copy_bytes=4000, matmul_size=10, repeats=3)
    assert found.bandwidth == 2 * 4000 / 2
    assert found.rate == 2 * 10**3 / 5


def test_a_real_measurement_is_positive() -> None:
    found = measure_ceilings(CPU, copy_bytes=10**6, matmul_size=64, repeats=2)
    assert found.bandwidth > 0
    assert found.rate > 0


def test_no_runs_are_refused() -> None:
    with pytest.raises(ArgumentError, match="measure_ceilings: 'repeats' must be at least 1, got 0"):
        measure_ceilings(CPU, repeats=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_measured_too() -> None:
    assert measure_ceilings(torch.device("cuda"), copy_bytes=10**8, matmul_size=1024).bandwidth > 1e9
