"""Speed of networks: extrapolated from the first epochs, with what precedes them, and shown on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.measure_model_speed import main, measurement_name
from benchmarks.pages import comparison

from benchmarks import measure_model_speed
from graphcaps.bench import make_measurement, merge_measurements, read_measurements
from graphcaps.training.replica_trainer import ReplicaTrainer


def test_times_are_extrapolated_and_networks_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def time_epochs(trainer: ReplicaTrainer, warm_up: int, epochs: int) -> tuple[list[float], list[float]]:
        assert len(trainer.replicas) == 10
        assert trainer.config.epochs == 100
        return [5.0] * warm_up, [1.0, 2.0, 9.0][:epochs]

    monkeypatch.setattr(measure_model_speed, "time_epochs", time_epochs)
    out = tmp_path / "speed.json"
    words = ["--dataset", "planted-parts", "--models", "mlp", "--device", "cpu", "--epochs", "100"]
    words += ["--warm-up", "4", "--timed", "3", "--out", str(out)]
    main(words)
    values = {row["what"]: row["value"] for row in read_measurements(out)}
    name = measurement_name("mlp", 100, "float32")
    assert values[f"{name}: training and evaluation"] == 4 * 5 + 96 * 2
    assert values[f"{name}: before the first epoch"] > 0
    assert "mlp: 212.0 s" in capsys.readouterr().out
    main(words)
    main([*words, "--again", "--budget", "0"])
    assert capsys.readouterr().out == "mlp: in the file\nmlp: in the file\n"


def test_one_epoch_is_really_trained(tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    words = ["--dataset", "planted-parts", "--models", "mlp", "--device", "cpu", "--epochs", "3"]
    main([*words, "--warm-up", "1", "--timed", "1", "--out", str(out)])
    rows = read_measurements(out)
    assert {row["unit"] for row in rows} >= {"s"}
    assert all(row["value"] > 0 for row in rows)


def test_the_page_shows_the_measurements(tmp_path: Path) -> None:
    assert comparison.speed(tmp_path) == ""
    name = measurement_name("asap", 300, "tf32")
    rows = [
        make_measurement(f"{name}: {what}", "NCI1", "cpu", value, unit, "python -m x") | {"device": "cuda"}
        for what, value, unit in (("training and evaluation", 171.26, "s"), ("peak memory", 2345.0, "MB"))
    ]
    path = tmp_path / comparison.PERFORMANCE
    path.parent.mkdir()
    merge_measurements(path, rows)
    text = comparison.speed(tmp_path)
    assert "| asap | 171 | – | 2.35 |" in text
    assert "command: `python -m x`." in text
