"""The default preset is the selected candidate, and its stored results were measured with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measure_context import TABLE
from benchmarks.measure_default_candidates import CHOSEN
from benchmarks.pages import defaults

import graphcaps
from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets
from graphcaps.training.auto_config import resolve_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / "defaults.json").read_text("utf-8"))["rows"]
    return rows


def test_the_preset_is_the_chosen_candidate() -> None:
    store = graphcaps.load_dataset("planted-parts")[:90]
    preset = replace(resolve_config(load_preset("default"), store), dataset="x", source="")
    chosen = CHOSEN.config("x", store, None)
    assert replace(chosen, source="") == preset


def test_stored_accuracies_are_the_means_of_their_folds(measured: list[dict[str, Any]]) -> None:
    for row in measured:
        assert row["accuracy"] == pytest.approx(np.mean(row["folds"]), abs=1e-3)


def test_every_data_set_has_its_seeds(measured: list[dict[str, Any]]) -> None:
    assert sorted((row["dataset"], row["seed"]) for row in measured) == sorted(
        (name, seed) for name in paper_datasets() for seed in range(5)
    )


@pytest.mark.parametrize("name", ["NCI1", "PROTEINS"])
def test_stored_calibration_errors_are_small(measured: list[dict[str, Any]], name: str) -> None:
    for row in measured:
        if row["dataset"] == name:
            before = row["probabilities"]["before"]
            after = row["probabilities"]["temperature, other folds"]
            assert after["ece"] < 0.05
            assert after["log_loss"] <= before["log_loss"]
            assert after["brier"] <= before["brier"]


def test_errors_of_context_are_those_of_folds_that_share_graphs(tmp_path: Path) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / TABLE).write_text(
        "dataset,candidate,seeds,difference in %,standard error in %\n"
        "MUTAG,none,1,,\nMUTAG,gin-2,1,-2.500,1.000\nDD,gin-2,1,-4.000,1.000\n"
    )
    # √(1/10 + 1/8) in place of √(1/10) is one and a half times as much.
    values = defaults.context_values(tmp_path)
    assert "| `gin-2` | -3.2 | -2.5 ± 1.5 | -4.0 ± 1.5 |" in values["context"]
    assert values["context_lower"].endswith("2 of 2 data sets, by more than two standard errors on 1.")


def test_the_rule_of_train_takes_the_lowest_mean_of_the_last_epochs() -> None:
    """Of 24 epochs the last four can be selected; the lowest loss of all, in the first epoch, cannot."""
    validation_loss = np.full((1, 24), 100)
    validation_loss[0, [0, 21, 22]] = [0, 200, 50]
    numbers = np.zeros((1, 24), dtype=np.int64)
    right = np.arange(24)[None]
    size = np.array([100])
    curves = EpochRecords(numbers, numbers, validation_loss, numbers, right, size, size, size)
    # Mean losses of epochs 21 to 24, times 21: 2000, 2200, 2150, 2150.
    assert defaults.trailing_accuracy(curves) == 20.0
    validation_loss[0, 0] = 1000
    # Now 3000, 2200, 2150, 2150: the earliest of equals.
    assert defaults.trailing_accuracy(curves) == 22.0
