"""Cells of a search: trials of one shape that are trained together up to a rung."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from graphcaps.config import RunConfig
from graphcaps.errors import DataError
from graphcaps.evaluation.epoch_selection import lowest_epoch, smooth, window_for
from graphcaps.execution.cell import Cell
from graphcaps.models.builder import ModelBuilder, model_factory
from graphcaps.search.trial import Trial
from graphcaps.training.checkpoint import Checkpoint, check_state, load_checkpoint
from graphcaps.training.checkpoint_writer import CheckpointWriter
from graphcaps.training.fingerprint import run_fingerprint
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.memory import explain_out_of_memory
from graphcaps.training.multiprocess import TrainerFactory, make_trainer
from graphcaps.training.replica_settings import REPLICA_SETTINGS, ReplicaSettings
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica, select_replicas
from graphcaps.training.training_inputs import TrainingInputs, inputs_on

__all__ = ["TrialCell", "TrialResult", "trial_builder", "trial_variant"]


@dataclass(frozen=True, eq=False)
class TrialResult:
    """Result of a cell after a rung.

    Args:
        losses, accuracies (ndarray): Validation loss and accuracy of each replica at its selected epoch, ``[F]``.
        checkpoint (Checkpoint): State of all replicas, to train on.
        seconds (float): Duration.
        notes (tuple): Remarks on checkpoint files, one sentence each.
    """

    losses: np.ndarray
    accuracies: np.ndarray
    checkpoint: Checkpoint
    seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class TrialCell(Cell[TrialResult]):
    """Trials of one shape that are trained together; ``data`` are the :class:`TrainingInputs`.

    Args:
        name (str): Name of its checkpoint files.
        batch (int): Number of the batch, from 0.
        rung (int): Number of epochs to train up to.
        trials (tuple): The trials.
        configs (dict): Resolved configuration of each trial, by its number.
        replicas (tuple): The replicas of all trials: all folds of the first, then of the second, and so on.
        num_classes (int): Number of classes.
        digest (str): Digest of the graphs, for checkpoints.
        folder (Path, optional): Folder for checkpoints. (default: none are written)
        marker (Path, optional): A file beside the folder. A machine that does not see it has a file system of its own,
            and writes no checkpoints. (default: this machine)
        start (Checkpoint, optional): State after the last rung. (default: the initial weights)
    """

    data: TrainingInputs
    name: str
    batch: int
    rung: int
    trials: tuple[Trial, ...]
    configs: Mapping[int, RunConfig]
    replicas: tuple[Replica, ...]
    num_classes: int
    digest: str = ""
    folder: Path | None = None
    marker: Path | None = None
    start: Checkpoint | None = None

    @property
    def epochs_before(self) -> int:
        """Epochs of the earlier rungs."""
        return 0 if self.start is None else len(self.start.history)

    def up_to(self, rung: int) -> TrialCell:
        """The cell of a rung."""
        return replace(self, rung=rung)

    def keep(self, numbers: Sequence[int], checkpoint: Checkpoint | None) -> TrialCell:
        """Some of the trials: their replicas, and the state and the history of these.

        Args:
            numbers (sequence): Numbers of the trials; others than those of the cell are ignored.
            checkpoint (Checkpoint, optional): State of all replicas, from which the cell then goes on.
        """
        trials = tuple(trial for trial in self.trials if trial.number in numbers)
        names = {trial_variant(trial.number) for trial in trials}
        kept = [f for f, replica in enumerate(self.replicas) if replica.variant in names]
        if checkpoint is not None and kept and len(kept) < len(self.replicas):
            state = {name: value for name, value in checkpoint.state.items() if name != "epoch"}
            selected = select_replicas(state, kept) | {"epoch": checkpoint.state["epoch"]}
            checkpoint = Checkpoint(selected, tuple(event.pick(kept) for event in checkpoint.history))
        memory = self.memory * len(kept) // len(self.replicas)
        replicas = tuple(self.replicas[f] for f in kept)
        return replace(self, trials=trials, replicas=replicas, memory=memory, start=checkpoint)

    def resumed(self) -> TrialCell:
        return self  # which looks for its checkpoint file in any case

    def halves(self) -> tuple[Cell[TrialResult], ...]:
        numbers = [trial.number for trial in self.trials]
        if len(numbers) < 2:
            return ()
        middle = len(numbers) // 2
        return tuple(
            replace(self.keep(part, self.start), name=f"{self.name}.{half}", title=f"{self.title}.{half}")
            for half, part in enumerate((numbers[:middle], numbers[middle:]))
        )

    def run(self, on_epoch: Callable[[EpochEnd], object]) -> TrialResult:
        """Trains up to the rung, from the state after the last one or from a checkpoint file."""
        began = monotonic()
        config = self.configs[self.trials[0].number].with_training(epochs=self.rung)
        inputs = inputs_on(self.data, self.device)
        settings = {}
        for trial in self.trials:
            changed = self.configs[trial.number].with_training(epochs=self.rung)
            builder = trial_builder(changed, inputs, self.num_classes)
            settings[trial_variant(trial.number)] = ReplicaSettings(builder, changed.training)
        builder, replicas = trial_builder(config, inputs, self.num_classes), list(self.replicas)
        numbers = {name: _numbers(each) for name, each in settings.items()}
        fingerprint = run_fingerprint(config, self.digest, replicas, trials=numbers)
        is_shared = self.marker is None or self.marker.is_file()
        path = None
        if self.folder is not None and is_shared:
            path = self.folder / f"{self.name}-rung{self.rung}.checkpoint"
        writer = None if path is None else CheckpointWriter(path, fingerprint)
        callbacks: list[Callback] = [] if writer is None else [writer]
        notes: list[str] = []
        explain = partial(explain_out_of_memory, config, self.device)
        with explain():
            build = TrainerFactory(
                builder, inputs.store, inputs.x, config.training, self.device, settings=settings
            )
            trainer = make_trainer(build, replicas)
        loop = TrainingLoop(trainer, callbacks, explain)
        try:
            resumed = None if path is None else self._load(path, fingerprint, trainer.state(), notes)
            resumed = self.start if resumed is None else resumed
            if resumed is not None:
                loop.resume(resumed)
            losses, accuracies = _score(loop.run_all(on_epoch))
            notes += () if writer is None else writer.notes
            if self.marker is not None:
                notes = [f"Node {platform.node()}: {note}" for note in notes]
            return TrialResult(losses, accuracies, loop.checkpoint(), monotonic() - began, tuple(notes))
        finally:
            loop.close()

    def _load(
        self, path: Path, fingerprint: Mapping[str, Any], state: Mapping[str, torch.Tensor], notes: list[str]
    ) -> Checkpoint | None:
        """A checkpoint file of the cell; one that is damaged or of another training is removed with a note."""
        if not path.is_file():
            return None
        try:
            checkpoint = load_checkpoint(path, fingerprint, self.device)
            check_state(path, checkpoint.state, state)
        except DataError as error:
            path.unlink(missing_ok=True)
            reason = DataError(path, error.expected, error.found)  # without the advice to start again
            notes.append(f"{reason} The file was removed, and its trials go on from the last rung.")
            return None
        return checkpoint


def trial_builder(config: RunConfig, inputs: TrainingInputs, num_classes: int) -> ModelBuilder:
    """The builder of a trial's model for encoded graphs."""
    return model_factory(config, inputs.x.size(-1), num_classes, inputs.recipe.edge_kinds)


