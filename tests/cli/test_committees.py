"""Committees on the command line: train --ensemble, predict and info."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from graphcaps.cli.main import app
from graphcaps.inference.model_file import load

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


# ---------------------------------------------------------------------- a preset with a committee
@pytest.fixture
def preset(tmp_path: Path) -> Path:
    """A small network, with two members and a forest."""
    path = tmp_path / "mine.toml"
    text = "[features]\npropagation = 1\n[model]\ncapsule_dim = 8\nnum_capsules = [3]\nnum_factors = 2\n"
    text += '[training]\nepochs = 1\n[committee]\nmembers = 2\ncompanion = "wl-forest"\n'
    path.write_text(text)
    return path


def test_train_takes_members_and_companion_of_the_preset(
    preset: Path, tmp_path: Path, few_trees: None
) -> None:
    words = ("train", "planted-parts", "--preset", preset, "--device", "cpu", "--no-baseline")
    model = tmp_path / "m.safetensors"
    trained = run(*words, "--out", model)
    assert trained.exit_code == 0, trained.output
    assert f"hgcn × 2 members, preset: {preset} (--preset)" in trained.output
    assert "the companion wl-forest reads edges" in trained.output
    fitted = load(model)
    assert (len(fitted.members), fitted.part_names) == (2, ("hgcn", "wl-forest"))
    again = run(*words, "--out", model, "--resume", "--ensemble", 2, "--companion", "wl-forest")
    assert "This training is finished; nothing to do." in again.output
    other = run(*words, "--out", model, "--resume", "--ensemble", 3)
    assert "the file is not the model of this training" in other.output
    single = run(*words, "--out", tmp_path / "s.safetensors", "--ensemble", 1, "--companion", "none")
    assert single.exit_code == 0, single.output
    fitted = load(tmp_path / "s.safetensors")
    assert (len(fitted.members), fitted.part_names) == (1, ("hgcn",))


def test_evaluate_takes_members_and_companion_of_the_preset(
    preset: Path, tmp_path: Path, few_trees: None
) -> None:
    out = tmp_path / "out"
    words = ("evaluate", "planted-parts", "--preset", preset, "--folds", 3, "--device", "cpu", "--out", out)
    shown = run(*words)
    assert shown.exit_code == 0, shown.output
    assert "3 folds × 2 seeds (1 committee of 2 members)" in shown.output
    (summary,) = out.glob("*hgcn.summary.json")
    content = json.loads(summary.read_text())
    assert content["committee"]["members"] == 2
    assert [part["name"] for part in content["companion"]["parts"]] == ["hgcn", "wl-forest"]
    again = run(*words, "--resume", "--ensemble", 2, "--companion", "wl-forest")
    assert "2 of 2 records are finished." in again.output
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("committee", "words", "message"),
    [
        ("members = 0", (), "committee: 'members' must be at least 1, got 0."),
        (
            "members = 2",
            ("--protocol", "paper"),
            "evaluate: '--ensemble' must come with --protocol held-out, whose epochs are not selected on test graphs, "
            "got --protocol paper. It is of the preset 'mine.toml'; --ensemble 1 --companion none leave it out.",
        ),
        (
            "companion = 'wl-forest'",
            ("--protocol", "both"),
            "evaluate: '--companion' must come with --protocol held-out, whose validation graphs choose the weight, "
            "got --protocol both. It is of the preset 'mine.toml'; --ensemble 1 --companion none leave it out.",
        ),
        ("companion = 'wl-forrest'", (), "mine.toml: '[committee] companion' must be one of wl-forest"),
        ("companion = 'gin'", (), "mine.toml: '[committee] companion' must be one of"),
        (
            "members = 2\n[model]\nname = 'wl'",
            (),
            "mine.toml: '[committee] members' must be 1 for 'wl', whose fit does not depend on the seed",
        ),
        (
            "companion = 'wl-forest'\n[model]\nname = 'wl-forest'",
            (),
            "mine.toml: '[committee] companion' must differ from the model itself, got 'wl-forest' beside 'wl-forest'.",
        ),
        ("companion = 'gin'", ("--companion", "gin"), "options: '--companion' must be one of"),
    ],
)
def test_wrong_committees_of_a_preset_are_refused(
    committee: str, words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(f"[committee]\n{committee}\n")
    refused = run("evaluate", "planted-parts", "--preset", "mine.toml", *words)
    assert refused.exit_code == 2
    assert message in " ".join(refused.output.split())
