"""The table of the kernels of a step."""

from __future__ import annotations

from benchmarks.profile_step import show


def test_kernels_are_counted_per_step() -> None:
    kernels = [{"kernel": "a", "launches": 6, "us": 30.0}, {"kernel": "b", "launches": 3, "us": 6.0}]
    lines = show({"epoch_ms": 0.05, "kernels": kernels}, steps=3).splitlines()
    assert lines[1].split() == ["a", "2.0", "5.00", "10.00"]
    assert lines[2].split() == ["b", "1.0", "2.00", "2.00"]
    assert lines[3] == "epoch 0.05 ms, 0.04 ms of it in kernels; 3 steps"
