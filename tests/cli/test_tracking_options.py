"""``--log``: what is refused, what is written, and what remains after Ctrl-C."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import graphcaps
from graphcaps.cli import progress
from graphcaps.cli.tracking_options import open_log
from graphcaps.training import Callback
from tests.cli.training import invoke, refusal, write_inputs

EPOCHS = 3


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_inputs(tmp_path_factory.mktemp("data"), EPOCHS)


@pytest.fixture(autouse=True)
def tmp_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))


def steps(folder: Path) -> list[int]:
    """Steps of the training loss in all event files of the only run below a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    (run,) = folder.iterdir()
    log = EventAccumulator(str(run), purge_orphaned_data=False).Reload()
    return [event.step for event in log.Scalars("loss/train")]


def test_other_trackers_are_refused(inputs: list[str], tmp_path: Path) -> None:
    for text in ("wandb", "tensorboard:", "runs"):
        message = refusal(*inputs, "--out", tmp_path / "m.safetensors", "--log", text)
        assert f"'--log' must be tensorboard, or tensorboard:DIR, got '{text}'." in message
    assert list(tmp_path.glob("m.*")) == []


@pytest.mark.parametrize("verb", [("train", "--out", "m.safetensors"), ("evaluate",)])
def test_options_are_checked_before_the_data_are_read(verb: tuple[str, ...], tmp_path: Path) -> None:
    name, *out = verb
    words = (name, tmp_path / "missing.csv", *(tmp_path / word if "." in word else word for word in out))
    for option, value in (("--log", "x"), ("--metric", "auc"), ("--class-weight", "equal")):
        assert f"'{option}' must be" in refusal(*words, option, value)
    if name == "train":
        assert "'--calibrate' must be temperature, isotonic or none" in refusal(*words, "--calibrate", "x")


class Full(Callback):
    """A logger on a full disk."""

    folder = run_folder = Path("runs")

    def on_result(self, results: Mapping[str, float]) -> None:
        raise OSError("No space left on device")


DISK_IS_FULL = (
    "graphcaps: The callback Full failed in on_result: OSError: No space left on device. "
    "All epochs are trained, and the result is kept."
)


def test_results_are_written_before_a_callback_raises(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in ("train", "evaluate"):
        monkeypatch.setattr(f"graphcaps.cli.{verb}.open_log", lambda text, owner: [Full()])
    out = tmp_path / "results"
    result = invoke("evaluate", *inputs[1:], "--no-baseline", "--folds", 3, "--out", out)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, DISK_IS_FULL)
    assert "held-out" in result.stdout
    assert len(list(out.glob("*.summary.json"))) == 1
    model = tmp_path / "m.safetensors"
    result = invoke(*inputs, "--out", model)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, DISK_IS_FULL)
    assert "training accuracy" in result.stdout
    assert graphcaps.load(model).training["epochs_run"] == EPOCHS
    assert not (tmp_path / "m.safetensors.checkpoint").exists()


def test_classical_models_have_no_epochs_to_log(inputs: list[str], tmp_path: Path) -> None:
    words = [word for word in inputs if word != "--preset" and not word.endswith(".toml")]
    options = ("--out", tmp_path / "m.safetensors", "--model", "wl-forest", "--log", "tensorboard")
    assert "'--log' must be left out with the model 'wl-forest'" in refusal(*words, *options)


def test_without_the_extra_the_command_is_named(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    message = refusal(*inputs, "--out", tmp_path / "m.safetensors", "--log", "tensorboard")
    assert "pip install 'graphcaps[track]'" in message


def test_without_the_option_nothing_is_logged() -> None:
    assert open_log(None, "train") == []


def test_a_folder_that_is_a_file_is_refused(inputs: list[str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'track' is not installed")
    (tmp_path / "file").write_text("")
    message = refusal(
        *inputs, "--out", tmp_path / "m.safetensors", "--log", f"tensorboard:{tmp_path / 'file'}"
    )
    assert "expected a folder to write into" in message


def test_an_interrupted_training_loses_and_doubles_no_step(
    inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'track' is not installed")
    logs = tmp_path / "logs"
    words = (*inputs, "--out", tmp_path / "m.safetensors", "--log", f"tensorboard:{logs}")
    describe = progress.describe

    def press(event: Any) -> str:
        if event.epoch == 2:
            raise KeyboardInterrupt
        return describe(event)

    monkeypatch.setattr(progress, "describe", press)
    stopped = invoke(*words)
    assert stopped.exit_code == 130
    assert f"--log tensorboard:{logs} --resume" in stopped.output.replace("\n", " ")
    assert steps(logs) == [1, 2]
    monkeypatch.setattr(progress, "describe", describe)
    resumed = invoke(*words, "--resume")
    assert resumed.exit_code == 0, resumed.output
    assert f"tensorboard --logdir {logs}" in resumed.output.replace("\n", " ")
    assert steps(logs) == [1, 2, 3]


def test_evaluate_logs_every_fold(inputs: list[str], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'track' is not installed")
    logs = tmp_path / "logs"
    words = ("evaluate", *inputs[1:], "--no-baseline", "--folds", 3, "--log", f"tensorboard:{logs}", "--json")
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    (run,) = logs.iterdir()
    assert sorted(path.name for path in run.iterdir() if path.is_dir()) == [
        f"held-out-seed0-fold{fold}" for fold in range(3)
    ]
