"""``graphcaps reproduce``: missing trainings, tables of stored results, and errors of one sentence."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app
from graphcaps.evaluation import RecordKey, ResultsStore
from graphcaps.evaluation.epoch_records import CURVES
from graphcaps.evaluation.record import PROTOCOLS

ROOT = Path(__file__).resolve().parents[2]
STORED = ("--report", "--results", str(ROOT / "results" / "reproduction"))


def _run(*words: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *words], env={"COLUMNS": "80"})


@pytest.mark.slow
def test_eight_epochs_of_mutag(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call trains nothing."""
    monkeypatch.setenv("GRAPHCAPS_DATA", str(shared_data))
    monkeypatch.chdir(tmp_path)
    words = ("table1", "--datasets", "MUTAG", "--seeds", "1", "--epochs", "8", "--device", "cpu", "--json")
    first = _run(*words, "--rows", "HGCN")
    assert first.exit_code == 0, first.stderr
    rows = {row["criterion"]: row for row in json.loads(first.stdout)}
    assert set(rows) == {"C", "held-out"}
    assert rows["C"]["paper"] == 93.16
    assert rows["held-out"]["paper"] is None
    for row in rows.values():
        assert (row["table"], row["row"], row["dataset"]) == ("table1", "HGCN", "MUTAG")
        assert (row["seeds"], row["epochs"], row["formulation"]) == (1, 8, "released")
        assert 60 < row["ours"] < 95
        assert row["std_seeds"] is None
    assert "2 trainings are missing" in first.stderr
    assert "Trained now: 2 records" in first.stderr
    assert "nothing was trained" not in first.stderr
    again = _run(*words, "--rows", "HGCN")
    assert all(row["trained_now"] for row in json.loads(first.stdout))
    assert again.stdout == first.stdout.replace('"trained_now": true', '"trained_now": false')
    assert "missing" not in again.stderr
    assert "Shown from 2 stored records of" in again.stderr
    assert "nothing was trained." in again.stderr
    assert len(list((tmp_path / "results" / "reproduction-8-epochs").glob("*.record.json"))) == 2
    assert not list((tmp_path / "results" / "reproduction-8-epochs" / "unfinished").glob("*"))


