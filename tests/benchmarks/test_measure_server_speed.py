"""Speed of a server: the best of the rounds of each part, and an error if a request fails."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.measure_server_load import Round

from benchmarks import measure_server_speed as program


def answered(requests: int, good: int, seconds: float, median: float) -> Round:
    return Round(requests, requests, good, 0, seconds, median, median, median, 0.0)


def test_the_best_round_of_each_part_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    medians, parts = iter([9.0, 5.0, 40.0, 6.0, 30.0]), []

    @contextmanager
    def server(*_: Any) -> Iterator[tuple[int, int]]:
        yield 1, 2

    def run(port: int, requests: Sequence[Any], *, concurrent: int, server: int) -> Round:
        parts.append((concurrent, len(requests)))
        median = next(medians)
        return answered(len(requests), len(requests), median / 10, median)

    spent = iter([0.0, 0.1, 1.0, 1.1, 2.0, 2.2, 3.0, 3.05])
    monkeypatch.setattr(program, "running_server", server)
    monkeypatch.setattr(program, "run_round", run)
    monkeypatch.setattr(program, "cpu_seconds", lambda _: next(spent))
    values = program.measure(Path("m"), ["C"], requests=20, concurrent=4, rounds=2, workers=1)
    assert parts == [(4, 16), (1, 20), (4, 20), (1, 20), (4, 20)]
    assert values["server: one request after another, median response"] == (5.0, "ms")
    assert values["server: one request after another, rate"] == (40.0, "requests/s")
    assert values["server: 4 concurrent requests, median response"] == (30.0, "ms")
    assert values["server: 4 concurrent requests, CPU time of a request"] == (2.5, "ms")


def test_a_request_without_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "run_round", lambda *_, **__: answered(8, 7, 1.0, 1.0))
    with pytest.raises(SystemExit, match="1 of 8 requests failed"):
        program._round(1, [], 1, 1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs the process table of Linux")
def test_cpu_time_of_a_process() -> None:
    before = program.cpu_seconds(os.getpid())
    sum(range(3_000_000))
    assert before <= program.cpu_seconds(os.getpid())
