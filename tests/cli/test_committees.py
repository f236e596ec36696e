"""Committees on the command line: train --ensemble, predict and info."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app
from graphcaps.inference.fitted_model import load

pytestmark = pytest.mark.usefixtures("isolated_folders")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a committee of two members, trained for two epochs."""
    folder = tmp_path_factory.mktemp("committee")
    result = run(
        *("train", "planted-parts", "--out", folder / "c.safetensors"),
        *("--ensemble", 2, "--epochs", 2, "--device", "cpu", "--json"),
    )
    assert result.exit_code == 0, result.output
    (folder / "train.json").write_text(result.stdout)
    return folder


def test_train_writes_one_file_of_all_members(folder: Path) -> None:
    assert len(load(folder / "c.safetensors").members) == 2
    training = json.loads((folder / "train.json").read_text())["training"]
    assert [member["seed"] for member in training["members"]] == [0, 1]
    history = json.loads((folder / "c.safetensors.history.json").read_text())
    assert len(history) == 2
    row = history[-1]
    assert row["train_loss"] == pytest.approx(sum(row["member_train_loss"]) / 2)
    assert len(row["member_validation_accuracy"]) == 2
    again = run(
        *("train", "planted-parts", "--out", folder / "c.safetensors", "--resume"),
        *("--ensemble", 2, "--epochs", 2, "--device", "cpu"),
    )
    assert "This training is finished; nothing to do." in again.output
    assert "2 members, seeds 0 to 1" in again.output
    assert "epochs 2, 2 of 2" in again.output


def test_predict_adds_the_disagreement(folder: Path, tmp_path: Path) -> None:
    model, out = folder / "c.safetensors", tmp_path / "p.csv"
    result = run("predict", model, "planted-parts", "--out", out, "--max-disagreement", 0.0)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    columns = list(rows[0])
    assert columns[columns.index("disagreement") + 1] == "abstained"
    values = [float(row["disagreement"]) for row in rows]
    assert max(values) > 0
    assert [row["abstained"] == "yes" for row in rows] == [value > 0 for value in values]
    assert "with a disagreement above 0 nats" in result.output
    assert "nats on average, at most" in result.output


def test_info_lists_the_members(folder: Path) -> None:
    result = run("info", folder / "c.safetensors")
    assert "2 members with different seeds; usual disagreement up to" in result.output
    assert "seed 0, epoch 2; seed 1, epoch 2" in result.output


def test_wrong_committees_are_refused(tmp_path: Path) -> None:
    arguments = ("train", "planted-parts", "--out", tmp_path / "c.safetensors", "--ensemble")
    none = run(*arguments, 0)
    assert none.exit_code == 2
    assert "--ensemble" in none.output
    equal = run(*arguments, 2, "--model", "majority")
    assert equal.exit_code == 2
    assert (
        "options: '--ensemble' must be 1 for 'majority', whose fit does not depend on the seed"
        in equal.output
    )
    assert not list(tmp_path.iterdir())


def test_evaluate_adds_the_committee(tmp_path: Path) -> None:
    words = ("evaluate", "planted-parts", "--folds", 3, "--ensemble", 2, "--epochs", 1, "--device", "cpu")
    shown = run(*words, "--out", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "3 folds × 2 seeds (1 committee of 2 members)" in shown.output
    assert "committee of 2: mean of the probabilities of 2 seeds" in shown.output
    (summary,) = tmp_path.glob("*.summary.json")
    content = json.loads(summary.read_text())["committee"]
    assert (content["members"], content["seeds"]) == (2, [[0, 1]])
    assert f"{100 * content['accuracy']['mean']:.2f}" in shown.output
    refused = run(*words, "--protocol", "paper")
    assert refused.exit_code == 2
    assert "'--ensemble' must come with --protocol held-out" in refused.output
