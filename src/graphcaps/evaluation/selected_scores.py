"""Class scores of validation and test graphs at the epoch that the held-out rule selects.

The rule compares means over epochs before and after each epoch (:func:`~graphcaps.evaluation.epoch_selection.smooth`),
so the selected epoch is known only later. Scores of the epochs that may still be selected are kept on the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphcaps.evaluation.epoch_records import stored_criterion
from graphcaps.evaluation.epoch_selection import WINDOW, lowest_epoch, smooth, window_for
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica

__all__ = ["SelectedScores"]

_HALF = WINDOW // 2


class SelectedScores(Callback):
    """Keeps the class scores of each replica's held-out epoch while a training runs.

    The window of the rule has :data:`WINDOW` epochs in trainings of at least twice as many, and fewer in shorter ones.
    Until then all epochs are kept. From then on the mean around an epoch is final when half a window has passed: the
    epoch is the best so far, or is dropped. The scores of a replica that stops early are decided at its stop. At most
    twice :data:`WINDOW` epochs are in memory.

    The trainer must keep scores (``keep_scores``). Comes after the callback that stops replicas.

    Args:
        replicas (list): F replicas of the training, each with a validation set.
    """

    name = "scores"

    def __init__(self, replicas: Sequence[Replica]) -> None:
        sizes = [replica.validation.numel() + replica.test.numel() for replica in replicas]
        ends = np.cumsum(sizes)
        self._rows = [slice(end - size, end) for end, size in zip(ends.tolist(), sizes, strict=True)]
        self._criteria: list[np.ndarray] = []  # of each epoch, [F]
        self._recent: dict[int, Tensor] = {}  # scores of undecided epochs, [R, O]
        self._best: Tensor | None = None  # scores of each replica's best decided epoch, [R, O]
        self._best_epochs = np.zeros(len(replicas), dtype=np.int64)
        self._lowest = np.full(len(replicas), np.inf)
        self._decided = np.zeros(len(replicas), dtype=bool)  # replicas that have stopped

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        self._criteria.append(stored_criterion(event))
        self._recent[event.epoch] = torch.cat(loop.trainer.scores())
        for f in np.flatnonzero((loop.stopped == event.epoch) & ~self._decided).tolist():
            curve = self._curve()[f : f + 1]
            best = 1 + int(lowest_epoch(curve, window_for(event.epoch))[0])
            if best != self._best_epochs[f]:
                self._keep(best, [f])
            self._decided[f] = True
        if event.epoch >= 2 * WINDOW:
            for epoch in [epoch for epoch in self._recent if epoch <= event.epoch - _HALF]:
                if epoch > _HALF:  # earlier ones are not considered
                    self._decide(epoch)
                del self._recent[epoch]

    def at(self, epochs: np.ndarray) -> list[Tensor] | None:
        """The scores of each replica at an epoch, ``[n_f, O]``: its validation graphs, then its test graphs.

        Args:
            epochs (ndarray): The selected epoch of each replica, counted from 1, ``[F]``.

        Returns:
            list or None: ``None`` if a resumed checkpoint has no scores of one of these epochs, because it comes from a
            longer run or from one without scores.
        """
        scores = []
        for f, epoch in enumerate(epochs.tolist()):
            source = self._best if epoch == self._best_epochs[f] else self._recent.get(epoch)
            if source is None:
                return None
            scores.append(source[self._rows[f]])
        return scores

    def state(self) -> dict[str, Tensor]:
        state = {"best_epochs": torch.from_numpy(self._best_epochs.copy())}
        if self._best is not None:
            state["best"] = self._best.clone()
        if self._recent:
            state["recent_epochs"] = torch.tensor(list(self._recent))
            state["recent"] = torch.stack(list(self._recent.values()))
        return state

    def restore(self, loop: TrainingLoop, state: dict[str, Tensor]) -> None:
        self._criteria = [stored_criterion(event) for event in loop.history]
        self._best = state["best"].clone() if "best" in state else None
        self._recent = {}
        if "recent" in state:
            epochs = state["recent_epochs"].tolist()
            self._recent = {epoch: rows.clone() for epoch, rows in zip(epochs, state["recent"], strict=True)}
        if "best_epochs" in state:
            self._best_epochs = state["best_epochs"].numpy().copy()
        self._decided = (loop.stopped > 0) & (self._best_epochs > 0)
        for f in np.flatnonzero((self._best_epochs > 0) & ~self._decided).tolist():
            self._lowest[f] = self._mean(int(self._best_epochs[f]))[f]

    def _curve(self) -> np.ndarray:
        """Criterion of all epochs so far, ``[F, E]``."""
        return np.stack(self._criteria, 1)

    def _mean(self, epoch: int) -> np.ndarray:
        """Mean of the criterion around an epoch whose window is complete, ``[F]``."""
        first = max(epoch - 1 - _HALF, 0)
        window = np.stack(self._criteria[first : epoch + _HALF], 1)
        mean: np.ndarray = smooth(window, WINDOW)[:, epoch - 1 - first]
        return mean

    def _decide(self, epoch: int) -> None:
        mean = self._mean(epoch)
        better = (mean < self._lowest) & ~self._decided
        self._lowest = np.where(better, mean, self._lowest)
        self._keep(epoch, np.flatnonzero(better).tolist())

    def _keep(self, epoch: int, replicas: list[int]) -> None:
        """Copies the scores of an epoch that is the best so far of some replicas."""
        scores = self._recent[epoch]
        if self._best is None:
            self._best = torch.zeros_like(scores)
        for f in replicas:
            self._best[self._rows[f]] = scores[self._rows[f]]
            self._best_epochs[f] = epoch
