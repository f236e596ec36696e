"""Early stopping: which epoch of a training is kept, and when further epochs are not worth their time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphcaps.training.trainer import EpochEnd, strip_prefix

__all__ = ["MIN_DELTA", "WINDOW", "BestWeights", "PatienceTracker", "trailing_loss"]

WINDOW = 21
"""Number of epochs over which the validation loss is averaged before epochs are compared."""
MIN_DELTA = 0.0005
"""Smallest decrease of the loss that resets the patience; without it a training on a solved task never stops."""


def trailing_loss(history: Sequence[EpochEnd], window: int) -> float:
    """Mean validation loss of the last ``window`` epochs (fewer, if there are fewer) of a single replica."""
    recent = [event.validation_loss[0] for event in history[-window:]]
    return sum(recent) / len(recent)


class PatienceTracker:
    """Counts the epochs since the loss last fell by more than :data:`MIN_DELTA`.

    Args:
        shape (tuple): Shape of the losses: ``()`` for one training, ``(F,)`` for F replicas. (default: ``()``)
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.lowest = np.full(shape, np.inf)
        self.since = np.zeros(shape, dtype=np.int64)

    def update(self, epoch: int, loss: Any) -> None:
        """Records the loss of an epoch."""
        improved = loss < self.lowest - MIN_DELTA
        self.lowest = np.where(improved, loss, self.lowest)
        self.since = np.where(improved, epoch, self.since)

    def exhausted(self, epoch: int, patience: int) -> Any:
        """Whether ``patience`` epochs have passed without an improvement, in the shape of the losses."""
        return epoch - self.since >= patience


class BestWeights:
    """Keeps the weights of the best epoch while a training of one replica runs.

    With a validation set this is the epoch with the lowest :func:`trailing_loss`, the earliest of equals. The mean
    over :data:`WINDOW` epochs reduces noise; a centred mean would need later epochs. Epochs before the first full
    window are not considered, since an untrained model can have a low loss by chance. A training that is not longer
    than the window keeps its last epoch, and so does a training without a validation set.

    Args:
        has_validation (bool): Whether there is a validation set.
        epochs (int): Number of epochs of the training.
    """

    def __init__(self, has_validation: bool, epochs: int) -> None:
        self.has_validation, self.first = has_validation, min(WINDOW, epochs)
        self.epoch = 0
        self.loss = math.inf
        self.weights: dict[str, Tensor] = {}
        self.patience, self._tracked = PatienceTracker(), 0

    @property
    def rule(self) -> str:
        """Description of the rule by which the epoch is chosen."""
        if not self.has_validation:
            return "the last epoch"
        if self.first < WINDOW:
            return f"the last epoch, since {WINDOW} are needed for a choice"
        return f"lowest validation loss, mean of the last {WINDOW} epochs"

    def update(self, model: nn.Module, history: Sequence[EpochEnd]) -> None:
        """Compares the last epoch of ``history`` with the best one, and copies the weights if it is better."""
        if not self.has_validation:
            self.epoch = history[-1].epoch
            return
        loss = trailing_loss(history, WINDOW)
        if history[-1].epoch >= self.first and loss < self.loss:
            weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self.epoch, self.loss, self.weights = history[-1].epoch, loss, weights

    def should_stop(self, history: Sequence[EpochEnd], patience: int | None) -> bool:
        """Whether the loss has not fallen by :data:`MIN_DELTA` for ``patience`` epochs; never without validation."""
        if patience is None or not self.has_validation or not self.epoch:
            return False
        for last in range(max(self._tracked + 1, self.first), len(history) + 1):  # all epochs after a resume
            self.patience.update(last, trailing_loss(history[max(last - WINDOW, 0) : last], WINDOW))
        self._tracked = len(history)
        return bool(self.patience.exhausted(len(history), patience))

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint. They are never changed in place."""
        state = {f"weights.{name}": value for name, value in self.weights.items()}
        return state | {
            "epoch": torch.tensor(self.epoch),
            "loss": torch.tensor(self.loss, dtype=torch.float64),
        }

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Continues from a result of :meth:`state`, possibly in a training of another length."""
        if self.has_validation and int(state["epoch"]) < self.first:
            return
        self.epoch, self.loss = int(state["epoch"]), float(state["loss"])
        self.weights = {name: value.to(device) for name, value in strip_prefix("weights.", state).items()}
