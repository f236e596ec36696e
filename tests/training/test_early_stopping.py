"""Early stopping: the epoch that is kept and the epoch at which patience ends, for each replica by itself."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.errors import ArgumentError
from graphcaps.nn.capsule_use import CapsuleUse
from graphcaps.training import Replica, TrainingError
from graphcaps.training.early_stopping import (
    WINDOW,
    BestWeights,
    EarlyStopping,
    check_metric,
    check_patience,
    epoch_scale,
    trailing_criterion,
)
from graphcaps.training.loop import TrainingLoop
from graphcaps.training.replica_trainer import EpochEnd


class CurveTrainer:
    """A trainer whose validation losses are prescribed, ``[F, E]``; the weight of an epoch is its number.

    With ``as_metric`` the curves are those of a metric, and the losses are zero.
    """

    def __init__(self, curves: Any, as_metric: bool = False) -> None:
        self.as_metric = as_metric
        self.curves = np.atleast_2d(np.array(curves, dtype=float))
        F, E = self.curves.shape
        none = torch.empty(0, dtype=torch.long)
        self.replicas = [Replica(none, none, none) for _ in range(F)]
        self.config, self.epoch = TrainConfig(epochs=E), 0
        self.kept_weights = torch.full((F,), math.nan)

    def run_epoch(self) -> EpochEnd:
        self.epoch += 1
        losses = self.curves[:, self.epoch - 1].tolist()
        zeros = [0.0] * len(losses)
        if self.as_metric:
            return EpochEnd(self.epoch, self.config.epochs, 0.0, zeros, zeros, zeros, zeros, [], losses)
        return EpochEnd(self.epoch, self.config.epochs, 0.0, zeros, zeros, losses, zeros, [])

    def scores(self) -> list[Tensor]:
        raise NotImplementedError

    def capsule_use(self) -> list[CapsuleUse]:
        return []

    def weights(self) -> dict[str, Tensor]:
        return {"w": torch.full((len(self.replicas),), float(self.epoch))}

    def keep(self, replicas: list[int]) -> None:
        self.kept_weights[replicas] = float(self.epoch)

    def kept(self) -> dict[str, Tensor]:
        return {"w": self.kept_weights}

    def state(self) -> dict[str, Tensor]:
        return {"w": torch.tensor(float(self.epoch)), "epoch": torch.tensor(self.epoch)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.epoch = int(state["epoch"])

    def close(self) -> None: ...


def run(
    curves: Any,
    patience: int | None = None,
    has_validation: bool = True,
    as_metric: bool = False,
    scale: list[float] | None = None,
) -> tuple[TrainingLoop, BestWeights]:
    trainer = CurveTrainer(curves, as_metric)
    scales = np.array(scale or [1.0] * len(trainer.replicas))
    best = BestWeights(has_validation, trainer.config.epochs, scales)
    callbacks = [*([] if patience is None else [EarlyStopping(patience, scales)]), best]
    loop = TrainingLoop(trainer, callbacks)
    loop.run_all()
    return loop, best


def best_epoch(losses: list[float], has_validation: bool = True) -> tuple[int, float]:
    """The epoch kept, and the weight kept with it; the weight of an epoch is its number."""
    loop, best = run(losses, has_validation=has_validation)
    return int(best.best_epochs[0]), float(loop.trainer.kept()["w"][0])


def test_the_lowest_mean_of_the_last_21_losses_is_kept() -> None:
    losses = (
        [5.0] * 20 + [1.0] * 25 + [0.0] + [3.0] * 30
    )  # a single low loss at epoch 46 ends a window of low losses
    assert best_epoch(losses) == (46, 46)
    loop, _ = run(losses)
    assert trailing_criterion(loop.history[:46], WINDOW) == pytest.approx([20 / 21])
    assert best_epoch([0.0] + [1.0] * 40) == (21, 21)  # windows shorter than 21 epochs are not considered
    assert best_epoch([2.0] * 40) == (21, 21)  # the earliest of equal means
    assert best_epoch([1.0, 0.5, 2.0]) == (3, 3)  # fewer epochs than the window: the last one
    assert best_epoch([1.0, 0.5, 2.0], has_validation=False)[0] == 3
    assert best_epoch([math.nan] * 30)[0] == 0


def test_a_mean_does_not_depend_on_the_other_replicas() -> None:
    draw = np.random.default_rng(1).random((7, 40))
    together, _ = run(draw)
    for f in range(7):
        alone, _ = run(draw[f])
        for epoch in range(1, 41):
            mean = trailing_criterion(together.history[:epoch], WINDOW)[f]
            assert trailing_criterion(alone.history[:epoch], WINDOW).tolist() == [mean]
            recent = draw[f, max(epoch - WINDOW, 0) : epoch].tolist()
            # Not sum(), which compensates for rounding from Python 3.12 on.
            assert mean == reduce(operator.add, recent) / len(recent)


def test_patience_counts_epochs_without_progress() -> None:
    losses = [1.0] * 30 + [0.9 - 1e-6 * i for i in range(130)]
    loop, best = run(losses, patience=10)
    # From epoch 51 the window holds only the lower losses. Later gains are too small to count as progress, but their
    # weights are kept.
    assert loop.stopped.tolist() == [61]
    assert loop.epoch == 61
    assert best.best_epochs.tolist() == [61]


def test_each_replica_keeps_and_stops_as_if_it_were_alone() -> None:
    draw = np.random.default_rng(0)
    curves = 1 + draw.normal(size=(6, 60)).cumsum(1) / 10
    loop, best = run(curves, patience=9)
    singles = [run(curve, patience=9) for curve in curves]
    assert best.best_epochs.tolist() == [int(single.best_epochs[0]) for _, single in singles]
    assert loop.trainer.kept()["w"].tolist() == best.best_epochs.tolist()
    assert loop.stopped.tolist() == [int(single.stopped[0]) for single, _ in singles]
    assert loop.epochs_run.tolist() == [single.epoch for single, _ in singles]
    assert len(set(loop.stopped.tolist())) > 3
    assert loop.epoch == max(loop.epochs_run)


def test_epochs_of_few_steps_count_less() -> None:
    """Of the losses of a training of thirty graphs: those of its first weights are low, rise, and fall for good."""
    losses = [0.28] * 10 + [0.39] * 70 + [0.02] * 120
    loop, best = run([losses, losses], patience=30, scale=[1.0, 2.5])
    assert best.best_epochs.tolist() == [21, 101]
    assert loop.stopped.tolist() == [51, 176]  # the second begins at epoch 53 and waits 75 epochs
    alone, _ = run(losses, patience=30, scale=[2.5])
    assert alone.epochs_run.tolist() == [loop.epochs_run[1]]
    assert run(losses[:50], scale=[2.5])[1].best_epochs.tolist() == [50]


def test_scale_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.training.early_stopping.MIN_STEPS", 10)
    none = torch.empty(0, dtype=torch.long)
    replicas = [Replica(torch.arange(count), none, none) for count in (27, 36, 150, 1000, 0)]
    assert epoch_scale(replicas, TrainConfig(batch_size=16)).tolist() == [5, 10 / 3, 1, 1, 10]
    assert epoch_scale(replicas, TrainConfig(batch_size=16, batches_per_epoch=4)).tolist() == [2.5] * 5


def test_a_loss_that_is_not_a_number_neither_stops_nor_wins() -> None:
    loop, best = run([[math.nan] * 40, [1.0] * 40], patience=3)
    assert loop.stopped.tolist() == [0, 24]
    assert best.best_epochs.tolist() == [0, 21]
    with pytest.raises(TrainingError, match="No epoch has a validation loss that is a number"):
        best.weights(loop)


@pytest.mark.parametrize(
    ("has_validation", "epochs", "rule"),
    [
        (False, 60, "the last epoch"),
        (True, 20, "the last epoch, since 21 are needed for a choice"),
        (True, 21, "lowest validation loss, mean of the last 21 epochs"),
    ],
)
def test_description_of_the_rule(has_validation: bool, epochs: int, rule: str) -> None:
    assert BestWeights(has_validation, epochs, np.ones(1)).rule == rule


def test_a_metric_selects_the_epoch_of_its_highest_mean_and_drives_the_patience() -> None:
    """One minus a loss curve, as a metric, gives the epochs that the loss gives."""
    generator = np.random.default_rng(0)
    curves = np.clip(0.5 + generator.normal(size=(3, 120)).cumsum(1) / 40, 0, 1)
    curves[2, 40:] = 1.0  # the metric stays 0: patience ends
    for patience in (None, 15):
        by_loss, best_loss = run(curves, patience)
        by_metric, best_metric = run(1 - curves, patience, as_metric=True)
        assert best_metric.best_epochs.tolist() == best_loss.best_epochs.tolist()
        assert by_metric.stopped.tolist() == by_loss.stopped.tolist()
    assert by_metric.stopped[2] > 0
    assert (
        BestWeights(True, 60, np.ones(1), metric="roc-auc").rule
        == "highest validation ROC-AUC, mean of the last 21 epochs"
    )


def test_a_metric_needs_a_validation_set_that_defines_it() -> None:
    y, both, one = torch.tensor([0, 1, 1, 1]), torch.tensor([0, 1]), torch.tensor([1, 2])
    none = torch.empty(0, dtype=torch.long)
    assert check_metric("train", "loss", y, [none]) == "loss"
    assert check_metric("train", "pr-auc", y, [both]) == "pr-auc"
    assert check_metric("train", "accuracy", y, [one]) == "accuracy"
    with pytest.raises(
        ArgumentError, match="be 'loss' without a validation set, got 'mcc' with no validation"
    ):
        check_metric("train", "mcc", y, [none])
    message = "be 'loss' or 'accuracy' here, got 'roc-auc' with validation graphs of one class in fold 2"
    with pytest.raises(ArgumentError, match=message):
        check_metric("train", "roc-auc", y, [both, one])
    with pytest.raises(ArgumentError, match="must be one of loss, accuracy"):
        check_metric("train", "auc", y, [both])


def test_invalid_patience_is_refused() -> None:
    check_patience("train", None)
    check_patience("train", 1)
    for value in (0, -3, 2.0, True):
        with pytest.raises(ArgumentError, match="train: 'patience' must be a whole number from 1 on, got"):
            check_patience("train", value)  # type: ignore[arg-type]