def test_all_tables_are_built_from_stored_results() -> None:
    result = _run("all", *STORED, "--json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)
    hgcn = [row for row in rows if row["row"] == "HGCN"]
    assert {row["table"] for row in rows} == {f"table{number}" for number in range(1, 7)}
    for criterion in ("C", "C*", "held-out"):
        measured = {row["dataset"] for row in hgcn if row["criterion"] == criterion and row["seeds"] == 5}
        assert len(measured) == 11, criterion


def test_stored_results_say_that_nothing_was_trained_with_date_and_hardware(tmp_path: Path) -> None:
    """Also without --report, where all records are stored."""
    folder = ("--results", str(ROOT / "results" / "reproduction"))
    result = _run("table1", "--rows", "HGCN", "--datasets", "MUTAG", *folder)
    assert result.exit_code == 0, result.stderr
    sentence = result.stderr.strip().splitlines()[-1]
    assert re.match(
        r"Shown from 10 stored records of 20[-\d]+( to 20[-\d]+)?, 1,000 epochs, NVIDIA H200; nothing was trained",
        sentence,
    )
    words = ("--rows", "HGCN,GIN", "--datasets", "MUTAG", *STORED, "--comparison", str(tmp_path), "--json")
    rows = json.loads(_run("table1", *words).stdout)
    assert {row["row"] for row in rows} == {"HGCN", "GIN"}
    for row in rows:
        measured = row["row"] == "HGCN"
        assert row["trained_now"] is False
        assert (row["hardware"] == "NVIDIA H200") == measured
        assert (row["finished"] is not None) == measured


@pytest.mark.parametrize(("records", "gin"), [("comparison", "GIN, C"), ("none", "GIN, reported")])
def test_tables_fit_eighty_columns(records: str, gin: str) -> None:
    result = _run("all", *STORED, "--comparison", str(ROOT / "results" / records))
    assert result.exit_code == 0
    tables = result.stdout.split("Accuracy in percent")[0]
    assert max(map(len, tables.splitlines())) <= 80
    assert "…" not in tables
    for word in (gin, "paper (C)", "HGCN, held-out", "± seeds", "difference", "A1, C", "R=5, C"):
        assert word in tables
    assert "an upper bound: the epoch is chosen on test data" in result.stdout


@pytest.mark.parametrize(("form", "start"), [("markdown", "### Table 1"), ("latex", "\\begin{table}")])
def test_other_formats(form: str, start: str) -> None:
    result = _run("table1", *STORED, "--format", form)
    assert result.exit_code == 0
    assert result.stdout.startswith(start)


def test_a_report_without_results_is_mentioned(tmp_path: Path) -> None:
    result = _run("table1", "--report", "--results", str(tmp_path / "none"), "--rows", "HGCN")
    assert result.exit_code == 0
    assert "No results are stored" in result.stderr
    assert not (tmp_path / "none").exists()


def _stored_with_epochs(folder: Path, epochs: int) -> None:
    """A folder with the two records of MUTAG and seed 0, cut to the first epochs."""
    source, store = ResultsStore(ROOT / "results" / "reproduction"), ResultsStore(folder)
    for protocol in PROTOCOLS:
        record = source.get(RecordKey("MUTAG", "hgcn", protocol, 0))
        assert record is not None
        curves = record.curves
        cut = {name: getattr(curves, name)[:, :epochs] for name in CURVES}
        config = record.config.with_training(epochs=epochs)
        store.add(replace(record, curves=replace(curves, **cut), config=config))


MUTAG = ("table1", "--rows", "HGCN", "--datasets", "MUTAG", "--seeds", "1")


def test_records_of_other_epochs_are_not_shown(tmp_path: Path) -> None:
    _stored_with_epochs(tmp_path, 20)
    folder = ("--report", "--results", str(tmp_path))
    published = _run(*MUTAG, *folder)
    assert published.exit_code == 0, published.stderr
    assert published.stdout.count("  ours             –\n") == 2
    assert published.stderr.strip() == (
        "Not shown: 2 stored records of 20 epochs (MUTAG), since the published number of epochs was asked for. "
        f"They are shown with --epochs 20 --results {tmp_path}."
    )
    rows = json.loads(_run(*MUTAG, *folder, "--json").stdout)
    assert [(row["ours"], row["epochs"], row["seeds"]) for row in rows] == [(None, None, 0)] * 2
    asked = _run(*MUTAG, *folder, "--epochs", "20")
    assert re.search(r"  ours +\d\d\.\d\d\n", asked.stdout)
    assert asked.stderr.startswith("Trainings of 20 epochs in place of the published number: the differences")
    assert "averages the validation loss over 9 epochs to select one." in asked.stderr
    assert "held-out: each fold's epoch of lowest validation loss (mean over 9 epochs);" in asked.stdout
    assert re.search(
        r"\nShown from 2 stored records of [-\d]+, 20 epochs, NVIDIA H200; nothing was", asked.stderr
    )
    other = _run(*MUTAG, *folder, "--epochs", "30")
    assert "since 30 epochs were asked for. They are shown with --epochs 20" in other.stderr


def test_epochs_of_stored_records_are_never_passed_over(tmp_path: Path) -> None:
    """Without --report, --epochs trains; where a folder holds other epochs, an error says so before the training."""
    _stored_with_epochs(tmp_path, 20)
    before = sorted(tmp_path.iterdir())
    for words, count in (((), "1,000 epochs"), (("--epochs", "3"), "3 epochs")):
        result = _run(*MUTAG, "--results", str(tmp_path), "--device", "cpu", *words)
        assert result.exit_code == 2
        assert result.stderr.strip() == (
            f"graphcaps: {tmp_path}: expected records of {count} (MUTAG), found those of 20 epochs (MUTAG). To train, "
            f"name another folder (--results DIR). They are shown with --epochs 20 --results {tmp_path}."
        )
    assert sorted(tmp_path.iterdir()) == before


def test_a_report_says_what_would_have_to_be_trained() -> None:
    words = ("table1", "--rows", "HGCN", "--datasets", "MUTAG", "--seeds", "7")
    result = _run(*words, *STORED)
    assert (
        "4 of 14 records are not stored (MUTAG). Run the command without --report to train" in result.stderr
    )
    assert "Shown from 10 stored records" in result.stderr
    assert "not stored" not in _run("table1", "--rows", "GIN", *STORED).stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("table9",), "table1"),
        (("table1", "--datasets", "MUTAGG"), "among MUTAG, NCI1, PROTEINS, DD, "),
        (("table1", "--datasets", "MUTAGG"), "Did you mean 'MUTAG'?"),
        (("table1", "--rows", "gni"), "GCAPS-CNN, HGCN, HGCN (equations), got 'gni'. Did you mean 'GIN'?"),
        (("table1", "--seeds", "0"), "--seeds"),
        (("table1", "--format", "html"), "latex"),
        (("table1", "--epochs", "0", "--device", "cpu", "--datasets", "MUTAG"), "epochs"),
        (("table1", "--precision", "fp8", "--device", "cpu", "--datasets", "MUTAG"), "precision"),
        ((), "TABLE"),
    ],
)
def test_invalid_arguments_end_with_2_and_one_sentence(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = _run(*words)
    assert result.exit_code == 2
    sentence = result.stderr.strip().splitlines()[-1]
    assert sentence.startswith("graphcaps: ")
    assert message in sentence
    assert not list(tmp_path.iterdir())