def trial_variant(number: int) -> str:
    """Variant of the replicas of a trial."""
    return f"trial{number}"


def _score(events: Sequence[EpochEnd]) -> tuple[np.ndarray, np.ndarray]:
    """For each replica the smoothed validation loss of its selected epoch, as the held-out rule selects it.

    A replica whose loss was not a number in some epoch has the loss infinity.

    Returns:
        tuple: Losses and accuracies, ``[F]`` each.
    """
    losses = np.array([event.validation_loss for event in events]).T  # [F, E]
    accuracies = np.array([event.validation_accuracy for event in events]).T
    finite = np.isfinite(losses).all(1) & (np.abs(losses).max(1, initial=0) < 1e6)
    clean = np.where(finite[:, None], losses, 0.0)
    window = window_for(losses.shape[1])
    chosen = lowest_epoch(clean, window)
    rows = np.arange(len(losses))
    return np.where(finite, smooth(clean, window)[rows, chosen], np.inf), accuracies[rows, chosen]


def _numbers(settings: ReplicaSettings) -> dict[str, Any]:
    """The numbers of a replica's settings, for the fingerprint."""
    options = settings.builder.kind.replica_options
    numbers = {
        name: settings.builder.arguments[name] for name in options if name in settings.builder.arguments
    }
    return numbers | {name: getattr(settings.training, name) for name in REPLICA_SETTINGS}
