"""Restarts on the command line: train --restarts, and info."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphcaps.inference.model_file import load
from tests.cli.training import invoke, refusal, write_inputs

pytestmark = pytest.mark.usefixtures("isolated_folders")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("restarts")
    return [*write_inputs(folder, epochs=2), "--validation", "0.3", "--no-baseline"]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ((), "lowest validation loss, mean of the last 2 epochs"),
        (("--metric", "accuracy"), "highest validation accuracy, mean of the last 2 epochs"),
        (("--parts", "blocks"), "lowest block loss on the validation graphs"),
    ],
)
def test_train_keeps_one_model_and_says_which(
    options: tuple[str, ...], rule: str, words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    written = invoke(*words, *options, "--restarts", 3, "--out", path, "--json")
    assert written.exit_code == 0, written.output
    assert "hgcn × 3 restarts" in written.stderr
    record = json.loads(written.stdout)["training"]["restarts"]
    values = [run["criterion"] for run in record["runs"]]
    best = max(values) if rule.startswith("highest") else min(values)
    assert (record["count"], record["rule"]) == (3, rule)
    assert record["kept_seed"] == values.index(best)
    fitted = load(path)
    assert not fitted.is_committee
    assert fitted.training["restarts"] == record
    history = json.loads(path.with_name("m.safetensors.history.json").read_text())
    assert "member_train_loss" not in history[-1]
    assert history[-1]["validation_loss"] == pytest.approx(fitted.training["validation_loss"])
    line = f"kept seed {record['kept_seed']} of 3: {rule} (seed 0: {values[0]:.4f}, 1: {values[1]:.4f}"
    again = invoke(*words, *options, "--restarts", 3, "--out", path, "--resume")
    assert "This training is finished; nothing to do." in again.stderr
    assert line in " ".join(again.stdout.split())
    assert "this set selected the seed, so it is not a test" in " ".join(again.stdout.split())
    assert line in " ".join(invoke("info", path).stdout.split())
    message = refusal(*words, *options, "--ensemble", 3, "--out", path, "--resume")
    assert "the file is not the model of this training" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--ensemble", 2),
            "options: '--restarts' must be 1 with a committee, which keeps all of its members, got 3 with 2 members. "
            "Set --ensemble 1 to keep one of 3 models.",
        ),
        (
            ("--preset", "best"),
            "options: '--restarts' must be 1 with a committee, which keeps all of its members, got 3 with 5 members of "
            "the preset 'best'. Set --ensemble 1 to keep one of 3 models.",
        ),
        (
            ("--validation", 0),
            "train: '--restarts' must be 1 without validation graphs, which choose the model to keep, got 3. "
            "Set --validation above 0.",
        ),
    ],
)
def test_models_that_cannot_be_chosen_from_are_refused(
    options: tuple[object, ...], message: str, words: list[str], tmp_path: Path
) -> None:
    assert refusal(*words, "--restarts", 3, "--out", tmp_path / "m.safetensors", *options) == message
    assert not list(tmp_path.glob("m.*"))


def test_classical_models_have_no_restarts(words: list[str], tmp_path: Path) -> None:
    arguments = ("train", words[1], "--model", "wl-forest", "--out", tmp_path / "m.safetensors")
    expected = "be left out with the model 'wl-forest', which is fitted without epochs, got 2."
    assert refusal(*arguments, "--restarts", 2) == f"options: '--restarts' must {expected}"


@pytest.mark.parametrize("number", [0, "two"])
def test_a_wrong_number_is_refused(number: object, words: list[str], tmp_path: Path) -> None:
    refused = invoke(*words, "--restarts", number, "--out", tmp_path / "m.safetensors")
    assert refused.exit_code == 2
    assert "--restarts" in refused.output
