"""The comparison is measured most telling cells first, within its budget, and merges into the stored results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.measure_comparison import (
    Cell,
    Measurement,
    main,
    plan_cells,
    read_failures,
    write_failures,
)

from graphcaps.errors import DataError
from graphcaps.evaluation import RecordKey, ResultsStore


def test_small_sets_and_telling_models_come_first_and_further_seeds_last() -> None:
    cells = plan_cells(["COLLAB", "MUTAG"], ["majority", "gin", "hgcn"], 2, ["held-out", "paper"])
    assert cells[:4] == [
        Cell("MUTAG", "hgcn", "held-out", 1),
        Cell("MUTAG", "hgcn", "paper", 1),
        Cell("MUTAG", "gin", "held-out", 1),
        Cell("MUTAG", "gin", "paper", 1),
    ]
    assert [cell.dataset for cell in cells[6:12]] == ["COLLAB"] * 6
    assert {(cell.model, cell.seeds) for cell in cells[12:]} == {("hgcn", 2), ("gin", 2)}


def test_further_seeds_that_would_change_nothing_are_left_out() -> None:
    cells = plan_cells(["MUTAG"], ["wl-oa", "wl-forest", "gin"], 2, ["held-out", "paper"])
    assert [(cell.model, cell.protocol) for cell in cells[6:]] == [
        ("gin", "held-out"),
        ("gin", "paper"),
        ("wl-forest", "held-out"),
        ("wl-forest", "paper"),
        ("wl-oa", "paper"),
    ]


def run(out: Path, *words: str) -> None:
    main(["--sets", "planted-parts", "--models", "majority", "--out", str(out), *words])


def test_cells_are_measured_once_and_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "one")
    assert "2 of 2 cells to measure" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["records.zip", "summary.csv"]
    run(tmp_path / "two", "--done", str(tmp_path / "one"))
    assert "0 of 2 cells to measure" in capsys.readouterr().out
    run(tmp_path / "two", "--models", "majority", "gk", "--done", str(tmp_path / "one"), "--list")
    assert capsys.readouterr().out == "planted-parts gk held-out seed 0\nplanted-parts gk paper seed 0\n"
    write_failures(
        tmp_path / "one", {"planted-parts, gin, held-out": "why", "planted-parts, majority, paper": "old"}
    )
    main(["--merge", str(tmp_path / "one"), "--out", str(tmp_path / "all")])
    keys = [RecordKey("planted-parts", "majority", protocol, 0) for protocol in ("held-out", "paper")]
    merged = ResultsStore(tmp_path / "all")
    assert [record.key for record in merged.records()] == keys
    assert merged.records()[0].metrics is not None
    # A failure of a cell that has a record by now is forgotten.
    assert read_failures(tmp_path / "all") == {"planted-parts, gin, held-out": "why"}


def test_nothing_starts_when_the_budget_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--budget", "0")
    assert capsys.readouterr().out.count("not started") == 3
    assert not (tmp_path / "records.zip").exists()


def test_a_cell_that_would_take_too_long_does_not_start(tmp_path: Path) -> None:
    measurement = Measurement(tmp_path, None, "cpu", None, None, float("inf"))
    measurement.seconds["gin"] = {"MUTAG": 10.0}
    expected = measurement.expected_seconds(Cell("COLLAB", "gin", "paper", 1))
    assert expected == pytest.approx(10 * 5000 * 74.49 / (188 * 17.93), rel=0.01)
    assert measurement.expected_seconds(Cell("COLLAB", "gcn", "paper", 1)) == 0


def test_a_failed_cell_is_noted_with_its_reason(tmp_path: Path) -> None:
    main(
        ["--sets", "planted-parts", "--models", "ecfp-forest", "--protocols", "paper", "--out", str(tmp_path)]
    )
    assert "no SMILES" in read_failures(tmp_path)["planted-parts, ecfp-forest, paper"]


def test_further_seeds_use_the_records_of_earlier_ones(tmp_path: Path) -> None:
    run(tmp_path / "one", "--protocols", "paper")
    measurement = Measurement(tmp_path / "two", None, "cpu", None, None, float("inf"))
    measurement.adopt_seeds([Cell("planted-parts", "majority", "paper", 2)], [ResultsStore(tmp_path / "one")])
    assert len(measurement.results) == 1


def test_records_of_another_study_are_adopted_if_their_settings_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "study", "--protocols", "paper")
    study = ResultsStore(tmp_path / "study").records()[0]
    run(tmp_path / "all", "--adopt", str(tmp_path / "study"))
    assert "1 records adopted" in capsys.readouterr().out
    adopted = ResultsStore(tmp_path / "all").records()
    assert adopted == (study,)  # with its own date, hardware and commit
    run(tmp_path / "all", "--adopt", str(tmp_path / "study"))
    assert "0 records adopted" in capsys.readouterr().out
    other = ResultsStore(tmp_path / "other")
    other.add(replace(study, folds_seed=1))
    with pytest.raises(DataError, match="two that differ \\(folds_seed 12345 and 1\\)"):
        run(tmp_path / "new", "--adopt", str(tmp_path / "other"))
    assert not len(ResultsStore(tmp_path / "new"))
