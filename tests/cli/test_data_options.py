"""Opening a source for a model, and the featurizer of molecules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphcaps.chemistry.featurizers import FEATURIZERS
from graphcaps.cli.data_options import open_for_model
from graphcaps.cli.main import app
from graphcaps.data.coercion import reader_defaults
from graphcaps.data.datasets import loading
from graphcaps.data.readers.graph_metadata import GraphMetadata, SkippedRow
from tests.small_models import planted, small_model

NOTE, SKIPPED = "Not read: weight.", "2 rows hold no valid molecule and were left out: lines 3, 7."


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Options of each call of the reader, which returns a note and two skipped rows."""
    calls = []
    skipped = tuple(SkippedRow(line, "C(", "not valid") for line in (3, 7))
    metadata = GraphMetadata(ids=("2",), skipped=skipped, notes=(NOTE,), row_indices=(0,))

    def open_dataset(source: str, root: object, *, defaults: dict[str, Any], **options: Any) -> Any:
        calls.append(defaults | options)
        return loading.LoadedDataset(planted()[:1], None, False, metadata)

    monkeypatch.setattr(loading, "open_dataset", open_dataset)
    return calls


def test_notes_other_than_on_skipped_rows_are_printed(opened, capsys):
    options: dict[str, Any] = {"smiles": "structure"}
    open_for_model("own.csv", None, options, small_model(), report_bad_rows=True)
    assert capsys.readouterr().err.splitlines() == [NOTE]
    expected = {"bad": "skip", "unlabelled": "keep", "smiles": "structure"}
    assert opened == [reader_defaults(small_model().recipe) | expected]


@pytest.mark.parametrize(("options", "report_bad_rows"), [({}, False), ({"bad": "skip"}, True)])
def test_skipped_rows_are_noted_where_results_do_not_list_them(opened, capsys, options, report_bad_rows):
    open_for_model("own.csv", None, options, small_model(), report_bad_rows=report_bad_rows)
    assert capsys.readouterr().err.splitlines() == [NOTE, SKIPPED]
    assert opened == [reader_defaults(small_model().recipe) | {"unlabelled": "keep", "bad": "skip"} | options]


@pytest.mark.parametrize(("words", "featurizer"), [((), "standard"), (("--atoms", "elements"), "elements")])
def test_atoms_names_the_featurizer(
    tmp_path: Path, isolated_folders: Any, words: tuple[str, ...], featurizer: str
) -> None:
    pytest.importorskip("rdkit")
    table = tmp_path / "own.csv"
    table.write_text("smiles,y\nCCO,a\nC[NH3+],b\n", "utf-8")
    shown = CliRunner().invoke(app, ["data", "info", str(table), "--label", "y", *words, "--json"])
    assert shown.exit_code == 0, shown.output
    described = json.loads(shown.stdout)
    assert described["featurizer"] == featurizer
    assert described["node_labels"]["columns"] == len(FEATURIZERS[featurizer].atoms)
    text = CliRunner().invoke(
        app, ["data", "info", str(table), "--label", "y", *words], env={"COLUMNS": "200"}
    )
    lines = [" ".join(line.split()) for line in text.stdout.splitlines()]
    assert f"featurizer {featurizer}" in lines
    assert any(line.startswith("on nodes element (3 values)") for line in lines)


@pytest.mark.parametrize("verb", [["train"], ["evaluate"], ["data", "info"], ["data", "check"]])
def test_an_unknown_featurizer_ends_with_the_choices(verb: list[str], tmp_path: Path) -> None:
    table = tmp_path / "own.csv"
    table.write_text("smiles,y\nCCO,a\nCCN,b\n", "utf-8")
    result = CliRunner().invoke(app, [*verb, str(table), "--label", "y", "--atoms", "full"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'full' is not one of 'standard', 'elements'" in result.stderr
    assert result.stderr.count("\n") == 1
