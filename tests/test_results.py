"""The stored results can be read, and were made with the presets of the package."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from graphcaps.evaluation import Ledger, ResultsStore
from graphcaps.presets import load_preset
from graphcaps.reproduction.cells import VARIANTS
from graphcaps.reproduction.published import paper_datasets

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
KEYS = {"what", "dataset", "device", "value", "unit", "command", "hardware", "versions"}
COMMANDS = ("python ", "graphcaps ")


@pytest.fixture(scope="module")
def speed() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads((RESULTS / "performance.json").read_text("utf-8"))
    return rows


def test_every_measurement_of_speed_can_be_repeated(speed: list[dict[str, object]]) -> None:
    for entry in speed:
        assert set(entry) - {"date"} == KEYS  # the first measurements have no date
        assert isinstance(entry["value"], int | float)
        assert entry["value"] > 0
        assert str(entry["command"]).startswith(COMMANDS)
        assert "/tmp" not in json.dumps(entry)
    assert len({(e["what"], e["dataset"], e["device"]) for e in speed}) == len(speed)


def test_no_summary_names_a_path_of_a_machine() -> None:
    for path in RESULTS.rglob("*.summary.json"):
        assert '"/' not in path.read_text("utf-8"), path.name


def test_five_seeds_of_the_paper_are_complete() -> None:
    ledgers = {(ledger.dataset, ledger.variant): ledger for ledger in reproduction()}
    for name in paper_datasets():
        assert {(record.key.protocol, record.key.seed) for record in ledgers[name, "hgcn"].records} == {
            (protocol, seed) for protocol in ("held-out", "paper") for seed in range(5)
        }


def test_reproduced_records_have_the_configuration_of_the_presets() -> None:
    variants = {variant.name: variant for variant in VARIANTS}
    for ledger in reproduction():
        preset = variants[ledger.variant].config(ledger.dataset, precision="tf32")
        for record in ledger.records:
            assert record.config == preset, f"{record.key}: the preset has changed"
            assert record.curves.num_epochs == preset.training.epochs
            assert record.curves.num_folds == 10
            assert record.folds_seed == 12345
            assert len(record.versions["commit"].removesuffix("+changes")) == 40


@cache
def reproduction() -> tuple[Ledger, ...]:
    return ResultsStore(RESULTS / "reproduction").ledgers()


def test_the_records_of_the_paper_are_complete() -> None:
    ledgers = {ledger.dataset: ledger for ledger in ResultsStore(RESULTS / "paper").ledgers()}
    assert set(ledgers) == set(paper_datasets())
    for name, ledger in ledgers.items():
        preset = load_preset("paper", name)
        assert {record.key.protocol for record in ledger.records} == {"held-out", "paper"}
        assert {record.key.seed for record in ledger.records} == {0}
        for record in ledger.records:
            assert record.config == preset, f"{name}: the preset has changed"
            assert record.curves.num_epochs == preset.training.epochs
            assert record.curves.num_folds == 10
        assert set(ledger.figures) == {"held-out", "C", "C*", "optimism"}
