"""``--log``: what is refused, what is written, and what remains after Ctrl-C."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from graphcaps.cli import progress
from graphcaps.cli.tracking_options import open_log
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
    words = ("evaluate", *inputs[1:], "--folds", 3, "--log", f"tensorboard:{logs}", "--json")
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    (run,) = logs.iterdir()
    assert sorted(path.name for path in run.iterdir() if path.is_dir()) == [
        f"held-out-seed0-fold{fold}" for fold in range(3)
    ]
