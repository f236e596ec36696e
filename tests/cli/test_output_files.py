"""Outputs never replace what a command reads; on a full disk no output belongs to a file that does not exist."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphcaps.cli.output_files import check_output_file
from graphcaps.errors import DataError
from tests.cli.training import invoke, refusal, write_inputs


def test_an_input_is_not_written(tmp_path: Path) -> None:
    table, link = tmp_path / "table.csv", tmp_path / "link.csv"
    table.write_text("smiles\nCCO\n")
    link.symlink_to(table)
    for same in (table, link, tmp_path / "." / "table.csv", tmp_path / ".." / tmp_path.name / "table.csv"):
        with pytest.raises(
            DataError, match=r"the file is read by this command\. Name another file to write\."
        ):
            check_output_file(same, "MUTAG", None, str(table))
    check_output_file(tmp_path / "other.csv", table)
    check_output_file(table, "MUTAG", None, "C" * 5000)


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "model.safetensors", "table.csv", "--out", "table.csv"),
        ("evaluate", "table.csv", "--label", "kind", "--predictions", "table.csv"),
        ("evaluate", "other.csv", "--label", "kind", "--groups", "table.csv", "--predictions", "table.csv"),
        ("data", "check", "table.csv", "--label", "kind", "--groups", "table.csv"),
    ],
)
def test_commands_keep_their_input(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("smiles,kind\nCCO,a\n")
    assert refusal(*words) == "table.csv: the file is read by this command. Name another file to write."
    assert (tmp_path / "table.csv").read_text() == "smiles,kind\nCCO,a\n"


def fill_disk(monkeypatch: pytest.MonkeyPatch, *full: Path) -> None:
    """Lets writing some files fail."""
    replace = os.replace

    def fail(source: Path, target: Path) -> None:
        if Path(target) in full:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)


def test_a_model_that_cannot_be_written_leaves_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, before = tmp_path / "out" / "m.safetensors", {}
    arguments = [*write_inputs(tmp_path, epochs=1), "--no-baseline", "--out", str(out)]
    out.parent.mkdir()
    for overwrite in ((), ("--overwrite",)):  # at first there is no model, then an older one
        with monkeypatch.context() as patch:
            fill_disk(patch, out, Path(f"{out}.checkpoint"))
            result = invoke(*arguments, *overwrite, "--seed", "1")
        assert result.exit_code == 2
        assert "m.safetensors: file cannot be written (No space left on device)." in result.stderr
        assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == before
        assert invoke(*arguments, "--overwrite").exit_code == 0
        before = {path.name: path.read_bytes() for path in out.parent.iterdir()}
        assert len(before) == 3


def test_predictions_without_their_configuration_are_said_to_be_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, out = tmp_path / "m.safetensors", tmp_path / "p.csv"
    arguments = write_inputs(tmp_path, epochs=1)
    assert invoke(*arguments, "--no-baseline", "--out", model).exit_code == 0
    fill_disk(monkeypatch, Path(f"{out}.config.json"))
    assert refusal("predict", model, arguments[1], "--out", out) == (
        f"{out}.config.json: file cannot be written (No space left on device). The predictions are complete in {out}."
    )
    assert len(out.read_text("utf-8").splitlines()) == 13
