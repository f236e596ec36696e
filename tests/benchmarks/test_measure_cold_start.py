"""The program that measures a first GPU training, on a CPU."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from benchmarks.measure_cold_start import PHASES, Run, _describe, _time_calls, measure

from benchmarks import measure_cold_start


def test_calls_are_timed_by_phase() -> None:
    module, seconds = ModuleType("measured"), iter([10.0, 12.0, 20.0, 25.0])
    module.__dict__["work"] = lambda x: 2 * x
    run = Run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "measured", module)
        patch.setattr(measure_cold_start, "time", SimpleNamespace(time=lambda: next(seconds)))
        _time_calls(run, "work", "measured", "work", began=4.0)
        assert [module.work(3), module.work(4)] == [6, 8]
    phase = run.phases["work"]
    assert (phase.began, phase.calls, phase.seconds, phase.first) == (6.0, 2, 7.0, 2.0)


def test_the_description_counts_compilations() -> None:
    numbers = {"began": 1.0, "calls": 2, "seconds": 3.0, "first": 2.5}
    compilations = {"a": [2, 1.5], "b": [1, 0.25]}
    run = {"total": 9.0, "phases": {"record": numbers}, "compilations": compilations, "cache_hits": 0}
    first, second = _describe("empty", run).splitlines()
    assert first == "empty: 9.00 s, 3 compilations, 1.8 s"
    assert " ".join(second.split()) == "record from 1.00 s: 2 × 3.00 s, first 2.50 s"


@pytest.mark.slow  # a process that imports everything
def test_a_run_reports_phases_and_writes_into_its_cache(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    out = shlex.quote(str(tmp_path / "out"))
    run = measure(f"evaluate planted-parts --folds 3 --epochs 1 --device cpu --out {out}", tmp_path / "cache")
    assert {"imports", "read data", "make trainer"} <= set(run["phases"])
    assert set(run["phases"]) <= {"start Python", "imports", *PHASES}
    assert run["total"] > run["phases"]["imports"]["seconds"]
    assert run["compilations"] == {}
    assert list((tmp_path / "out").iterdir())
