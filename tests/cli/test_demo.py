"""``graphcaps demo``: written files, printed summary and refusals, with few epochs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import graphcaps
from graphcaps.cli.main import app
from graphcaps.data.datasets import loading


@pytest.fixture
def few_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 60 graphs of the data set, with which a demo takes half the time."""
    original = loading.open_dataset

    def opened(*arguments: Any, **options: Any) -> loading.LoadedDataset:
        loaded = original(*arguments, **options)
        return replace(loaded, store=loaded.store[:60])

    monkeypatch.setattr(loading, "open_dataset", opened)


@pytest.mark.slow
@pytest.mark.usefixtures("few_graphs")
def test_files_and_summary_of_two_runs(tmp_path: Path) -> None:
    """The second run replaces the files of the first; other files in the folder are kept."""
    out = tmp_path / "new" / "demo"
    other = out / "evaluation" / "thesis.txt"
    first = CliRunner().invoke(app, ["demo", "--out", str(out), "--epochs", "1"])
    assert first.exit_code == 0, first.output
    for words in ("held-out accuracy", "chance: 33.3 %", "parts.png", "Next steps", "graphcaps predict"):
        assert words in first.stdout
    other.write_text("years")
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--epochs", "2", "--json"])
    assert result.exit_code == 0, result.output
    assert other.read_text() == "years"
    report = json.loads(result.stdout)
    assert report["epochs"] == 2
    assert 0 <= report["held_out"] <= 100
    for path in report["files"].values():
        assert Path(path).exists(), path
    assert Path(report["files"]["picture"]).read_bytes().startswith(b"\x89PNG")
    model = graphcaps.load(report["files"]["model"])
    store = graphcaps.load_dataset("planted-parts")
    assert model.predict(store[:3]).shape == (3,)
    summary = json.loads((out / "evaluation" / "summary.json").read_text("utf-8"))
    assert abs(summary["figures"]["held-out"]["mean"] - report["held_out"]) < 0.01
    (out / "parts.png").unlink()
    (out / "parts.png").mkdir()
    result = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)


def test_a_folder_that_cannot_be_created_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "file" in result.stderr
