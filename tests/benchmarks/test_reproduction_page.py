"""docs/reproduction.md from the records of one data set, from none, and compared with hand-computed numbers."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.pages.markdown import TEMPLATES
from benchmarks.pages.reproduction import curves, hgcn_tables, variants
from benchmarks.pages.reproduction.page import page_of
from scipy import stats

from graphcaps.evaluation import ResultsStore
from graphcaps.evaluation.epoch_records import LOSS_STEP
from graphcaps.evaluation.epoch_selection import best_common_epoch, held_out
from graphcaps.evaluation.record import RecordKey, SeedRecord
from graphcaps.reproduction.cells import choose_cells

RESULTS = Path(__file__).resolve().parents[2] / "results"
FOLDERS = ("reproduction", "paper")


@pytest.fixture(scope="module")
def records() -> dict[str, list[SeedRecord]]:
    """Records of IMDB-BINARY, the smallest, by folder."""
    return {
        folder: [r for r in ResultsStore(RESULTS / folder).records() if r.key.dataset == "IMDB-BINARY"]
        for folder in FOLDERS
    }


@pytest.fixture
def copy(tmp_path: Path, records: dict[str, list[SeedRecord]]) -> Path:
    """A results folder with all records of IMDB-BINARY, and no others."""
    for folder in FOLDERS:
        for record in records[folder]:
            ResultsStore(tmp_path / folder).add(record)
    return tmp_path


def _change(folder: Path, key: RecordKey) -> None:
    """Sets the correct predictions of one fold to 0 from the middle of a record on."""
    store = ResultsStore(folder / "reproduction")
    record = store.get(key)
    assert record is not None
    right = record.curves.test_right.copy()
    right[0, right.shape[1] // 2 :] = 0
    changed = replace(record, curves=replace(record.curves, test_right=right))
    store.path(key).write_text(changed.to_json(), "utf-8")


def test_every_placeholder_is_filled(copy: Path) -> None:
    text = page_of(copy)
    for wrong in ("{{", "}}", "nan", "None", "inf "):
        assert wrong not in text, wrong
    words = (TEMPLATES / "reproduction.md").read_text("utf-8")
    assert len(re.findall(r"\{\{ \w+ \}\}", words)) == words.count("{{") >= 30


@pytest.mark.parametrize(("protocol", "row"), [("paper", "hgcn"), ("held-out", "A1"), ("paper", "R=5")])
def test_a_changed_record_changes_the_page(copy: Path, protocol: str, row: str) -> None:
    before = page_of(copy)
    _change(copy, RecordKey("IMDB-BINARY", row, protocol, 0))
    assert page_of(copy) != before


def test_a_changed_record_changes_the_picture(copy: Path) -> None:
    before = curves.draw(hgcn_tables.Results(copy))
    assert curves.draw(hgcn_tables.Results(copy)) == before  # the same bytes every time
    _change(copy, RecordKey("IMDB-BINARY", "hgcn", "paper", 0))
    after = curves.digest(curves.curves(hgcn_tables.Results(copy)))
    assert after != curves.embedded_digest(before) is not None


def test_missing_records_are_named(copy: Path) -> None:
    text = page_of(copy)
    assert "{{" not in text
    assert re.search(
        r"^\| NCI1 \| \*\*not measured\*\* \| not measured \| not measured \| 84\.87 ± 1\.68 \|", text, re.M
    )
    assert "| HGCN, held-out | 5 | 1 of 11 | 10 | hgcn: MUTAG, NCI1," in text
    assert re.search(r"\*\*\d+ of 176 cells are not measured\*\*", text)


def test_without_records_nothing_is_claimed(tmp_path: Path) -> None:
    text = page_of(tmp_path)
    assert "**176 of 176 cells are not measured**" in text
    assert "{{" not in text
    assert text.count("*Not measured.*") >= 6
    assert not re.search(r"\| \*\*\d+\.\d\d", text)
    assert curves.draw(hgcn_tables.Results(tmp_path)).count("not measured") == 11


def test_one_seed_gives_no_spread_over_seeds(tmp_path: Path, records: dict[str, list[SeedRecord]]) -> None:
    for record in records["reproduction"]:
        if record.key.seed == 0:
            ResultsStore(tmp_path / "reproduction").add(record)
    text = page_of(tmp_path)
    (row,) = re.findall(r"^\| IMDB-BINARY \| \*\*(.*?)\*\* \|", text.split("## 3.")[0], re.M)
    assert row.count("±") == 1
    assert "HGCN was trained on 0 of the paper's 11" in text


def test_differences_and_tests_follow_the_rules() -> None:
    store, stored = ResultsStore(RESULTS / "reproduction"), hgcn_tables.Results(RESULTS)

    def folds(variant: str, protocol: str, seed: int) -> np.ndarray:
        record = store.get(RecordKey("ENZYMES", variant, protocol, seed))
        assert record is not None
        curves = record.curves
        if protocol == "paper":
            return 100 * best_common_epoch(curves.test_accuracy).accuracies
        return 100 * held_out(curves.validation_loss * LOSS_STEP, curves.test_accuracy).accuracies

    seeds = np.array([folds("hgcn", "paper", seed).mean() for seed in range(5)])
    target = next(each for each in hgcn_tables.agreements(stored) if each.dataset == "ENZYMES")
    assert target.c == pytest.approx(seeds.mean() - 78.00, abs=1e-3)
    assert target.error == pytest.approx(seeds.std(ddof=1) / np.sqrt(5), abs=1e-3)
    half = stats.t.ppf(0.975, 4) * seeds.std(ddof=1) * np.sqrt(6 / 5)
    assert target.further == pytest.approx(half, abs=1e-3)

    found = next(each for each in variants.ablation_tests(stored, "A1") if each.dataset == "ENZYMES")
    both = len(found.full)
    delta = np.mean([folds("hgcn", "held-out", s) - folds("A1", "held-out", s) for s in range(both)], axis=0)
    t = delta.mean() / np.sqrt((1 / 10 + 1 / 8) * delta.var(ddof=1))  # of ten folds, eight train
    assert found.test.difference == pytest.approx(delta.mean(), abs=1e-3)
    assert found.test.p == pytest.approx(2 * stats.t.sf(abs(t), 9), rel=1e-3)
    assert found.adjusted >= found.test.p


def test_agreement_is_within_one_point_or_two_errors() -> None:
    def agreement(c: float, error: float, star: float = 0.0) -> hgcn_tables.Agreement:
        return hgcn_tables.Agreement("X", c, star, error, 0.0, 0.0, np.zeros(5))

    assert agreement(-1.0, 0.1).agrees
    assert not agreement(-1.01, 0.1).agrees
    assert not agreement(-1.01, 0.5).agrees
    assert agreement(-1.01, 0.51).agrees
    assert not agreement(1.01, 0.1).agrees
    assert agreement(0, 0, -1.2).star_agrees
    assert not agreement(0, 0, 1.21).star_agrees


def test_expected_range_of_a_subset() -> None:
    assert variants.expected_range(np.array([0.0, 1.0, 3.0]), 2) == pytest.approx(2.0)
    assert variants.expected_range(np.array([0.0, 1.0, 3.0]), 3) == pytest.approx(3.0)


def test_ranges_that_differ_by_rounding_are_equal() -> None:
    """On MUTAG one test graph of ten folds is 10/19 points, however the sums of the folds are rounded."""

    class Stored:
        def seeds(self, dataset: str, variant: str, rule: str) -> np.ndarray:
            if variant == "hgcn":
                return np.array([90.0, 90.2, 90.3, 90.4, 90 + 20 / 19])
            return np.array([90 + 20 / 19 + 1e-4] if variant == "R=1" else [90.1])

    text = variants.spread_over(Stored(), "R")  # type: ignore[arg-type]
    assert "The range over R is wider than that over seeds on 0 of 11." in text
    assert "the range over the 5 seeds of one model is 1.05" in text
    text = variants.spread_over(Stored(), "K")  # type: ignore[arg-type]
    assert "the range over 3 of the 5 seeds of one model, averaged over all choices of them, is 0.69" in text


def test_commands_of_the_page_exist() -> None:
    from typer.testing import CliRunner

    from graphcaps.cli.main import app

    shown = CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "200"}).stdout
    lines = re.findall(
        r"^graphcaps reproduce (.*)$", (TEMPLATES / "reproduction.md").read_text("utf-8"), re.M
    )
    assert len(lines) == 5
    for line in lines:
        words = shlex.split(line)
        tables = [word for word in words if word.startswith("table") or word == "all"]
        options = {name: words[words.index(name) + 1] for name in ("--rows", "--criteria") if name in words}
        choose_cells(tables, **{name[2:]: value.split(",") for name, value in options.items()})
        assert all(word in shown for word in words if word.startswith("--"))
