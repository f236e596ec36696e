"""docs/reproduction.md and its picture say what the records say, and cope with records that are not there."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from graphcaps.evaluation import ResultsStore
from graphcaps.evaluation.epoch_records import LOSS_STEP
from graphcaps.evaluation.epoch_selection import best_common_epoch, held_out
from graphcaps.evaluation.record import RecordKey
from graphcaps.reproduction.cells import choose_cells

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
NAMES = ("page", "findings", "variants", "curves", "tables")


@pytest.fixture(scope="module")
def programs() -> Iterator[Any]:
    """The programs in benchmarks/, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        import reproduction_curves  # type: ignore[import-not-found]
        import reproduction_page  # type: ignore[import-not-found]
        import reproduction_tables  # type: ignore[import-not-found]
        import reproduction_variants  # type: ignore[import-not-found]

        yield argparse.Namespace(
            page=reproduction_page,
            tables=reproduction_tables,
            variants=reproduction_variants,
            curves=reproduction_curves,
        )
        for name in NAMES:
            sys.modules.pop(f"reproduction_{name}", None)


@pytest.fixture(scope="module")
def stored(programs: Any) -> Any:
    return programs.tables.Results(RESULTS)


@pytest.fixture(scope="module")
def text(programs: Any, stored: Any) -> str:
    return str(programs.page.page(stored))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """IMDB-BINARY alone, the smallest; all its rows, and nothing of the others."""
    for folder in ("reproduction", "paper"):
        (tmp_path / folder).mkdir()
        for path in (RESULTS / folder).glob("IMDB-BINARY--*.record.json"):
            shutil.copy(path, tmp_path / folder / path.name)
    return tmp_path


def _made(programs: Any, folder: Path) -> str:
    return str(programs.page.page(programs.tables.Results(folder), folder))


