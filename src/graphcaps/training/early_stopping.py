"""Which graphs choose the epoch of a single training, and how they do it while it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphcaps.data.splits.folds import Split
from graphcaps.errors import ArgumentError
from graphcaps.training.trainer import EpochEnd, strip_prefix

__all__ = [
    "MIN_DELTA",
    "WINDOW",
    "BestWeights",
    "PatienceTracker",
    "label_column_hint",
    "trailing_loss",
    "validation_split",
]

WINDOW = 21
"""Epochs that a validation loss is averaged over before epochs are compared."""
MIN_DELTA = 0.0005
"""By how much the loss must fall for patience to begin anew: without it, a task that is solved never ends."""


def validation_split(y: Tensor, share: float, seed: int, class_names: Sequence[str] = ()) -> Split:
    """All graphs in two parts: a share of every class to choose the epoch by, the rest to learn from.

    Of a class with n graphs, ``share · n`` are drawn, rounded, but at least one, and at least one is left.

    Args:
        y (Tensor): Class of each graph, ``[G]``.
        share (float): From 0 (no validation part) to below 1.
        seed (int): Seed of the draw.
        class_names (sequence): What the classes are called in messages. (default: their numbers)

    Raises:
        ArgumentError: If the share is out of range, or a class has a single graph and there is a share.
    """
    owner = "validation_split"
    if not 0 <= share < 1:
        raise ArgumentError(owner, "validation", "be at least 0 and below 1", share)
    y = y.cpu()
    drawn = torch.zeros(y.numel(), dtype=torch.bool)
    generator = torch.Generator().manual_seed(seed)
    for label in y.unique().tolist() if share else []:
        graphs = (y == label).nonzero().squeeze(-1)
        n = graphs.numel()
        if n < 2:
            name, doubt = f"'{class_names[label]}'" if class_names else label, label_column_hint(y)
            raise ArgumentError(
                owner,
                "validation",
                "leave a graph of every class to learn from and one to choose by",
                f"1 graph of class {name} in all",
                f"{f'{doubt} Else add' if doubt else 'Add'} graphs of that class, "
                "or train with a validation share of 0.",
            )
        count = min(max(math.floor(share * n + 0.5), 1), n - 1)
        drawn[graphs[torch.randperm(n, generator=generator)[:count]]] = True
    nothing = torch.empty(0, dtype=torch.long)
    return Split((~drawn).nonzero().squeeze(-1), drawn.nonzero().squeeze(-1), nothing)


def label_column_hint(y: Tensor) -> str:
    """A question where most classes have a single graph: the column may hold names, not classes. "" elsewhere."""
    counts = y.unique(return_counts=True)[1]
    if 2 * int((counts == 1).sum()) <= counts.numel():
        return ""
    return f"{counts.numel():,} classes for {y.numel():,} graphs: is --label right?"


def trailing_loss(history: Sequence[EpochEnd], window: int) -> float:
    """Mean validation loss of the last ``window`` epochs, or of those there are, of a single replica."""
    recent = [event.validation_loss[0] for event in history[-window:]]
    return sum(recent) / len(recent)


class PatienceTracker:
    """When the loss last fell by :data:`MIN_DELTA`: what patience is counted from.

    Args:
        shape (tuple): Of the losses: ``()`` of one training, ``(F,)`` of F replicas. (default: ``()``)
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.lowest = np.full(shape, np.inf)
        self.since = np.zeros(shape, dtype=np.int64)

    def update(self, epoch: int, loss: Any) -> None:
        """Looks at the mean loss of an epoch that counts."""
        worth = loss < self.lowest - MIN_DELTA
        self.lowest, self.since = np.where(worth, loss, self.lowest), np.where(worth, epoch, self.since)

    def exhausted(self, epoch: int, patience: int) -> Any:
        """Whether so many epochs have brought none, in the shape of the losses."""
        return epoch - self.since >= patience


class BestWeights:
    """The weights of the epoch that counts, kept while a training of one replica runs.

    With a validation part that is the epoch with the lowest :func:`trailing_loss`, the earliest of equals:
    single epochs are noisy, and a centred mean would need epochs that are still to come. An epoch counts once
    the mean is over a full window, since a model that has learned nothing yet can have a low loss by chance;
    a training no longer than the window keeps its last epoch. So does one without a validation part.

    Args:
        has_validation (bool): Whether there is a validation part.
        epochs (int): Length of the training.
    """

    def __init__(self, has_validation: bool, epochs: int) -> None:
        self.has_validation, self.first = has_validation, min(WINDOW, epochs)
        self.epoch = 0
        self.loss = math.inf
        self.weights: dict[str, Tensor] = {}
        self.progress, self._seen = PatienceTracker(), 0

    def should_stop(self, history: Sequence[EpochEnd], patience: int | None) -> bool:
        """Whether ``patience`` epochs have brought no loss that is lower by :data:`MIN_DELTA`; never without a
        validation part."""
        if patience is None or not self.has_validation or not self.epoch:
            return False
        for last in range(max(self._seen + 1, self.first), len(history) + 1):  # after a resume, all of them
            self.progress.update(last, trailing_loss(history[max(last - WINDOW, 0) : last], WINDOW))
        self._seen = len(history)
        return bool(self.progress.exhausted(len(history), patience))

    @property
    def rule(self) -> str:
        """Which epoch is kept, in words."""
        if not self.has_validation:
            return "the last epoch"
        if self.first < WINDOW:
            return f"the last epoch, since {WINDOW} are needed for a choice"
        return f"lowest validation loss, mean of the last {WINDOW} epochs"

    def update(self, model: nn.Module, history: Sequence[EpochEnd]) -> None:
        """Looks at the epoch that just ended."""
        if not self.has_validation:
            self.epoch = history[-1].epoch
            return
        loss = trailing_loss(history, WINDOW)
        if history[-1].epoch >= self.first and loss < self.loss:
            weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            self.epoch, self.loss, self.weights = history[-1].epoch, loss, weights

    def state(self) -> dict[str, Tensor]:
        """For a checkpoint. The tensors are never changed in place."""
        state = {f"weights.{name}": value for name, value in self.weights.items()}
        return state | {
            "epoch": torch.tensor(self.epoch),
            "loss": torch.tensor(self.loss, dtype=torch.float64),
        }

    def load_state(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Goes on where :meth:`state` was taken, perhaps in a training of another length."""
        if self.has_validation and int(state["epoch"]) < self.first:
            return
        self.epoch, self.loss = int(state["epoch"]), float(state["loss"])
        self.weights = {name: value.to(device) for name, value in strip_prefix("weights.", state).items()}
