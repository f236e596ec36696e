"""The recorder's pool of memory: shared while a replay is left, and never used again after the last is gone."""

from __future__ import annotations

import contextlib
import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from graphcaps.training.cuda_graphs import CudaGraphRecorder


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """torch.cuda without a GPU: how many graphs each pool has, as torch's allocator counts them."""
    counts: dict[int, int] = {}

    class Graph:
        pool: int | None = None

        def capture_begin(self, pool: int, capture_error_mode: str) -> None:
            assert counts.get(pool) != 0, "a pool that died with its last graph"  # torch's INTERNAL ASSERT
            counts[pool] = counts.get(pool, 0) + 1
            self.pool = pool

        def capture_end(self) -> None: ...

        def replay(self) -> None: ...

        def __del__(self) -> None:
            if self.pool is not None:
                counts[self.pool] -= 1

    stream = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: None)
    handles = iter(range(100))
    for name, value in {
        "CUDAGraph": Graph,
        "Stream": lambda: stream,
        "current_stream": lambda: stream,
        "stream": lambda given: contextlib.nullcontext(),
        "graph_pool_handle": lambda: next(handles),
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return counts


def test_replays_share_a_pool_as_long_as_one_is_left(pools: dict[int, int]) -> None:
    recorder, calls = CudaGraphRecorder(), []
    first = recorder.record(lambda: calls.append("a"))
    second = recorder.record(lambda: calls.append("b"))
    assert calls == ["a", "a", "b", "b"]  # once to warm up, once captured
    assert pools == {0: 2}
    del first
    third = recorder.record(lambda: None)
    assert pools == {0: 2}
    del second, third
    assert pools == {0: 0}  # nothing of the recorder keeps the memory


def test_a_replay_after_all_others_are_gone_has_a_pool_of_its_own(pools: dict[int, int]) -> None:
    recorder = CudaGraphRecorder()
    for _ in range(3):
        recorder.record(lambda: None)()
        gc.collect()
    assert pools == {0: 0, 1: 0, 2: 0}


def test_a_capture_that_fails_spoils_nothing(pools: dict[int, int]) -> None:
    recorder = CudaGraphRecorder()
    times = iter((True, False))

    def body() -> None:
        if not next(times):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        recorder.record(body)
    gc.collect()
    kept = recorder.record(lambda: None)
    assert 1 in pools.values()
    kept()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_captures_follow_each_other() -> None:
    recorder = CudaGraphRecorder()
    total: Any = torch.zeros(3, device="cuda")
    for _ in range(3):  # the graph of the round before is gone

        def body() -> None:
            total.add_(torch.ones(3, device="cuda") * 2)

        total.zero_()
        replay = recorder.record(body)
        total.zero_()
        replay()
        replay()
        assert total.tolist() == [4.0, 4.0, 4.0]
        del replay
