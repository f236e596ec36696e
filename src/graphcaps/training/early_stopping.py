"""Early stopping: which epoch of a training is kept, and when further epochs are not worth their time.

Both rules are applied to each replica by itself: its best epoch and the epoch after which it stops do not depend on
the replicas that are trained with it. They count epochs of at least ten steps: with fewer training graphs, several
epochs count as one (:func:`epoch_scale`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.errors import ArgumentError
from graphcaps.metrics import METRIC_TITLES, SelectionMetric, check_selection_metric
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica
from graphcaps.training.step import TrainingError

__all__ = [
    "MIN_DELTA",
    "WINDOW",
    "BestWeights",
    "EarlyStopping",
    "PatienceTracker",
    "check_metric",
    "check_patience",
    "epoch_scale",
    "trailing_criterion",
]

WINDOW = 21
"""Number of epochs over which the validation loss, or metric, is averaged before epochs are compared."""
MIN_STEPS = 10
"""Steps that an epoch has if it counts by itself. A model of thirty graphs, with two steps per epoch, learns nothing in
the first hundred epochs, while its loss moves away from that of its initial weights and back."""
MIN_DELTA = 0.0005
"""Smallest decrease of the criterion that resets the patience; without it a training on a solved task never stops."""


def epoch_scale(replicas: Sequence[Replica], config: TrainConfig) -> np.ndarray:
    """How many epochs of each replica have as many steps as one epoch of :data:`MIN_STEPS`, at least 1, ``[F]``.

    Graphs without nodes count, though no model is trained on them: the splits are enough to compute it.
    """
    steps = [
        config.batches_per_epoch or -(-replica.train.numel() // config.batch_size) for replica in replicas
    ]
    return np.array([max(1.0, MIN_STEPS / max(count, 1)) for count in steps])


def trailing_criterion(history: Sequence[EpochEnd], window: int) -> np.ndarray:
    """Mean of :attr:`EpochEnd.criterion` over the last ``window`` epochs (fewer, if there are fewer), ``[F]``.

    The criterion is the validation loss, or one minus the metric that selects the epoch: the lower, the better.
    """
    recent = [event.criterion for event in history[-window:]]
    # Added epoch by epoch: numpy's own sum of a column would depend on the number of columns in its last bits.
    total = np.zeros(len(recent[0]))
    for values in recent:
        total += values
    return total / len(recent)


def check_metric(owner: str, metric: str, y: Tensor, validation: Sequence[Tensor]) -> SelectionMetric:
    """The metric by which an epoch is selected, after a check that every validation set defines it.

    Args:
        owner (str): Owner that messages name.
        metric (str): Name of a :data:`~graphcaps.metrics.SelectionMetric`.
        y (Tensor): Class of each graph, ``[G]``.
        validation (list): Indices of the validation graphs of each replica.

    Raises:
        ArgumentError: If the metric is unknown, or is not the loss and a validation set is missing or has one class.
    """
    name = check_selection_metric(owner, metric)
    if name == "loss":
        return name
    for number, graphs in enumerate(validation, 1):
        classes = y.cpu()[graphs.cpu()].unique().numel()
        if classes > 1 or (classes == 1 and name in ("accuracy", "balanced-accuracy")):
            continue
        found = "no validation graphs" if classes == 0 else "validation graphs of one class"
        where = f" in fold {number}" if len(validation) > 1 else ""
        expected = "be 'loss' without a validation set" if classes == 0 else "be 'loss' or 'accuracy' here"
        raise ArgumentError(owner, "metric", expected, f"'{name}' with {found}{where}")
    return name


def check_patience(owner: str, patience: int | None) -> None:
    """Rejects a patience that is not a whole number from 1 on, or ``None``.

    Raises:
        ArgumentError: With ``owner`` in its message.
    """
    if patience is not None and (type(patience) is not int or patience < 1):
        raise ArgumentError(owner, "patience", "be a whole number from 1 on", patience)


class PatienceTracker:
    """Counts the epochs since the criterion of each replica last fell by more than :data:`MIN_DELTA`.

    Args:
        num_replicas (int): Number of replicas F. (default: 1)
    """

    def __init__(self, num_replicas: int = 1) -> None:
        self.lowest = np.full(num_replicas, np.inf)
        self.since = np.zeros(num_replicas, dtype=np.int64)

    def update(self, epoch: int, criterion: np.ndarray) -> None:
        """Records the criterion of an epoch, ``[F]``."""
        improved = criterion < self.lowest - MIN_DELTA
        self.lowest = np.where(improved, criterion, self.lowest)
        self.since = np.where(improved, epoch, self.since)

    def exhausted(self, epoch: int, patience: int | np.ndarray) -> np.ndarray:
        """Whether ``patience`` epochs have passed without an improvement, ``[F]``; never before the first loss."""
        exhausted: np.ndarray = (epoch - self.since >= patience) & np.isfinite(self.lowest)
        return exhausted


class EarlyStopping(Callback):
    """Stops each replica whose criterion has not fallen by :data:`MIN_DELTA` for a number of epochs.

    The criterion, validation loss or one minus a metric, is the :func:`trailing_criterion`, from the first full window
    on, or as many times later as ``scale`` says. A loop ends when all its replicas have stopped. Everything is computed
    from the history, so a checkpoint needs no further tensors.

    Args:
        patience (int): Number of epochs without an improvement.
        scale (ndarray): Result of :func:`epoch_scale`, which the first epoch and the patience are multiplied by.
    """

    name = "stopping"

    def __init__(self, patience: int, scale: np.ndarray) -> None:
        self.patience, self.first = np.ceil(patience * scale), np.ceil(WINDOW * scale)
        self._progress = PatienceTracker(len(scale))
        self._is_scaled, self._unscaled = bool(scale[0] > 1), patience

    @property
    def rule(self) -> str:
        """Description of the rule, with the number of epochs of the first replica."""
        short = f", {self._unscaled} epochs of {MIN_STEPS} steps" if self._is_scaled else ""
        return f"no progress above {MIN_DELTA} in {self.patience[0]:.0f} epochs{short}"

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        self._update(loop, loop.history)

    def restore(self, loop: TrainingLoop, state: dict[str, Tensor]) -> None:
        self._progress = PatienceTracker(len(loop.stopped))
        for epoch in range(1, len(loop.history) + 1):
            self._update(loop, loop.history[:epoch])

    def _update(self, loop: TrainingLoop, history: Sequence[EpochEnd]) -> None:
        epoch = history[-1].epoch
        counts = epoch >= np.minimum(self.first, loop.trainer.config.epochs)
        if not history[-1].criterion or not counts.any():
            return
        self._progress.update(epoch, np.where(counts, trailing_criterion(history, WINDOW), np.inf))
        stops = self._progress.exhausted(epoch, self.patience) & (loop.stopped == 0)
        loop.stopped[stops] = epoch


class BestWeights(Callback):
    """Keeps the weights of each replica's best epoch while a training runs.

    With a validation set this is the epoch with the lowest :func:`trailing_criterion`, the earliest of equals. The mean
    over :data:`WINDOW` epochs reduces noise; a centred mean would need later epochs. Epochs before the first full
    window, or as many times later as ``scale`` says, are not considered, since an untrained model can have a low loss
    by chance. A training that is not longer keeps its last epoch, and so does a training without a validation set.
    Epochs after a replica has stopped do not count.

    Weights are copied where they are (:meth:`~graphcaps.training.replica_trainer.ReplicaTrainer.keep`), and only those
    of replicas whose epoch is the best so far. Without a validation set nothing is copied.

    Args:
        has_validation (bool): Whether there is a validation set.
        epochs (int): Number of epochs of the training.
        scale (ndarray): Result of :func:`epoch_scale`.
        metric (str): Metric of the validation set that selects the epoch, for :attr:`rule`. (default: "loss")

    Attributes:
        best_epochs (ndarray): Best epoch of each replica, 0 if there is none yet, ``[F]``.
        criteria (ndarray): Trailing criterion of that epoch, ``[F]``.
    """

    name = "best"

    def __init__(
        self, has_validation: bool, epochs: int, scale: np.ndarray, metric: SelectionMetric = "loss"
    ) -> None:
        self.has_validation, self.epochs, self.metric = has_validation, epochs, metric
        self.first = np.ceil(WINDOW * scale).astype(np.int64)
        self.best_epochs = np.zeros(len(scale), dtype=np.int64)
        self.criteria = np.full(len(scale), np.inf)

    @property
    def rule(self) -> str:
        """Description of the rule by which the epoch is chosen."""
        if not self.has_validation:
            return "the last epoch"
        if (self.first > self.epochs).all():
            needed = int(self.first.min())
            few = " with so few training graphs" if needed > WINDOW else ""
            return f"the last epoch, since {needed} are needed for a choice{few}"
        best = "lowest" if self.metric == "loss" else "highest"
        return f"{best} validation {METRIC_TITLES[self.metric]}, mean of the last {WINDOW} epochs"

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        better = self._update(loop, loop.history)
        if self.has_validation and better.any():
            loop.trainer.keep(np.flatnonzero(better).tolist())

    def weights(self, loop: TrainingLoop) -> dict[str, Tensor]:
        """Weights of each replica's best epoch, with a leading axis F.

        Raises:
            TrainingError: If an epoch was interrupted, or no epoch of a replica has a finite criterion.
        """
        if not loop.complete:
            raise TrainingError("The last epoch was interrupted; resume from a checkpoint to continue.")
        if not self.best_epochs.all():
            raise TrainingError(
                f"No epoch has a validation {METRIC_TITLES[self.metric]} that is a number. "
                "Lower the learning rate, or check the data for extreme values."
            )
        return loop.trainer.kept() if self.has_validation else loop.trainer.weights()

    def state(self) -> dict[str, Tensor]:
        return {"epochs": torch.from_numpy(self.best_epochs.copy())}

    def restore(self, loop: TrainingLoop, state: dict[str, Tensor]) -> None:
        """Computes the best epochs again: in a run of another length, other epochs may be considered."""
        self.best_epochs[:], self.criteria[:] = 0, np.inf
        for epoch in range(1, len(loop.history) + 1):
            self._update(loop, loop.history[:epoch])
        moved = self.best_epochs != state["epochs"].numpy()
        if not self.has_validation or not moved.any():
            return
        # Only the last epoch of a shorter run can become the best one of a longer run, and the other way round.
        assert (self.best_epochs[moved] == loop.epoch).all() or not self.best_epochs[moved].any()
        if self.best_epochs[moved].any():
            loop.trainer.keep(np.flatnonzero(moved).tolist())

    def _update(self, loop: TrainingLoop, history: Sequence[EpochEnd]) -> np.ndarray:
        """Compares the last epoch of ``history`` with the best one; returns for which replicas it is better."""
        epoch = history[-1].epoch
        better = loop.is_training(epoch)
        if self.has_validation:
            criterion = trailing_criterion(history, WINDOW)
            better &= (criterion < self.criteria) & (epoch >= np.minimum(self.first, self.epochs))
            self.criteria = np.where(better, criterion, self.criteria)
        self.best_epochs = np.where(better, epoch, self.best_epochs)
        return better
