"""``graphcaps tune``: results, Ctrl-C and --resume, what train and evaluate take, and refusals in one sentence."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from graphcaps.cli.main import app
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.tu_writer import write_tu
from graphcaps.search import Search, successive_halving
from graphcaps.search import tune as function
from tests.cli.training import invoke, refusal

PRESET = """
[features]
degree_onehot = 3
propagation = 1

[model]
capsule_dim = 4
num_capsules = 2
num_factors = 2

[training]
epochs = 4
batch_size = 4
"""
SPACE = """
[training]
learning_rate = { low = 1e-3, high = 1e-1, log = true }

[model]
dropout = { low = 0.0, high = 0.6 }
num_capsules = [[2], [3]]
"""


@pytest.fixture(autouse=True)
def _short_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successive_halving, "MIN_RUNG", 1)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graphs, a preset and a space."""
    folder = tmp_path_factory.mktemp("tune")
    write_tu(planted_parts(num_graphs=12), folder / "SMALL")
    (folder / "small.toml").write_text(PRESET)
    (folder / "space.toml").write_text(SPACE)
    return folder


def _arguments(inputs: Path, *more: object) -> list[object]:
    files = ["--preset", inputs / "small.toml", "--space", inputs / "space.toml"]
    sizes = ["--trials", 6, "--batch", 3, "--per-shape", 3, "--folds", 3, "--reduction", 2]
    return ["tune", inputs / "SMALL", *files, *sizes, "--sampler", "random", "--device", "cpu", *more]


