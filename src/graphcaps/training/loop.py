"""The training loop: epochs of F replicas until the last one or until all replicas have stopped, with callbacks.

The model to keep, cross-validation and scores of held-out graphs are this loop with different callbacks: early
stopping and best weights (:mod:`graphcaps.training.early_stopping`), checkpoints
(:mod:`graphcaps.training.checkpoint_writer`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from graphcaps.training.checkpoint import Checkpoint
from graphcaps.training.trainer import EpochEnd, ReplicaTrainer, strip_prefix

__all__ = ["Callback", "TrainingLoop"]


class Callback:
    """Called by a :class:`TrainingLoop` after every epoch. Subclasses override what they need.

    Attributes:
        name (str): Prefix of its tensors in a checkpoint.
    """

    name = ""

    def on_start(self, loop: TrainingLoop) -> None:
        """Called before the first epoch of a run, after a resume."""

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        """Called after every epoch; ``event`` is the last one of ``loop.history``."""

    def on_interrupt(self, loop: TrainingLoop) -> None:
        """Called when an exception ends the run, such as Ctrl-C."""

    def on_end(self, loop: TrainingLoop) -> None:
        """Called after the last epoch."""

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
    ) -> None:
        self.trainer, self.callbacks, self._explain = trainer, [*callbacks], explain
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
        while not self.ended:
            yield self._run_epoch()
        for callback in self.callbacks:
            callback.on_end(self)

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
        return event
