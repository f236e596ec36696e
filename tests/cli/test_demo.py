"""The demo as a newcomer runs it, with fewer epochs."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

import graphcaps
from graphcaps.cli.main import app


def test_everything_is_there_afterwards_and_can_be_made_again(tmp_path: Path) -> None:
    out = tmp_path / "new" / "demo"
    for _ in range(2):  # the second replaces the first
        result = CliRunner().invoke(app, ["demo", "--out", str(out), "--epochs", "2", "--json"])
        assert result.exit_code == 0, result.output
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


def test_what_people_read(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--epochs", "1"])
    assert result.exit_code == 0, result.output
    for words in ("held-out accuracy", "chance: 33.3 %", "parts.png", "Next steps", "graphcaps predict"):
        assert words in result.stdout


def test_a_folder_that_cannot_be_made_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "demo")])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "file" in result.stderr


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "thesis.txt").write_text("years")
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--epochs", "1", "--json"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "evaluation" / "thesis.txt").read_text() == "years"
    (tmp_path / "parts.png").unlink()
    (tmp_path / "parts.png").mkdir()
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