@pytest.mark.slow
def test_the_result_is_taken_by_train_and_evaluate(inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "search"
    result = invoke(*_arguments(inputs, "--out", out))
    assert result.exit_code == 0, result.output
    assert "6 trials × 3 folds, hgcn" in result.stderr
    assert "compared after 1, 2 and 4 epochs; sampler random." in result.stderr
    assert "Searched together: learning_rate, dropout. In groups of one shape: num_capsules." in result.stderr
    assert "so both are optimistic" in result.stdout
    assert f"--preset {out / 'best.toml'}" in result.stdout
    best = out / "best.toml"
    trained = invoke(
        *("train", inputs / "SMALL", "--preset", best, "--epochs", 1, "--device", "cpu"),
        *("--out", tmp_path / "model.safetensors"),
    )
    assert trained.exit_code == 0, trained.output
    evaluated = invoke(
        *("evaluate", inputs / "SMALL", "--preset", best, "--epochs", 1, "--folds", 3, "--device", "cpu"),
        "--no-baseline",
    )
    assert evaluated.exit_code == 0, evaluated.output
    assert refusal(*_arguments(inputs, "--out", out)).endswith(
        "this folder holds a search. Add --resume to continue it, or name another folder."
    )
    sentence = refusal(*_arguments(inputs, "--out", out, "--resume", "--seed", 1))
    assert "another one: seed 0 (here 1)" in sentence


def test_json(inputs: Path) -> None:
    result = invoke(*_arguments(inputs, "--json"))
    values = json.loads(result.stdout)
    assert values["complete"]
    assert len(values["trials"]) == 6
    assert values["best"]["state"] == "finished"
    assert values["config"]["training"]["learning_rate"] == values["best"]["values"]["training.learning_rate"]


def test_before_the_first_comparison_nothing_is_best(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Search, on_event: Any, minutes: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_run", interrupt)
    result = invoke(*_arguments(inputs, "--epochs", 1, "--out", tmp_path))
    assert result.exit_code == 130
    assert "compared after 1 epoch; sampler random." in result.stderr
    assert result.stderr.splitlines()[-1] == (
        "Stopped before the first trials were compared. Continue with the same command and --resume."
    )


@pytest.mark.slow
def test_ctrl_c_leaves_a_valid_result_and_resume_goes_on(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, stopped = Search._run, []

    def interrupted(self: Search, on_event: Any, minutes: Any) -> Any:
        def stop(event: Any) -> None:
            on_event(event)
            stopped.append(event)
            if len(stopped) == 4:  # within the second rung
                raise KeyboardInterrupt

        return run(self, stop, minutes)

    with monkeypatch.context() as patch:
        patch.setattr(Search, "_run", interrupted)
        result = invoke(*_arguments(inputs, "--out", tmp_path))
    assert result.exit_code == 130
    assert f"The best so far is in {tmp_path / 'best.toml'}." in result.stderr
    assert (tmp_path / "best.toml").is_file()
    resumed = invoke(*_arguments(inputs, "--out", tmp_path, "--resume", "--json"))
    unbroken = invoke(*_arguments(inputs, "--json"))
    trials = [json.loads(each.stdout)["trials"] for each in (resumed, unbroken)]
    for each in (*trials[0], *trials[1]):
        each["seconds"] = 0
    assert trials[0] == trials[1]


def test_options_that_all_trials_share_are_below_the_table(
    inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphcaps.cli.tune._SHOWN", 2)
    (tmp_path / "two.toml").write_text("[model]\nnum_factors = [2]\ndropout = [0.0, 0.1, 0.2]\n")
    words = ["tune", inputs / "SMALL", "--preset", inputs / "small.toml", "--space", tmp_path / "two.toml"]
    words += ["--folds", 3, "--sampler", "random", "--device", "cpu"]
    several, alone = (invoke(*words, "--trials", trials).stdout for trials in (3, 1))
    assert "The same in all of these: num_factors = 2." in several
    assert "… and 1 more trial." in several
    assert "dropout" in several.partition("\n")[0]
    assert "Options: num_factors = 2, dropout = 0." in alone


def test_a_time_limit(inputs: Path, tmp_path: Path) -> None:
    result = invoke(*_arguments(inputs, "--minutes", "1e-7", "--out", tmp_path))
    assert result.exit_code == 0
    assert "No trial has a validation loss yet; give the search more time" in result.stderr


def test_nested(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("[model]\ndropout = [0.0, 0.5]\n")
    result = invoke(
        *("tune", inputs / "SMALL", "--preset", inputs / "small.toml", "--space", tmp_path / "one.toml"),
        *("--trials", 2, "--folds", 3, "--epochs", 2, "--sampler", "random", "--device", "cpu", "--nested"),
    )
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "Held-out accuracy of the search (nested, 3 outer folds):" in text
    assert "and the difference is" in text
    assert "Nested: 3 further searches" in result.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--trials", 0), "'--trials' must be a whole number from 1"),
        (("--minutes", 0), "'--minutes' must be above 0"),
        (("--folds", 2), "'--folds' must be at least 3"),
        (("--sampler", "grid"), "'--sampler' must be one of tpe, random"),
        (("--space", "none.toml"), "none.toml: file not found"),
        (("--resume",), "--resume needs --out DIR"),
    ],
)
def test_refusals(inputs: Path, more: tuple[object, ...], words: str) -> None:
    assert words in refusal(*_arguments(inputs, *more))


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ("[model]\ndropuot = [0.1]", "unknown option 'dropuot' in [model]. Did you mean 'dropout'?"),
        (
            "[model]\ndropout = { low = 0.5, high = 0.2 }",
            "expected 'low' below 'high', 0.2, found 0.5",
        ),
        ("[model]\ndropout = { low = 0.0, high = 1.0 }", "model.dropout = 1.0 is refused"),
        ("", "the search space has no options"),
        ("[model", "invalid TOML"),
    ],
)
def test_spaces_that_are_refused(inputs: Path, tmp_path: Path, space: str, words: str) -> None:
    path = tmp_path / "space.toml"
    path.write_text(space)
    assert words in refusal(*_arguments(inputs, "--space", path))


def test_the_defaults_are_those_of_the_function() -> None:
    (command,) = (each for each in app.registered_commands if each.callback.__name__ == "tune")  # type: ignore[union-attr]
    taken = inspect.signature(function).parameters
    defaults = {
        name: option.default
        for name, option in inspect.signature(command.callback).parameters.items()  # type: ignore[arg-type]
        if name in taken and name not in ("device", "resume")
    }
    assert {"trials", "folds", "batch", "per_shape", "reduction", "sampler"} <= set(defaults)
    assert defaults == {name: taken[name].default for name in defaults}
