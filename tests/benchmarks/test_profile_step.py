"""The table of the kernels of a step."""

from __future__ import annotations

from benchmarks.profile_step import FIRST, show, step_sequence


def test_kernels_are_counted_per_step() -> None:
    kernels = [{"kernel": "a", "launches": 6, "us": 30.0}, {"kernel": "b", "launches": 3, "us": 6.0}]
    lines = show({"epoch_ms": 0.05, "kernels": kernels}, steps=3).splitlines()
    assert lines[1].split() == ["a", "2.0", "5.00", "10.00"]
    assert lines[2].split() == ["b", "1.0", "2.00", "2.00"]
    assert lines[3] == "epoch 0.05 ms, 0.04 ms of it in kernels; 3 steps"


def test_the_sequence_of_a_step_is_the_most_common_one() -> None:
    """The first step differs by a copy before it, and the evaluation has other kernels."""
    step = [(FIRST, 1.0), ("a", 2.0), ("a", 8.0)]
    slower = [(FIRST, 3.0), ("a", 4.0), ("a", 6.0)]
    events = [("copy", 9.0), *step, *slower, *step, (FIRST, 5.0), ("b", 7.0)]
    assert [(each["kernel"], each["us"]) for each in step_sequence(events)] == [
        (FIRST, 1),
        ("a", 2),
        ("a", 8),
    ]
    assert step_sequence([("copy", 9.0)]) == []
