"""When checkpoints are written: after a number of epochs or a time, and when a run is interrupted.

By default the first epoch of a process is written too, so that a run advances however soon it is killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Literal

from graphcaps.errors import DataError
from graphcaps.training.checkpoint import Checkpoint, write_checkpoint
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.replica_trainer import EpochEnd

__all__ = ["CheckpointWriter"]

CHECKPOINT_SECONDS = 20.0
"""Least time between two checkpoints of a process, unless a number of epochs is given."""
COPY_SECONDS = 1.0
"""Least time between two copies of the state, to which an interrupted epoch falls back."""
MAX_TIME_SHARE = 0.01
"""Largest share of the time for copies, and for checkpoints: large states are copied and written less often."""


class CheckpointWriter(Callback):
    """Writes checkpoints of a loop to one file.

    An interrupted epoch has changed some weights. The state between two epochs is therefore copied about once per
    second, and this copy is written if the next epoch is interrupted. A run without a checkpoint file copies nothing.

    A file that cannot be written becomes a note, the first time, and training continues.

    Args:
        path (str or Path): The checkpoint file.
        fingerprint (dict): Result of :func:`graphcaps.training.fingerprint.run_fingerprint`.
        every (int, optional): Number of epochs between checkpoints. (default: the first epoch, then the first
            that ends 20 seconds after the last checkpoint)
        after_last (str): Whether a checkpoint of the last epoch is written: ``"always"``, ``"never"`` or as ``"due"``.
            (default: "due")

    Attributes:
        copy (Checkpoint, optional): Last copy of the state.
        notes (tuple): The first problem with the file; empty if there was none.
    """

    def __init__(
        self,
        path: str | Path,
        fingerprint: Mapping[str, Any],
        *,
        every: int | None = None,
        after_last: Literal["due", "always", "never"] = "due",
    ) -> None:
        self.path, self.fingerprint = Path(path), fingerprint
        self.every, self.after_last = every, after_last
        self.copy: Checkpoint | None = None
        self.notes: tuple[str, ...] = ()
        self._copied_at = self._written_at = monotonic()
        self._copy_seconds = self._write_seconds = 0.0  # of the last copy and the last checkpoint
        self._has_written = False

    def on_start(self, loop: TrainingLoop) -> None:
        self._written_at = monotonic()
        if loop.history:  # resumed: the first epoch may be interrupted too
            self._copy(loop)

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        now = monotonic()
        due = not (loop.ended and self.after_last != "due") and self._is_due(now, event.epoch)
        if due or self.copy is None or now - self._copied_at >= _interval(COPY_SECONDS, self._copy_seconds):
            self._copy(loop)
        if due:
            self._write(self.copy)

    def on_interrupt(self, loop: TrainingLoop) -> None:
        self._write(self.last_complete(loop))

    def on_end(self, loop: TrainingLoop) -> None:
        if self.after_last == "always":
            self._write(loop.checkpoint())

    def last_complete(self, loop: TrainingLoop) -> Checkpoint | None:
        """The state after the last epoch or, if an epoch was interrupted, the last copy; ``None`` before the first.

        An interrupt may also have ended the processes of the trainer, whose state cannot be read then: batch systems
        send SIGTERM to all processes of a job.
        """
        if not loop.complete:
            return self.copy
        try:
            return loop.checkpoint() if loop.history else None
        except MemoryError:  # a process of the trainer is gone
            return self.copy

    def _is_due(self, now: float, epoch: int) -> bool:
        if self.every is not None:
            return epoch % self.every == 0
        return not self._has_written or now - self._written_at >= _interval(
            CHECKPOINT_SECONDS, self._write_seconds
        )

    def _copy(self, loop: TrainingLoop) -> None:
        began = monotonic()
        self.copy = loop.checkpoint()
        self._copied_at = monotonic()
        self._copy_seconds = self._copied_at - began

    def _write(self, checkpoint: Checkpoint | None) -> None:
        if checkpoint is None:
            return
        began, failed = monotonic(), None
        for _ in range(2):  # another process may remove the folder in between
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_checkpoint(self.path, checkpoint, self.fingerprint)
            except (OSError, DataError) as error:
                failed = error
            else:
                failed = None
                break
        self._written_at, self._has_written = monotonic(), True
        self._write_seconds = self._written_at - began
        if failed is not None and not self.notes:
            self.notes = (f"A checkpoint could not be written: {failed}",)


def _interval(least: float, seconds: float) -> float:
    """Time between two actions that take ``seconds``: at least ``least``, and no more than a share of the time."""
    return max(least, seconds / MAX_TIME_SHARE)
