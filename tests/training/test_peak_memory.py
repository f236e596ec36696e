"""Peak memory of a block: what it allocates is seen, and overlapping measurements give nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphcaps.training.peak_memory import PeakMemory

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")


def test_a_large_tensor_counts_also_if_it_is_gone_at_the_end() -> None:
    with PeakMemory(CPU) as before:
        pass
    with PeakMemory(CPU) as memory:
        torch.ones(200_000_000, dtype=torch.uint8)
    with PeakMemory(CPU) as after:
        pass
    assert before.bytes is not None
    assert memory.bytes is not None
    assert after.bytes is not None
    assert memory.bytes > before.bytes + 150_000_000
    assert (
        after.bytes < memory.bytes - 150_000_000
    )  # the peak is that of the block, not of the process so far


def test_workers_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.training.peak_memory._children", lambda: ["self"])  # itself, a second time
    with PeakMemory(CPU) as memory:
        memory.sample()
    with PeakMemory(CPU) as alone:
        pass
    assert memory.bytes is not None
    assert alone.bytes is not None
    assert memory.bytes > 1.2 * alone.bytes


def test_two_at_a_time_give_nothing() -> None:
    with PeakMemory(CPU) as outer, PeakMemory(CPU) as inner:
        pass
    assert (outer.bytes, inner.bytes) == (None, None)
    with PeakMemory(CPU) as alone:
        pass
    assert alone.bytes is not None
