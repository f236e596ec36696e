"""``graphcaps bench``: the tables, JSON, the file of figures, and refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import graphcaps.bench
from graphcaps.bench import Ceilings, Count, PhaseTime, RivalTime, Speed, StepTime, read_entries
from graphcaps.cli.main import app

pytestmark = pytest.mark.usefixtures("own_folders")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "120"})


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Calls of a clock that always reads the same."""
    calls: list[dict[str, Any]] = []

    def measure(store: Any, config: Any, **arguments: Any) -> Speed:
        calls.append({"store": store.name, "source": config.source} | arguments)
        phases = (
            PhaseTime("hop", 0.002, Count(4e6, 3e6), 0.0005),
            PhaseTime("rest", 0.001, Count(0, 0), 0.0),
        )
        step = StepTime(phases, PhaseTime("whole", 0.004, Count(4e6, 3e6), 0.001))
        rivals = tuple(RivalTime(name, 0.5, 2.5) for name in arguments["rivals"])
        return Speed(
            store.name, "cpu", config.source, 10, 2.0, 1620.0, 5 * 10**8, "resident peak of the process",
            Ceilings(8e9, 6e10), step, 10, rivals, ("padded is left out.",),
        )  # fmt: skip

    monkeypatch.setattr(graphcaps.bench, "measure_speed", measure)
    return calls


def test_planted_parts_beside_gin_by_default(measured: list[dict[str, Any]]) -> None:
    done = run("--device", "cpu")
    assert done.exit_code == 0, done.output
    assert [(call["store"], call["rivals"], call["device"]) for call in measured] == [
        ("planted-parts", ["gin"], "cpu")
    ]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert "planted-parts: 2.0000 s an epoch of 10 folds, 1,620 graphs/s, resident peak" in done.stdout
    assert "8.0 GB/s copied, 60 Gop/s" in done.stdout
    assert ["hop", "2.000", "4.00", "3.0", "25.0", "%"] in lines
    assert ["rest", "1.000", "0.00", "0.0", "–"] in lines
    assert ["whole", "4.000", "4.00", "3.0", "25.0", "%"] in lines
    assert ["gin", "0.5000", "2.50", "×"] in lines
    assert "planted-parts: padded is left out." in done.stdout


def test_several_sets_as_json_and_into_a_file(measured: list[dict[str, Any]], tmp_path: Path) -> None:
    out = tmp_path / "figures" / "performance.json"
    sets = ("planted-parts-easy", "planted-parts-hard")
    done = run(*sets, "--device", "cpu", "--rivals", "none", "--json", "--out", str(out))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["dataset"] for one in found] == [*sets]
    assert found[0]["step"]["phases"][0]["share"] == 0.25
    assert [call["rivals"] for call in measured] == [[], []]
    entries = read_entries(out)
    assert {one["dataset"] for one in entries} == {*sets}
    assert entries[0]["command"] == "graphcaps bench planted-parts-easy --device cpu --rivals none"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("--rivals", "gcn"),
            "'--rivals' must name some of padded, gin, diffpool, sagpool once each, or none",
        ),
        (("--rivals", "gin,gin"), "once each"),
        (("--device", "tpu"), "bench: 'device' must be cpu, cuda or auto, got 'tpu'"),
        (("planted-parts", "planted-parts"), "'NAME' must be given once each, got 'planted-parts' twice"),
        (("--speed",), "No such option"),
        (("--out", "."), "expected a file to write figures to, found a folder"),
    ],
)
def test_a_mistake_is_one_sentence(
    measured: list[dict[str, Any]], arguments: tuple[str, ...], sentence: str
) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert measured == []


def test_the_help_has_an_example() -> None:
    assert "Example: graphcaps bench MUTAG --rivals gin,diffpool" in run("--help").stdout


@pytest.mark.slow
def test_the_real_clock_runs() -> None:
    done = run("planted-parts-easy", "--device", "cpu", "--rivals", "none", "--json")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert 0 < found["step"]["whole"]["share"] < 1
