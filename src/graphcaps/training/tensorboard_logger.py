"""A callback that writes the metrics of a run to TensorBoard (extra ``track``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphcaps._io.optional_imports import require
from graphcaps.training.loop import Callback, RunInfo, TrainingLoop
from graphcaps.training.replica_trainer import EpochEnd

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorBoardLogger"]

_EVENT_FILES = "events.out.tfevents.*"


class TensorBoardLogger(Callback):
    """Writes losses, accuracies and the learning rate of every epoch, hyperparameters and results.

    A run has a folder of its own, ``<name>-<digest>``: data set, model, and the first digits of a checksum of the
    values that determine its weights after each epoch. A run with the same values that starts anew has the folder
    ``<name>-<digest>-2``, and so on. The replicas of a cross-validation have folders below it. Every epoch is flushed
    to the file. A run that resumes writes a new file with all epochs of its history into the latest folder and then
    removes the older files there, so that no step is missing or doubled.

    Args:
        folder (str or Path): Folder of all runs, for ``tensorboard --logdir``. (default: "runs")

    Raises:
        MissingExtraError: If tensorboard is not installed.
    """

    def __init__(self, folder: str | Path = "runs") -> None:
        require("tensorboard", extra="track", purpose="Logging to TensorBoard")
        self.folder = Path(folder)
        self._info = RunInfo()
        self._number = 1  # of the runs with the same values
        self._writers: list[SummaryWriter] = []

    @property
    def run_folder(self) -> Path:
        """Folder of the run that was started last."""
        return self._numbered_folder(self._number)

    def on_start(self, loop: TrainingLoop) -> None:
        self._close()
        self._info, self._number = loop.info, 1
        while self._is_used(self._number):
            self._number += 1
        if loop.history and self._number > 1:
            self._number -= 1  # the run that is resumed
        for label in loop.info.replicas:
            self._writers.append(self._open(self.run_folder / label, loop, len(self._writers)))

    def on_epoch_end(self, loop: TrainingLoop, event: EpochEnd) -> None:
        for replica, writer in enumerate(self._writers):
            _write_epoch(writer, loop, event, replica)
            writer.flush()

    def on_interrupt(self, loop: TrainingLoop) -> None:
        self._close()

    def on_end(self, loop: TrainingLoop) -> None:
        self._close()

    def on_result(self, results: Mapping[str, float]) -> None:
        """Writes the results beside the hyperparameters, for the tab HPARAMS."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        metrics = {f"result/{name}": value for name, value in results.items()}
        with SummaryWriter(str(self.run_folder)) as writer:
            for summary in hparams(dict(self._info.hyperparameters), metrics):
                writer.file_writer.add_summary(summary)
            for name, value in metrics.items():
                writer.add_scalar(name, value)

    def _numbered_folder(self, number: int) -> Path:
        name = re.sub(r"[^\w.+-]", "_", self._info.name)
        suffix = "" if number == 1 else f"-{number}"
        return self.folder / f"{name}-{self._info.digest[:8]}{suffix}"

    def _is_used(self, number: int) -> bool:
        """Whether a replica of the run has a file there; other replicas may be those of the same cross-validation."""
        folder = self._numbered_folder(number)
        return any(True for label in self._info.replicas for _ in (folder / label).glob(_EVENT_FILES))

    def _open(self, folder: Path, loop: TrainingLoop, replica: int) -> SummaryWriter:
        """A writer of a new file that has the history of a replica; older files of the folder are removed."""
        from torch.utils.tensorboard import SummaryWriter

        older = list(folder.glob(_EVENT_FILES))
        # A name of its own: two files of one second and process would have the same name.
        number = max((int(path.suffix[1:]) for path in older if path.suffix[1:].isdigit()), default=0) + 1
        writer = SummaryWriter(str(folder), filename_suffix=f".{number}")
        rows = [f"| {name} | {value} |" for name, value in loop.info.hyperparameters.items()]
        writer.add_text("hyperparameters", "\n".join(["| name | value |", "|---|---|", *rows]))
        for event in loop.history:
            _write_epoch(writer, loop, event, replica)
        writer.flush()
        for path in older:
            path.unlink(missing_ok=True)
        return writer

    def _close(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def __getstate__(self) -> dict[str, Any]:
        """Without open files, so that estimators with this callback can be copied and sent to processes."""
        return {**self.__dict__, "_writers": []}


def _write_epoch(writer: SummaryWriter, loop: TrainingLoop, event: EpochEnd, replica: int) -> None:
    for name, value in loop.replica_scalars(event, replica).items():
        writer.add_scalar(name, value, event.epoch)
