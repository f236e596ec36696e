"""TensorBoardLogger: scalars of every epoch, hyperparameters and results; resuming doubles and loses nothing."""

from __future__ import annotations

import copy
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import graphcaps
from graphcaps.config import RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import MissingExtraError
from graphcaps.training import FinalTraining, TensorBoardLogger, train_final

STORE = planted_parts(num_graphs=30)
CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (3,), "num_factors": 2},
    training=TrainConfig(epochs=5, batch_size=16, halve_every=2),
)


def test_without_tensorboard_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(
        MissingExtraError, match=r"Logging to TensorBoard .* pip install 'graphcaps\[track\]'"
    ):
        TensorBoardLogger()


@pytest.fixture
def accumulator() -> Any:
    """Reads a folder of event files."""
    pytest.importorskip("tensorboard", reason="the extra 'track' is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder: Path) -> Any:
        return EventAccumulator(str(folder), purge_orphaned_data=False).Reload()

    return read


def only_folder(root: Path) -> Path:
    (folder,) = root.iterdir()
    return folder


def test_every_epoch_is_logged(accumulator: Any, tmp_path: Path) -> None:
    result = train_final(STORE, CONFIG, device="cpu", callbacks=[TensorBoardLogger(tmp_path)])
    folder = only_folder(tmp_path)
    assert folder.name.startswith("planted-parts-easy-hgcn-")
    log = accumulator(folder)
    tags = log.Tags()["scalars"]
    for name in ("loss/train", "loss/validation", "accuracy/train", "accuracy/validation", "learning rate"):
        assert [event.step for event in log.Scalars(name)] == [1, 2, 3, 4, 5], name
    assert {"loss terms/margin", "loss terms/reconstruction"} <= set(tags)
    losses = [event.value for event in log.Scalars("loss/train")]
    assert losses == pytest.approx([event.train_loss[0] for event in result.history])
    rates = [event.value for event in log.Scalars("learning rate")]
    assert rates == pytest.approx([0.001, 0.001, 0.0005, 0.0005, 0.00025])
    (accuracy,) = log.Scalars("result/validation_accuracy")
    assert accuracy.value == pytest.approx(result.training["validation_accuracy"])
    assert any("hyperparameters" in tag for tag in log.Tags()["tensors"])
    assert {"_hparams_/experiment", "_hparams_/session_start_info"} <= set(log.summary_metadata)


def test_a_resumed_run_has_every_step_once(accumulator: Any, tmp_path: Path) -> None:
    """The first run is killed after more epochs than its checkpoint has; files of the second run replace the first."""
    logs, checkpoint = tmp_path / "logs", tmp_path / "checkpoint"
    first = FinalTraining(STORE, CONFIG, device="cpu", callbacks=[TensorBoardLogger(logs)])
    events = first.run()
    next(events)
    first.save(checkpoint)
    next(events)
    next(events)
    folder = only_folder(logs)
    assert [event.step for event in accumulator(folder).Scalars("loss/train")] == [1, 2, 3]  # already on disk
    second = FinalTraining(STORE, CONFIG, device="cpu", callbacks=[TensorBoardLogger(logs)])
    second.resume(checkpoint)
    assert len(list(second.run())) == 4
    second.result()
    log = accumulator(only_folder(logs))
    assert [event.step for event in log.Scalars("loss/train")] == [1, 2, 3, 4, 5]
    assert [event.step for event in log.Scalars("loss terms/margin")] == [1, 2, 3, 4, 5]
    events.close()


def test_a_second_run_leaves_the_log_of_the_first(accumulator: Any, tmp_path: Path) -> None:
    """The number of epochs is not part of the checksum: a run can be continued for longer."""
    checkpoint, steps = tmp_path / "checkpoint", {}
    for epochs in (2, 3):
        config = CONFIG.with_training(epochs=epochs)
        run = FinalTraining(STORE, config, device="cpu", callbacks=[TensorBoardLogger(tmp_path / "logs")])
        list(run.run())
        run.save(checkpoint)
    longer = FinalTraining(STORE, CONFIG, device="cpu", callbacks=[TensorBoardLogger(tmp_path / "logs")])
    longer.resume(checkpoint)
    list(longer.run())
    for folder in sorted((tmp_path / "logs").iterdir()):
        steps[folder.name[-2:]] = [event.step for event in accumulator(folder).Scalars("loss/train")]
    assert list(steps.values()) == [[1, 2], [1, 2, 3, 4, 5]]
    assert list(steps)[1] == "-2"


def test_folds_have_folders_of_their_own(accumulator: Any, tmp_path: Path) -> None:
    ledger = graphcaps.cross_validate(STORE, CONFIG, folds=3, callbacks=[TensorBoardLogger(tmp_path)])
    folder = only_folder(tmp_path)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    assert names == [f"held-out-seed0-fold{fold}" for fold in range(3)]
    for fold, name in enumerate(names):
        values = [event.value for event in accumulator(folder / name).Scalars("accuracy/test")]
        assert values == pytest.approx(ledger.records[0].curves.test_accuracy[fold].tolist())
    (result,) = accumulator(folder).Scalars("result/held-out_accuracy")
    assert result.value == pytest.approx(ledger.estimates["held-out"].mean / 100)


def test_the_callback_of_an_estimator_is_copied(accumulator: Any, tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path)
    train_final(STORE, CONFIG, device="cpu", callbacks=[logger])
    assert copy.deepcopy(logger).folder == tmp_path
    assert logger.run_folder == only_folder(tmp_path)
