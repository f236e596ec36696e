"""What a training loop needs of a trainer: epochs of F replicas, their weights and their state."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.nn.capsule_use import CapsuleUse
from graphcaps.training.replicas import Replica

__all__ = ["METRICS", "EpochEnd", "ReplicaTrainer", "strip_prefix"]

METRICS = (
    "train_loss",
    "train_accuracy",
    "validation_loss",
    "validation_accuracy",
    "test_accuracy",
    "validation_metric",
)
"""Metrics of an epoch, with one number per replica."""


@dataclass(frozen=True)
class EpochEnd:
    """Metrics of one epoch, one number per replica, on the host.

    Args:
        epoch (int): Number of the epoch, counted from 1.
        epochs (int): Number of epochs of the training.
        seconds (float): Duration of the epoch, evaluation included.
        train_loss, train_accuracy (list): Over the training set, in training mode: with dropout, and with the current
            weights even where averaged weights are evaluated.
        validation_loss, validation_accuracy (list): Over the validation set; empty without one.
        test_accuracy (list): Over the test set; empty without one.
        validation_metric (list): The metric of the validation set that selects the epoch, the higher the better; empty
            if that is the loss. (default: empty)
        loss_terms (dict): Terms of the training loss by name, before weighting, as means over training graphs with
            nodes: ``margin``, ``reconstruction`` and ``parts`` of HGCN. Empty for models without epochs.
    """

    epoch: int
    epochs: int
    seconds: float
    train_loss: list[float]
    train_accuracy: list[float]
    validation_loss: list[float]
    validation_accuracy: list[float]
    test_accuracy: list[float]
    validation_metric: list[float] = field(default_factory=list)
    loss_terms: dict[str, list[float]] = field(default_factory=dict)

    @property
    def criterion(self) -> list[float]:
        """What selects the epoch, the lower the better: one minus the metric, or the validation loss."""
        return [1 - value for value in self.validation_metric] or self.validation_loss

    @property
    def metrics(self) -> dict[str, list[float]]:
        """What is measured of every replica, by the names in :data:`METRICS`."""
        return {name: getattr(self, name) for name in METRICS}

    def first(self, count: int) -> EpochEnd:
        """The metrics of the first ``count`` replicas."""
        return self if len(self.train_loss) <= count else self.pick(range(count))

    def pick(self, replicas: Sequence[int]) -> EpochEnd:
        """The metrics of some replicas."""

        def pick(values: list[float]) -> list[float]:
            return [values[f] for f in replicas] if values else []

        metrics = {name: pick(values) for name, values in self.metrics.items()}
        terms = {name: pick(values) for name, values in self.loss_terms.items()}
        return EpochEnd(self.epoch, self.epochs, self.seconds, **metrics, loss_terms=terms)

    @classmethod
    def join(cls, events: Sequence[EpochEnd], seconds: float | None = None) -> EpochEnd:
        """The same epoch of other replicas each, as that of all replicas in this order.

        A metric that some of them lack is not a number for their replicas.

        Args:
            events (list): At least one; all have the same terms of the loss.
            seconds (float, optional): Duration of the epoch. (default: the sum of theirs)
        """

        def join(columns: Sequence[list[float]]) -> list[float]:
            if not any(columns):
                return []
            sizes = [len(event.train_loss) for event in events]
            return [
                value
                for column, size in zip(columns, sizes, strict=True)
                for value in column or [math.nan] * size
            ]

        seconds = sum(event.seconds for event in events) if seconds is None else seconds
        metrics = {name: join([event.metrics[name] for event in events]) for name in METRICS}
        terms = {name: join([event.loss_terms[name] for event in events]) for name in events[0].loss_terms}
        return cls(events[0].epoch, events[0].epochs, seconds, **metrics, loss_terms=terms)

    def means(self) -> dict[str, float]:
        """Losses, accuracies and metric by name, as means over the replicas, without those that were not measured and
        that of the test set."""
        columns = {name: values for name, values in self.metrics.items() if name != "test_accuracy"}
        return {name: sum(values) / len(values) for name, values in columns.items() if values}


class ReplicaTrainer(Protocol):
    """What a :class:`~graphcaps.training.loop.TrainingLoop` calls: a :class:`Trainer`, or one of several processes.

    Args:
        replicas (list): F replicas.
        config (TrainConfig): Hyper-parameters of the training.
        epoch (int): Number of completed epochs.
    """

    replicas: list[Replica]
    config: TrainConfig
    epoch: int

    def run_epoch(self) -> EpochEnd:
        """One pass over the training set of every replica, then evaluation on validation and test sets."""
        ...

    def weights(self) -> dict[str, Tensor]:
        """State of the model, with a leading axis F. Later epochs may change the tensors."""
        ...

    def scores(self) -> list[Tensor]:
        """Class scores of the last epoch's evaluation, on the host.

        For each replica its validation graphs, then its test graphs, ``[n_f, O]``. Only with ``keep_scores``.
        """
        ...

    def capsule_use(self) -> list[CapsuleUse]:
        """Capsules in use of the lowest level with the present weights, one entry per replica.

        Over the validation graphs of a replica, or over its training graphs if it has none. Empty for a model without
        capsules.
        """
        ...

    def keep(self, replicas: Sequence[int]) -> None:
        """Copies the present weights of some replicas, in place of their weights that were kept before."""
        ...

    def kept(self) -> dict[str, Tensor]:
        """The kept weights, in the form of :meth:`weights`; empty if none are kept."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All tensors that a resumed training needs, kept weights included. Later epochs may change them."""
        ...

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continues from a result of :meth:`state`."""
        ...

    def close(self) -> None:
        """Releases memory and processes. No epoch can follow."""
        ...


def strip_prefix(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries of ``state`` whose names start with ``prefix``, with the prefix removed."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
