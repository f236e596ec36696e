"""The default preset is the selected candidate, and its stored results were measured with it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.measure_default_candidates import CHOSEN

import graphcaps
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
