"""docs/defaults.md says what the records say, and the preset is the candidate that was chosen and measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcaps
from graphcaps import HGCNClassifier
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets
from graphcaps.training.auto_config import resolve_config

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("defaults_page", "choose_defaults", "default_held_out")


@pytest.fixture(scope="module")
def programs() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import defaults_page  # type: ignore[import-not-found]

        yield {"page": defaults_page, "choose": sys.modules["choose_defaults"]}
        for name in PROGRAMS:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def measured() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "results" / "defaults.json").read_text("utf-8"))["rows"]
    return rows


def test_the_page_is_what_the_figures_give(programs: dict[str, Any]) -> None:
    written = (ROOT / "docs" / "defaults.md").read_text("utf-8")
    assert written == programs["page"].page(), "run python benchmarks/defaults_page.py"


def test_the_preset_is_the_chosen_candidate(programs: dict[str, Any]) -> None:
    store = graphcaps.load_dataset("planted-parts")[:90]
    preset = replace(resolve_config(load_preset("default"), store), dataset="x", source="")
    chosen = programs["choose"].CHOSEN.config("x", store, None)
    assert replace(chosen, source="") == preset


def test_what_was_measured_is_the_preset(measured: list[dict[str, Any]]) -> None:
    preset = load_preset("default").as_dict()
    by_data = set(preset.pop("by_data"))
    for row in measured:
        for section in ("model", "features", "training"):
            for name, value in preset[section].items():
                if name not in by_data | {"precision"}:  # products in TF32, to have it done in minutes
                    assert row["config"][section][name] == value, name
        assert row["patience"] == HGCNClassifier().patience
        assert row["accuracy"] == pytest.approx(np.mean(row["folds"]), abs=1e-3)


def test_every_data_set_has_its_seeds(measured: list[dict[str, Any]]) -> None:
    assert sorted((row["dataset"], row["seed"]) for row in measured) == sorted(
        (name, seed) for name in paper_datasets() for seed in range(5)
    )


@pytest.mark.parametrize("name", ["NCI1", "PROTEINS"])
def test_calibration_reaches_what_was_asked(measured: list[dict[str, Any]], name: str) -> None:
    for row in measured:
        if row["dataset"] == name:
            before = row["probabilities"]["before"]
            after = row["probabilities"]["temperature, other folds"]
            assert after["ece"] < 0.05
            assert after["log_loss"] <= before["log_loss"]
            assert after["brier"] <= before["brier"]
