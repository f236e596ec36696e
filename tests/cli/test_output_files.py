"""Outputs never replace what a command reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphcaps.cli.output_files import check_output_file
from graphcaps.errors import DataError
from tests.cli.training import refusal


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
