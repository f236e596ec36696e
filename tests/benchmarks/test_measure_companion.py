"""The measurement of companions: results of a small data set, the budget, and data sets that are measured already."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

import graphcaps
from benchmarks import measure_companion
from graphcaps.config import RunConfig, TrainConfig
from tests.small_models import HGCN_SMALL, labelled
from tests.training.small_forests import few_trees

__all__ = ["few_trees"]


def test_a_data_set_is_measured_once_and_within_the_budget(
    few_trees: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig(model_arguments=HGCN_SMALL, training=TrainConfig(epochs=1, batch_size=8))
    monkeypatch.setattr(graphcaps, "load_dataset", lambda name, root: labelled())
    monkeypatch.setattr(measure_companion, "load_preset", lambda name, dataset: config)
    monkeypatch.setattr(measure_companion, "paper_datasets", lambda: ["A", "B"])
    words = ["measure_companion", "--device", "cpu", "--out", str(tmp_path / "out")]
    words += ["--records", str(tmp_path / "records")]

    def run(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*words, *more])
        measure_companion.main()
        return capsys.readouterr().out

    shown = run("A")
    found = json.loads((tmp_path / "out" / "A-1-wl-forest.json").read_text())
    assert [part["name"] for part in found["results"]["parts"]] == ["hgcn", "wl-forest"]
    assert found["results"]["mixture"]["name"] == "hgcn + wl-forest"
    assert found["command"] == "graphcaps evaluate A --preset default --companion wl-forest --device cpu"
    assert "hgcn + wl-forest: " in shown
    assert "weight 0." in shown
    assert run("--budget", "-1") == "B: left out, the budget of -1 s is used up\n"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["A-1-wl-forest.json"]


def test_the_command_names_what_differs() -> None:
    options: dict[str, Any] = {"companion": "wl-forest,gk", "ensemble": 5, "seeds": 2, "patience": 50}
    expected = (
        "graphcaps evaluate X --preset default --companion wl-forest,gk --ensemble 5 --seeds 2 --patience 50"
    )
    assert measure_companion.command("X", Namespace(**options, device="cuda")) == f"{expected} --device cuda"
