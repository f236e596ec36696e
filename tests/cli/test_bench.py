"""``graphcaps bench``: tables, JSON, the file of measurements, and errors in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import graphcaps.bench
from graphcaps.bench import Ceilings, Count, PhaseTime, Scaling, Speed, StepTime, read_measurements
from graphcaps.cli.bench import show_speed
from graphcaps.cli.main import app
from graphcaps.cli.output import terminal

pytestmark = pytest.mark.usefixtures("isolated_folders")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "120"})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Calls of ``measure_speed``, which returns constant values."""
    calls: list[dict[str, Any]] = []

    def measure(store: Any, config: Any, **arguments: Any) -> Speed:
        calls.append({"store": store.name, "source": config.source} | arguments)
        phases = (
            PhaseTime("hop", 0.002, Count(4e6, 3e6), 0.0005),
            PhaseTime("rest", 0.001, Count(0, 0), 0.0),
        )
        step = StepTime(phases, PhaseTime("whole", 0.004, Count(4e6, 3e6), 0.001))
        return Speed(
            store.name, "cpu", config.source, 10, 2.0, 1620.0, 5 * 10**8, "resident peak of the process",
            Ceilings(8e9, 6e10), step, 10,
        )  # fmt: skip

    monkeypatch.setattr(graphcaps.bench, "measure_speed", measure)
    return calls


def test_planted_parts_by_default(measured: list[dict[str, Any]]) -> None:
    done = run("--device", "cpu")
    assert done.exit_code == 0, done.output
    assert [(call["store"], call["device"]) for call in measured] == [("planted-parts", "cpu")]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert "planted-parts: 2.0000 s per epoch of 10 folds, 1,620 graphs/s, resident peak" in done.stdout
    assert "8.0 GB/s copied, 60 Gop/s" in done.stdout
    assert ["hop", "2.000", "4.00", "3.0", "25.0", "%"] in lines
    assert ["rest", "1.000", "0.00", "0.0", "–"] in lines
    assert ["whole", "4.000", "4.00", "3.0", "25.0", "%"] in lines
    assert "above 100 %" not in done.stdout


def test_a_phase_above_the_roofline_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    phases = (PhaseTime("update", 0.001, Count(23e6, 10e6), 0.002),)
    step = StepTime(phases, PhaseTime("whole", 0.001, Count(23e6, 10e6), 0.001))
    speed = Speed("s", "cpu", "paper", 10, 2.0, 1620.0, None, "peak", Ceilings(8e9, 6e10), step, 10)
    show_speed(terminal(), speed)
    assert "A phase above 100 %: its data are in a cache" in capsys.readouterr().out


def test_several_sets_as_json_and_into_a_file(measured: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "new" / "performance.json"
    sets = ("planted-parts-easy", "planted-parts-hard")
    done = run(*sets, "--device", "cpu", "--json", "--out", str(out))
    assert done.exit_code == 0, done.output
    measurements = json.loads(done.stdout)
    assert [one["dataset"] for one in measurements] == [*sets]
    assert measurements[0]["step"]["phases"][0]["share"] == 0.25
    assert [call["store"] for call in measured] == [*sets]
    entries = read_measurements(out)
    assert {one["dataset"] for one in entries} == {*sets}
    assert entries[0]["command"] == "graphcaps bench planted-parts-easy --device cpu"


def test_the_precision_is_passed_on_and_recorded(
    measured: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = graphcaps.bench.measure_speed
    precisions = []

    def recording(store: Any, config: Any, **arguments: Any) -> Speed:
        precisions.append(config.training.precision)
        return replace(measure(store, config, **arguments), precision="tf32")

    monkeypatch.setattr(graphcaps.bench, "measure_speed", recording)
    out = tmp_path / "performance.json"
    done = run("--device", "cpu", "--precision", "tf32", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert precisions == ["tf32"]
    entries = read_measurements(out)
    assert entries[0]["what"] == "bench: an epoch of 10 folds, tf32"
    assert entries[0]["command"].endswith("--device cpu --precision tf32")


def test_scaling_prints_and_stores_a_row_per_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [
        Scaling(100, 200, "cpu", False, 0.002, 10**6),
        Scaling(1000, 2000, "cpu", True, 0.022, 12 * 10**6, 1.1, 1.2),
    ]
    monkeypatch.setattr(graphcaps.bench, "measure_scaling", lambda device: rows)
    out = tmp_path / "performance.json"
    done = run("--scaling", "--device", "cpu", "--out", str(out))
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["1,000", "2,000", "22.00", "1.10", "12.0", "MB", "1.20", "sampled"] in lines
    entries = read_measurements(out)
    assert entries[0]["command"] == "graphcaps bench --scaling --device cpu"
    assert {one["dataset"] for one in entries} == {"one graph of 100 nodes", "one graph of 1000 nodes"}
    result = run("--scaling", "--device", "cpu", "--json")
    assert [row["nodes"] for row in json.loads(result.stdout)] == [100, 1000]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rivals", "gin"), "No such option"),
        (("--device", "tpu"), "bench: '--device' must be cpu, cuda or auto, got 'tpu'"),
        (("planted-parts", "planted-parts"), "'NAME' must be given once each, got 'planted-parts' twice"),
        (("--speed",), "No such option"),
        (("planted-parts", "--scaling"), "'--scaling' must come without data sets, got 'planted-parts'"),
        (("--precision", "half"), "'--precision' must be one of float32, tf32, bf16, got 'half'"),
        (("--out", "."), "expected a file to write measurements to, found a folder"),
    ],
)
def test_invalid_arguments_end_with_2_and_one_sentence(
    measured: list[dict[str, Any]], arguments: tuple[str, ...], sentence: str
) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert measured == []


def test_the_help_has_an_example() -> None:
    assert "Example: graphcaps bench MUTAG --device cpu" in run("--help").stdout


@pytest.mark.slow
def test_bench_measures_an_embedded_set() -> None:
    done = run("planted-parts-easy", "--device", "cpu", "--json")
    assert done.exit_code == 0, done.output
    (measurement,) = json.loads(done.stdout)
    assert 0 < measurement["step"]["whole"]["share"] < 1
