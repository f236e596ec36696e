"""The training loop: epochs of F replicas until the last one or until all replicas have stopped, with callbacks.

The model to keep, cross-validation and scores of held-out graphs are this loop with different callbacks: early
stopping and best weights (:mod:`graphcaps.training.early_stopping`), checkpoints
(:mod:`graphcaps.training.checkpoint_writer`).
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.errors import GraphcapsError
from graphcaps.training.checkpoint import Checkpoint
from graphcaps.training.replica_trainer import EpochEnd, ReplicaTrainer, strip_prefix

__all__ = [
    "Callback",
    "CallbackError",
    "RunInfo",
    "TrainingLoop",
    "hyperparameters",
    "notify",
    "notify_result",
]


class CallbackError(GraphcapsError):
    """An exception in a callback of the user, as one sentence.

    Attributes:
        result (object): If all epochs are trained, what the call would have returned: the ``FinalResult`` of
            ``train_final``, the ``Ledger`` of ``cross_validate``. ``None`` otherwise.
    """

    result: object = None

    def __init__(
        self, callback: Callback, method: str, error: Exception, *, is_trained: bool = False
    ) -> None:
        consequence = (
            "All epochs are trained, and the result is kept."
            if is_trained
            else "The training itself is sound; correct the callback and resume or repeat the run."
        )
        name, kind = type(callback).__name__, type(error).__name__
        super().__init__(f"The callback {name} failed in {method}: {kind}: {error}. {consequence}")
        self._origin = (callback, method, error)

    def after_training(self) -> CallbackError:
        """The same error, of a run whose epochs are all trained."""
        trained = CallbackError(*self._origin, is_trained=True)
        trained.__cause__ = self.__cause__
        return trained


@dataclass(frozen=True)
class RunInfo:
    """What is trained, for callbacks.

    Args:
        name (str): Data set and model, such as ``MUTAG-hgcn``.
        digest (str): SHA-256 of all values that determine the run; a resumed run has the same.
        hyperparameters (dict): Flat table of the configuration, of text and numbers.
        replicas (tuple): Name of each replica, such as ``held-out-seed0-fold3``; ``""`` for a single training.
    """

    name: str = ""
    digest: str = ""
    hyperparameters: Mapping[str, str | int | float] = field(default_factory=dict)
    replicas: tuple[str, ...] = ("",)


def hyperparameters(config: RunConfig, **options: object) -> dict[str, str | int | float]:
    """A configuration and further options as a flat table of text and numbers; ``None`` becomes "none"."""
    values = config.as_dict()
    flat: dict[str, object] = {"dataset": config.dataset, **options}
    for section in ("model", "features", "training"):
        flat |= {f"{section}.{name}": value for name, value in values[section].items()}
    return {
        name: value if isinstance(value, str | int | float) else "none" if value is None else str(value)
        for name, value in flat.items()
    }


class Callback:
    """Called by a :class:`TrainingLoop` as a training proceeds. Subclasses override what they need.

    Callbacks of a user are called in their order, after an epoch is complete and its checkpoint, if one is due, is
    written. They must not change the trainer. An exception in one of them ends the training with a
    :class:`CallbackError`, and the last complete epoch can be resumed. After the last epoch the result is kept and the
    error raised at the end. docs/tracking.md has examples.

    Attributes:
        name (str): Prefix of its tensors in a checkpoint; for callbacks of the training itself.
    """

    name = ""

    def on_start(self, loop: TrainingLoop) -> None:
        """Called before the first epoch of a run; after a resume, ``loop.history`` has the earlier epochs.

        A cross-validation may train its replicas in several loops, one after another.
        """

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        """Called after every epoch; ``event`` is the last one of ``loop.history``."""

    def on_interrupt(self, loop: TrainingLoop) -> None:
        """Called when an exception ends the run, such as Ctrl-C."""

    def on_end(self, loop: TrainingLoop) -> None:
        """Called after the last epoch."""

    def on_result(self, results: Mapping[str, float]) -> None:
        """Called once at the end of a user's run with its final metrics by name, such as ``test_accuracy``."""

    def state(self) -> dict[str, Tensor]:
        """Tensors for a checkpoint that cannot be computed from the history."""
        return {}

    def restore(self, loop: TrainingLoop, state: dict[str, Tensor]) -> None:
        """Continues from a result of :meth:`state`. Trainer and history of the loop are already restored."""


