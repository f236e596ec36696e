"""Leased streams: no two living leases share one, although torch hands out the same streams again and again."""

from __future__ import annotations

import gc
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from graphcaps.training import cuda_streams
from graphcaps.training.cuda_streams import CAPTURE_PRIORITY, StreamPool, lease_side_streams, lease_stream
from graphcaps.training.step import TrainingError


def _pool(size: int) -> StreamPool:
    """A pool over streams that repeat after ``size``, as those of torch do after 32."""
    numbers = count()
    create: Any = lambda priority: SimpleNamespace(cuda_stream=next(numbers) % size)  # noqa: E731
    return StreamPool(create, size)


def test_living_leases_have_distinct_streams() -> None:
    pool = _pool(4)
    kept = pool.lease()
    for _ in range(20):  # each of these is dropped at once
        assert pool.lease().stream.cuda_stream != kept.stream.cuda_stream
    others = [pool.lease() for _ in range(3)]
    assert len({lease.stream.cuda_stream for lease in (kept, *others)}) == 4


def test_a_dropped_lease_returns_its_stream() -> None:
    pool = _pool(1)
    first = pool.lease()
    with pytest.raises(TrainingError, match=r"All 1 CUDA streams of this process are in use; start fewer"):
        pool.lease()
    del first
    assert pool.lease().stream.cuda_stream == 0


def test_priorities_may_share_streams() -> None:
    """As on a GPU that has fewer of them: a stream has one lease whatever priority it was leased with."""
    pool = _pool(4)
    leases = [pool.lease(priority) for priority in (0, -1, -2, -2)]
    assert len({lease.stream.cuda_stream for lease in leases}) == 4


def test_captures_leave_a_stream_to_each_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many trainings as a priority has streams; those without free side streams have fewer branches."""
    numbers: dict[int, Iterator[int]] = defaultdict(count)
    create: Any = lambda priority: SimpleNamespace(cuda_stream=(priority, next(numbers[priority]) % 32))  # noqa: E731
    monkeypatch.setattr(cuda_streams, "_pools", {0: StreamPool(create)})
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr(gc, "collect", lambda: 0)  # takes long in a process with many tests
    trainings = [
        (lease_stream(), lease_stream(priority=CAPTURE_PRIORITY), lease_side_streams()) for _ in range(32)
    ]
    branches = [len(sides) for _, _, sides in trainings]
    assert branches[:16] == [3] * 16
    assert branches[16:] == [1] * 16


def test_leases_in_reference_cycles_are_collected_before_giving_up() -> None:
    pool = _pool(1)
    gc.disable()
    try:
        cycle: dict[str, Any] = {"lease": pool.lease()}
        cycle["self"] = cycle
        del cycle
        assert pool.lease().stream.cuda_stream == 0
    finally:
        gc.enable()


def test_threads_never_hold_the_same_stream() -> None:
    pool, held, clashes = _pool(8), set[int](), list[int]()
    lock = threading.Lock()

    def work() -> None:
        for _ in range(200):
            lease = pool.lease()
            number = lease.stream.cuda_stream
            with lock:
                if number in held:
                    clashes.append(number)
                held.add(number)
            time.sleep(1e-4)  # others lease in the meantime
            with lock:
                held.discard(number)
            del lease

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
