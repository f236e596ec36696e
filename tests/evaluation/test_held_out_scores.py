"""Scores of graphs by models that were not trained on them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcaps.config import FeatureConfig, RunConfig, TrainConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation.cross_validation import cross_validate
from graphcaps.evaluation.divisions import FOLDS_SEED
from graphcaps.evaluation.epoch_selection import held_out
from graphcaps.evaluation.held_out_scores import HeldOutScores, held_out_scores
from graphcaps.training import early_stopping
from graphcaps.training.replica_trainer import EpochEnd

STORE = planted_parts(num_graphs=45)
CONFIG = RunConfig(
    model_arguments={"capsule_dim": 8, "num_capsules": (4,), "num_factors": 2},
    features=FeatureConfig(degree_onehot=4, propagation=1),
    training=TrainConfig(epochs=3, learning_rate=0.01),
)


def test_every_graph_is_scored_by_a_model_not_trained_on_it():
    found = held_out_scores(STORE, CONFIG, folds=3, device="cpu")
    assert np.isfinite(found.scores).all()
    assert np.isfinite(found.validation_scores).all()
    assert (found.fold != found.validation_fold).all()
    folds = stratified_folds(STORE.y, 3, FOLDS_SEED)
    for fold in range(3):
        np.testing.assert_array_equal(np.flatnonzero(found.fold == fold), folds.held_out(fold).test.sort()[0])
    assert found.epochs.tolist() == [3, 3, 3]
    assert found.score_kind == "lengths"


def test_accuracy_equals_that_of_the_cross_validation():
    """The same folds, weights and order: the last of three epochs, as both rules have it then."""
    found = held_out_scores(STORE, CONFIG, folds=3, device="cpu")
    ledger = cross_validate(STORE, CONFIG, folds=3, device="cpu")
    (record,) = ledger.records
    last = np.asarray(record.curves.test_accuracy)[:, -1]
    right = found.scores.argmax(1) == found.y
    ours = [right[found.fold == fold].mean() for fold in range(3)]
    np.testing.assert_allclose(ours, last)
    assert held_out(record.curves.validation_loss, record.curves.test_accuracy).accuracies.shape == (3,)


class _Stop:
    """Ctrl-C after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, event: EpochEnd) -> None:
        if event.epoch == self.epoch:
            raise KeyboardInterrupt


def _same(one: HeldOutScores, other: HeldOutScores) -> bool:
    return all(np.array_equal(value, getattr(other, name)) for name, value in vars(one).items())


@pytest.mark.parametrize("trunk", [None, "sage"])
def test_patience_ends_the_training_of_each_fold(monkeypatch: pytest.MonkeyPatch, trunk: str | None) -> None:
    """A fold keeps the weights that it has alone, with the same number of graphs trained together or not."""
    monkeypatch.setattr(early_stopping, "WINDOW", 2)
    seen: list[int] = []
    config = CONFIG.with_training(epochs=40, learning_rate=0.05).with_model(trunk=trunk)
    found = held_out_scores(
        STORE, config, folds=3, patience=2, device="cpu", on_epoch=lambda event: seen.append(event.epoch)
    )
    assert seen[-1] < 40
    ledger = cross_validate(STORE, config, folds=3, patience=2)
    epochs_run = ledger.records[0].curves.fold_epochs
    assert seen[-1] == epochs_run.max() > epochs_run.min()
    assert (found.epochs <= epochs_run).all()
    # The kept epoch of a fold is one of its curve: the test accuracy there is that of the scores.
    right = found.scores.argmax(1) == found.y
    for fold, epoch in enumerate(found.epochs):
        accuracy = ledger.records[0].curves.test_accuracy[fold, epoch - 1]
        assert right[found.fold == fold].mean() == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("trunk", "patience", "average", "stop"), [(None, None, 1, 1), (None, 2, 3, 3), ("sage", 2, 1, 5)]
)
def test_resumed_scores_equal_uninterrupted_ones(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trunk: str | None,
    patience: int | None,
    average: int,
    stop: int,
) -> None:
    monkeypatch.setattr(early_stopping, "WINDOW", 2)
    config = CONFIG.with_training(epochs=8, learning_rate=0.05, average_epochs=average).with_model(
        trunk=trunk
    )
    settings: dict[str, Any] = {"folds": 3, "patience": patience, "device": "cpu"}
    whole = held_out_scores(STORE, config, **settings)
    path = tmp_path / "scores.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        held_out_scores(STORE, config, **settings, checkpoint=path, on_epoch=_Stop(stop))
    seen: list[int] = []
    resumed = held_out_scores(
        *(STORE, config), **settings, checkpoint=path, resume=True, on_epoch=lambda e: seen.append(e.epoch)
    )
    assert seen[0] == stop + 1
    assert _same(resumed, whole)
    seen.clear()
    again = held_out_scores(
        *(STORE, config), **settings, checkpoint=path, resume=True, on_epoch=lambda e: seen.append(e.epoch)
    )
    assert _same(again, whole)  # without a further epoch
    assert seen == []


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    held_out_scores(STORE, CONFIG, folds=3, device="cpu", checkpoint=path)
    with pytest.raises(DataError, match=r"the checkpoint file exists already\. Pass resume=True to continue"):
        held_out_scores(STORE, CONFIG, folds=3, device="cpu", checkpoint=path)
    with pytest.raises(DataError, match=r"one of another run: patience none \(here 5\)"):
        held_out_scores(STORE, CONFIG, folds=3, device="cpu", checkpoint=path, resume=True, patience=5)
    shorter = CONFIG.with_training(epochs=2)
    with pytest.raises(DataError, match=r"a checkpoint of at most 2 epochs, found one of 3"):
        held_out_scores(STORE, shorter, folds=3, device="cpu", checkpoint=path, resume=True)
    with pytest.raises(KeyboardInterrupt):
        cross_validate(STORE, CONFIG, folds=3, results=tmp_path, on_event=lambda event: _Stop(1)(event.epoch))
    (records,) = (tmp_path / "unfinished").iterdir()
    with pytest.raises(DataError, match=r"kept none \(here best weights\)"):
        held_out_scores(STORE, CONFIG, folds=3, device="cpu", checkpoint=records, resume=True)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="have a class for every graph"):
        held_out_scores(replace(STORE, y=None), CONFIG, device="cpu")
    with pytest.raises(ArgumentError, match="'patience' must be a whole number from 1 on, got 0"):
        held_out_scores(STORE, CONFIG, device="cpu", patience=0)
    with pytest.raises(ArgumentError, match="'resume' must come with a checkpoint file, got none"):
        held_out_scores(STORE, CONFIG, device="cpu", resume=True)
