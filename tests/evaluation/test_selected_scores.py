"""Scores of the held-out epoch: those of the epoch that the rule selects afterwards, for every length and stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.epoch_selection import WINDOW, held_out
from graphcaps.evaluation.selected_scores import SelectedScores
from graphcaps.training.checkpoint import Checkpoint
from graphcaps.training.early_stopping import EarlyStopping
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.replicas import Replica
from tests.training.test_early_stopping import CurveTrainer

SIZES = [(2, 3), (1, 1), (4, 2)]  # validation and test graphs of three replicas


class ScoringTrainer(CurveTrainer):
    """The scores of a graph at an epoch are the number of the epoch and the number of its replica."""

    def __init__(self, curves: Any, as_metric: bool = False) -> None:
        super().__init__(curves, as_metric)
        ones = [tuple(torch.zeros(size, dtype=torch.long) for size in (1, *sizes)) for sizes in SIZES]
        self.replicas = [Replica(*parts, fold=fold) for fold, parts in enumerate(ones)]

    def scores(self) -> list[Tensor]:
        return [torch.tensor([[self.epoch, f]] * sum(sizes)).float() for f, sizes in enumerate(SIZES)]


def curves(epochs: int, seed: int) -> np.ndarray:
    """Losses of three replicas: a random walk, one that falls, and one with many ties."""
    draw = np.random.default_rng(seed)
    walk = 0.5 + draw.normal(size=epochs).cumsum() / 20
    falling = np.linspace(1, 0.2, epochs) + draw.normal(size=epochs) / 30
    return np.stack([np.abs(walk), np.abs(falling), draw.integers(1, 3, epochs) / 4])


def loop_of(losses: np.ndarray, patience: int | None, as_metric: bool) -> tuple[TrainingLoop, SelectedScores]:
    trainer = ScoringTrainer(1 - losses if as_metric else losses, as_metric)
    scores = SelectedScores(trainer.replicas)
    callbacks: list[Callback] = [] if patience is None else [EarlyStopping(patience, np.ones(3))]
    return TrainingLoop(trainer, [*callbacks, scores]), scores


def check(loop: TrainingLoop, scores: SelectedScores) -> None:
    records = EpochRecords.from_events(loop.history, loop.trainer.replicas, loop.epochs_run)
    selected = held_out(records.criterion, records.test_accuracy, fold_epochs=records.fold_epochs)
    found = scores.at(selected.epochs)
    assert found is not None
    for f, (rows, epoch) in enumerate(zip(found, selected.epochs.tolist(), strict=True)):
        assert rows.tolist() == [[epoch, f]] * sum(SIZES[f])


@pytest.mark.parametrize("as_metric", [False, True])
@pytest.mark.parametrize("patience", [None, 2, 12, 30])
@pytest.mark.parametrize("epochs", [1, 2, 5, 20, 21, 22, 41, 42, 43, 60, 130])
def test_the_scores_are_those_of_the_selected_epoch(
    epochs: int, patience: int | None, as_metric: bool
) -> None:
    for seed in range(3):
        loop, scores = loop_of(curves(epochs, seed), patience, as_metric)
        loop.run_all()
        check(loop, scores)
        assert len(scores._recent) <= 2 * WINDOW


@pytest.mark.parametrize("patience", [None, 12])
@pytest.mark.parametrize("after", [1, 20, 42, 50, 90])
def test_a_resumed_training_has_the_same_scores(after: int, patience: int | None) -> None:
    losses = curves(120, 4)
    loop, _ = loop_of(losses, patience, False)
    events = loop.run()
    for _ in range(after):
        next(events, None)
    saved = loop.checkpoint()
    again, scores = loop_of(losses, patience, False)
    again.resume(saved)
    again.run_all()
    check(again, scores)


def test_a_checkpoint_without_the_scores_gives_none() -> None:
    loop, _ = loop_of(curves(60, 0), None, False)
    loop.run_all()
    saved = loop.checkpoint()
    again, scores = loop_of(curves(60, 0), None, False)
    again.resume(Checkpoint(saved.state, saved.history))
    assert scores.at(np.array([3, 3, 3])) is None
