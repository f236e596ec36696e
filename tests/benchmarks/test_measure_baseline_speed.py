"""Comparison with baselines: checked before timing, the same fold, measurements for the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.baselines import PaddedTraining
from benchmarks.measure_baseline_speed import BaselineTime, SpeedComparison, compare_speed

from benchmarks import measure_baseline_speed as baseline_speed
from graphcaps.bench import (
    Ceilings,
    CheckError,
    Count,
    PhaseTime,
    Speed,
    StepTime,
    phases,
    read_measurements,
    speed,
)
from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.errors import ArgumentError
from tests.graphs import random_graphs

CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,)},
    features=FeatureConfig(degree_onehot=4, propagation=1),
    training=TrainConfig(epochs=5, batch_size=4),
)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "_SECONDS", 0.0)
    monkeypatch.setattr(speed, "measure_ceilings", lambda device: Ceilings(1e10, 1e11))


def _compare(*baselines: str) -> SpeedComparison:
    store = random_graphs([9, 12, 5, 6, 2, 8, 7, 11, 6, 10, 4, 13], seed=1).as_store()
    return compare_speed(store, CONFIG, baselines, folds=3, epochs=2)


def test_baselines_are_compared_with_an_epoch_of_one_fold() -> None:
    comparison = _compare("padded", "gin")
    ours = comparison.speed.seconds / 3
    assert [baseline.name for baseline in comparison.baselines] == ["padded", "torch-geometric gin"]
    for baseline in comparison.baselines:
        assert baseline.times == pytest.approx(baseline.seconds / ours)
    names = [row["what"] for row in comparison.measurements("command")]
    assert "bench: an epoch of 3 folds" in names
    assert "bench: an epoch of one fold, padded" in names
    assert "bench: a fold's epoch, times faster than torch-geometric gin" in names
    assert [row["name"] for row in comparison.as_dict()["baselines"]] == ["padded", "torch-geometric gin"]


def test_a_baseline_that_fails_its_check_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: PaddedTraining) -> None:
        raise CheckError("padded: wrong.")

    monkeypatch.setattr(PaddedTraining, "_check", fail)
    with pytest.raises(CheckError, match="wrong"):
        _compare("padded")


def test_padded_graphs_that_would_fill_the_memory_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_speed, "total_memory", lambda device: 10)
    comparison = _compare("padded")
    assert comparison.baselines == ()
    assert comparison.notes == ("padded is skipped: its graphs would take more than half of the memory.",)


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'baselines' must be some of padded, gin, diffpool, sagpool"):
        _compare("gcn")


@pytest.fixture
def constant(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Calls of ``compare_speed``, which returns constant values."""
    calls: list[tuple[str, ...]] = []

    def compare(store: Any, config: Any, baselines: Any, *, device: str) -> SpeedComparison:
        calls.append((store.name, *baselines, device))
        whole = PhaseTime("whole", 0.004, Count(4e6, 3e6), 0.001)
        measured = Speed(
            store.name, device, config.source, 10, 2.0, 1620.0, 5 * 10**8, "resident peak of the process",
            Ceilings(8e9, 6e10), StepTime((), whole), 10,
        )  # fmt: skip
        return SpeedComparison(measured, (BaselineTime("gin", 0.5, 2.5),), ("padded is skipped.",))

    monkeypatch.setattr(baseline_speed, "compare_speed", compare)
    return calls


def test_the_program_prints_a_table_and_merges_its_measurements(
    constant: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "performance.json"
    baseline_speed.main(["--device", "cpu", "--baselines", "padded,gin", "--out", str(out)])
    assert constant == [("planted-parts", "padded", "gin", "cpu")]
    printed = capsys.readouterr().out
    assert ["gin", "0.5000", "2.50", "×"] in [line.split() for line in printed.splitlines()]
    assert "planted-parts: padded is skipped." in printed
    commands = {row["command"] for row in read_measurements(out)}
    assert commands == {
        "python -m benchmarks.measure_baseline_speed planted-parts --device cpu --baselines padded,gin"
    }
    baseline_speed.main(["--device", "cpu", "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["baselines"] == [{"name": "gin", "seconds": 0.5, "times": 2.5}]


@pytest.mark.parametrize("baselines", ["gcn", "gin,gin"])
def test_a_wrong_list_of_baselines_is_one_sentence(
    baselines: str, constant: list[tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        baseline_speed.main(["--baselines", baselines])
    assert raised.value.code == 2
    assert "list some of padded, gin, diffpool, sagpool, each once" in capsys.readouterr().err
    assert constant == []