def _change(folder: Path, key: RecordKey) -> None:
    """One fold of one record is right on nothing from its middle on."""
    store = ResultsStore(folder / "reproduction")
    record = store.get(key)
    assert record is not None
    right = record.curves.test_right.copy()
    right[0, right.shape[1] // 2 :] = 0
    changed = replace(record, curves=replace(record.curves, test_right=right))
    store.path(key).write_text(changed.to_json(), "utf-8")


def test_the_page_says_what_the_records_say(text: str) -> None:
    """After a new measurement: python benchmarks/reproduction_page.py."""
    assert (ROOT / "docs" / "reproduction.md").read_text("utf-8") == text


def test_the_picture_shows_what_the_records_say(programs: Any, stored: Any) -> None:
    """After a new measurement: python benchmarks/reproduction_page.py."""
    svg = programs.page.PICTURE.read_text("utf-8")
    assert programs.curves.embedded(svg) == programs.curves.fingerprint(programs.curves.curves(stored))
    assert len(svg.encode()) < 400_000
    assert "<dc:date>" not in svg


def test_every_place_is_filled(programs: Any, text: str) -> None:
    for wrong in ("{{", "}}", "nan", "None", "inf "):
        assert wrong not in text, wrong
    words = Path(programs.page.__file__).with_suffix(".md").read_text("utf-8")
    assert len(re.findall(r"\{\{ \w+ \}\}", words)) == words.count("{{") >= 30


@pytest.mark.parametrize(("protocol", "row"), [("paper", "hgcn"), ("held-out", "A1"), ("paper", "R=5")])
def test_a_changed_record_changes_the_page(programs: Any, copy: Path, protocol: str, row: str) -> None:
    before = _made(programs, copy)
    _change(copy, RecordKey("IMDB-BINARY", row, protocol, 0))
    assert _made(programs, copy) != before


def test_a_changed_record_changes_the_picture(programs: Any, copy: Path) -> None:
    before = programs.curves.draw(programs.tables.Results(copy))
    assert programs.curves.draw(programs.tables.Results(copy)) == before  # the same bytes every time
    _change(copy, RecordKey("IMDB-BINARY", "hgcn", "paper", 0))
    after = programs.curves.fingerprint(programs.curves.curves(programs.tables.Results(copy)))
    assert after != programs.curves.embedded(before) is not None


def test_what_is_missing_is_said(programs: Any, copy: Path) -> None:
    text = _made(programs, copy)
    assert "{{" not in text
    assert re.search(r"^\| NCI1 \| \*\*not yet\*\* \| not yet \| not yet \| 84\.87 ± 1\.68 \|", text, re.M)
    assert "| HGCN, held-out | 5 | 11 | 1 of 11 | **10** | hgcn: MUTAG, NCI1," in text
    assert re.search(r"\*\*\d+ of 147 cells that were asked for are not measured yet\*\*", text)


def test_without_records_nothing_is_claimed(programs: Any, tmp_path: Path) -> None:
    text = _made(programs, tmp_path)
    assert "**147 of 147 cells that were asked for are not measured yet**" in text
    assert "{{" not in text
    assert text.count("*Not measured yet.*") >= 6
    assert not re.search(r"\| \*\*\d+\.\d\d", text)
    assert programs.curves.draw(programs.tables.Results(tmp_path)).count("not measured yet") == 11


def test_one_seed_gives_no_spread_over_seeds(programs: Any, copy: Path) -> None:
    for path in (copy / "reproduction").glob("*--seed[1-9].record.json"):
        path.unlink()
    text = _made(programs, copy)
    (row,) = re.findall(r"^\| IMDB-BINARY \| \*\*(.*?)\*\* \|", text.split("## 3.")[0], re.M)
    assert row.count("±") == 1
    assert "HGCN was trained again on 0 of the paper's 11" in text


def test_the_figures_are_those_of_the_rules(programs: Any, stored: Any) -> None:
    store = ResultsStore(RESULTS / "reproduction")

    def folds(variant: str, protocol: str, seed: int) -> np.ndarray:
        record = store.get(RecordKey("ENZYMES", variant, protocol, seed))
        assert record is not None
        curves = record.curves
        if protocol == "paper":
            return 100 * best_common_epoch(curves.test_accuracy).accuracies
        return 100 * held_out(curves.validation_loss * LOSS_STEP, curves.test_accuracy).accuracies

    seeds = np.array([folds("hgcn", "paper", seed).mean() for seed in range(5)])
    target = next(each for each in programs.tables.targets(stored) if each.dataset == "ENZYMES")
    assert target.c == pytest.approx(seeds.mean() - 78.00, abs=1e-3)
    assert target.error == pytest.approx(seeds.std(ddof=1) / np.sqrt(5), abs=1e-3)
    half = stats.t.ppf(0.975, 4) * seeds.std(ddof=1) * np.sqrt(6 / 5)
    assert target.further == pytest.approx(half, abs=1e-3)

    found = next(each for each in programs.variants.against(stored, "A1") if each.dataset == "ENZYMES")
    both = len(found.full)
    delta = np.mean([folds("hgcn", "held-out", s) - folds("A1", "held-out", s) for s in range(both)], axis=0)
    t = delta.mean() / np.sqrt((1 / 10 + 1 / 9) * delta.var(ddof=1))
    assert found.test.difference == pytest.approx(delta.mean(), abs=1e-3)
    assert found.test.p == pytest.approx(2 * stats.t.sf(abs(t), 9), rel=1e-3)
    assert found.adjusted >= found.test.p


def test_a_target_is_reached_by_one_point_or_two_errors(programs: Any) -> None:
    def target(c: float, error: float, star: float = 0.0) -> Any:
        return programs.tables.Target("X", c, star, error, 0.0, 0.0, np.zeros(5))

    assert target(-1.0, 0.1).reached
    assert not target(-1.01, 0.1).reached
    assert not target(-1.01, 0.5).reached
    assert target(-1.01, 0.51).reached
    assert not target(1.01, 0.1).reached
    assert target(0, 0, -1.2).star_reached
    assert not target(0, 0, 1.21).star_reached


def test_the_range_of_some_seeds(programs: Any) -> None:
    assert programs.variants.expected_range(np.array([0.0, 1.0, 3.0]), 2) == pytest.approx(2.0)
    assert programs.variants.expected_range(np.array([0.0, 1.0, 3.0]), 3) == pytest.approx(3.0)


def test_the_commands_of_the_page_exist(text: str) -> None:
    from typer.testing import CliRunner

    from graphcaps.cli.main import app

    shown = CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "200"}).stdout
    lines = re.findall(r"^graphcaps reproduce (.*)$", text, re.M)
    assert len(lines) == 5
    for line in lines:
        words = shlex.split(line)
        tables = [word for word in words if word.startswith("table") or word == "all"]
        given = {name: words[words.index(name) + 1] for name in ("--rows", "--criteria") if name in words}
        choose_cells(tables, **{name[2:]: value.split(",") for name, value in given.items()})
        assert all(word in shown for word in words if word.startswith("--"))