class TrainingLoop:
    """Runs the epochs of a trainer and calls its callbacks after each of them, in their order.

    Args:
        trainer (ReplicaTrainer): Trains F replicas.
        callbacks (list): Called after every epoch. A callback that stops replicas comes before those that depend on
            it, and one that writes checkpoints last. (default: none)
        explain (callable, optional): Returns a context in which epochs and callbacks run, to explain exceptions such
            as a lack of memory.
        observers (list): Callbacks of the user. (default: none)
        info (RunInfo, optional): What is trained. (default: no description)

    Attributes:
        history (list): An :class:`EpochEnd` per completed epoch.
        stopped (ndarray): Epoch after which each replica stopped, 0 while it is trained, int64 ``[F]``. A stopped
            replica is trained on with the others, but its later epochs do not count.
        complete (bool): Whether the state of the trainer is that of the last epoch in ``history``; not so after an
            interrupted epoch.
    """

    def __init__(
        self,
        trainer: ReplicaTrainer,
        callbacks: Sequence[Callback] = (),
        explain: Callable[[], AbstractContextManager[None]] = nullcontext,
        observers: Sequence[Callback] = (),
        info: RunInfo | None = None,
    ) -> None:
        self.trainer, self.callbacks, self._explain = trainer, [*callbacks], explain
        self.observers, self.info = [*observers], info or RunInfo()
        self.history: list[EpochEnd] = []
        self.stopped = np.zeros(len(trainer.replicas), dtype=np.int64)
        self.complete = True

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return len(self.history)

    @property
    def ended(self) -> bool:
        """Whether all epochs are completed, or all replicas have stopped."""
        return self.epoch >= self.trainer.config.epochs or bool(self.stopped.all())

    @property
    def epochs_run(self) -> np.ndarray:
        """Number of epochs of each replica that count, ``[F]``; a resumed checkpoint may come from a longer run."""
        last = min(self.epoch, self.trainer.config.epochs)
        epochs: np.ndarray = np.where(self.stopped > 0, np.minimum(self.stopped, last), last)
        return epochs

    def is_training(self, epoch: int) -> np.ndarray:
        """Whether an epoch counts for each replica: the one after which it stopped does, later ones do not, ``[F]``."""
        training: np.ndarray = (self.stopped == 0) | (epoch <= self.stopped)
        return training

    def run(self) -> Iterator[EpochEnd]:
        """Trains to the end and yields an event per epoch.

        After an exception in or between epochs, call :meth:`interrupt`, as :meth:`run_all` does.
        """
        for callback in self.callbacks:
            callback.on_start(self)
        self._notify("on_start", lambda observer: observer.on_start(self))
        while not self.ended:
            yield self._run_epoch()
        for callback in self.callbacks:
            callback.on_end(self)
        self._notify("on_end", lambda observer: observer.on_end(self))

    def run_all(self, on_epoch: Callable[[EpochEnd], object] | None = None) -> list[EpochEnd]:
        """Trains to the end, calling ``on_epoch`` with every event; returns the events of all epochs.

        Events before a resume are included.
        """
        try:
            for event in self.run():
                if on_epoch is not None:
                    on_epoch(event)
        except BaseException:
            self.interrupt()
            raise
        return self.history[: self.trainer.config.epochs]  # a resumed checkpoint may come from a longer run

    def interrupt(self) -> None:
        """Tells the callbacks that the run has ended before its last epoch."""
        for callback in self.callbacks:
            callback.on_interrupt(self)
        for observer in self.observers:
            with suppress(Exception):  # the reason of the interrupt is reported
                observer.on_interrupt(self)

    def scalars(self, event: EpochEnd) -> dict[str, float]:
        """The metrics of an epoch by name, for trackers; those of several replicas begin with the replica's name.

        Names are ``loss/train``, ``accuracy/validation``, ``loss terms/margin`` and so on. Metrics that are not
        measured, and those of replicas that have stopped, are left out.
        """
        names = self.info.replicas
        return {
            f"{label}/{name}" if len(names) > 1 else name: value
            for replica, label in enumerate(names)
            for name, value in self.replica_scalars(event, replica).items()
        }

    def replica_scalars(self, event: EpochEnd, replica: int) -> dict[str, float]:
        """The metrics of one replica in :meth:`scalars`."""
        if not self.is_training(event.epoch)[replica]:
            return {}
        columns = {
            "loss/train": event.train_loss,
            "loss/validation": event.validation_loss,
            "accuracy/train": event.train_accuracy,
            "accuracy/validation": event.validation_accuracy,
            "accuracy/test": event.test_accuracy,
            "metric/validation": event.validation_metric,
            **{f"loss terms/{name}": values for name, values in event.loss_terms.items()},
        }
        scalars = {name: values[replica] for name, values in columns.items() if values}
        scalars["learning rate"] = self.trainer.config.learning_rate_at(event.epoch - 1)
        return {name: value for name, value in scalars.items() if math.isfinite(value)}

    def checkpoint(self) -> Checkpoint:
        """A copy of the state of trainer and callbacks, in memory. Call between epochs."""
        state = {name: value.detach().clone() for name, value in self.trainer.state().items()}
        extra = {
            f"{callback.name}.{name}": value
            for callback in self.callbacks
            for name, value in callback.state().items()
        }
        return Checkpoint(state, tuple(self.history), extra)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continues from a checkpoint of the same run."""
        self.trainer.load_state(checkpoint.state)
        self.history = list(checkpoint.history)
        self.stopped[:] = 0
        for callback in self.callbacks:
            callback.restore(self, strip_prefix(f"{callback.name}.", checkpoint.extra))

    def close(self) -> None:
        """Frees the memory of weights and, on a GPU, of captured steps. No epoch can follow."""
        self.trainer.close()
        gc.collect()  # a trainer contains reference cycles
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _run_epoch(self) -> EpochEnd:
        self.complete = False
        with self._explain():
            event = self.trainer.run_epoch()
            self.history.append(event)
            for callback in self.callbacks:
                callback.on_epoch_end(self, event)
        self.complete = True
        self._notify(
            f"on_epoch_end of epoch {event.epoch}", lambda observer: observer.on_epoch_end(self, event)
        )
        return event

    def _notify(self, method: str, call: Callable[[Callback], None]) -> None:
        notify(self.observers, method, call)


def notify_result(observers: Sequence[Callback], results: Mapping[str, float]) -> None:
    """Calls ``on_result`` of all callbacks of a user, also after one that raises.

    Raises:
        CallbackError: If one of them raises; the first of several.
    """
    failures = []
    for observer in observers:
        try:
            notify([observer], "on_result", lambda each: each.on_result(results))
        except CallbackError as error:
            failures.append(error.after_training())
    if failures:
        raise failures[0]


def notify(observers: Sequence[Callback], method: str, call: Callable[[Callback], None]) -> None:
    """Calls a method of a user's callbacks in their order.

    Raises:
        CallbackError: If one of them raises.
    """
    for observer in observers:
        try:
            call(observer)
        except Exception as error:
            raise CallbackError(observer, method, error) from error
