"""Folds × seeds (× variants) as replicas, in groups that are trained as one computation each."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.features.encoding import EncodedGraphs
from graphcaps.data.splits.folds import Folds
from graphcaps.errors import DataError
from graphcaps.evaluation.record import Protocol
from graphcaps.training.checkpoint import Checkpoint, load_checkpoint, take_checkpoint, write_checkpoint
from graphcaps.training.fingerprint import run_fingerprint
from graphcaps.training.memory import OutOfMemoryError, explain_out_of_memory
from graphcaps.training.multiprocess import make_trainer
from graphcaps.training.replicas import ModelFactory, Replica
from graphcaps.training.trainer import EpochEnd

__all__ = ["GroupTraining", "ReplicaGroup", "plan_groups"]

CHECKPOINT_SECONDS = 20.0
COPY_SECONDS = 1.0
"""How old the copy may be that an interrupted epoch falls back to: epochs of milliseconds are not copied each."""
MOST_SHARE = 0.01
"""Share of the time that copies, and checkpoints, may take: those of many replicas are large, and come later."""


@dataclass(frozen=True)
class ReplicaGroup:
    """Replicas of one protocol that are trained together."""

    protocol: Protocol
    replicas: tuple[Replica, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({replica.seed for replica in self.replicas}))

    @property
    def runs(self) -> tuple[tuple[str, int], ...]:
        """Variant and seed of its replicas, each once."""
        return tuple(dict.fromkeys((replica.variant, replica.seed) for replica in self.replicas))

    @property
    def name(self) -> str:
        """``seed0-folds0to9``, ``seeds0to4-folds0to9``: the same for the same replicas."""
        folds = sorted({replica.fold for replica in self.replicas})
        return f"seed{_range(self.seeds)}-fold{_range(folds)}"


def plan_groups(
    folds: Folds, protocol: Protocol, seeds: Sequence[int | tuple[str, int]], group: int | None = None
) -> list[ReplicaGroup]:
    """All folds of all seeds, at most ``group`` replicas together.

    A group holds whole seeds, or a part of one seed: what is finished never depends on a seed that is not.

    Args:
        folds (Folds): The folds.
        protocol (str): ``"held-out"`` or ``"paper"``.
        seeds (list): Seeds of the trainings, or pairs of a variant and a seed.
        group (int, optional): Most replicas at a time. (default: all)
    """
    K = folds.num_folds
    limit = group or K * len(seeds)
    runs = [("", run) if isinstance(run, int) else run for run in seeds]
    replicas = [_replica(folds, protocol, fold, *run) for run in runs for fold in range(K)]
    if limit >= K:
        size = limit // K * K
        parts = [replicas[start : start + size] for start in range(0, len(replicas), size)]
    else:
        parts = [
            replicas[first + start : first + min(start + limit, K)]
            for first in range(0, len(replicas), K)
            for start in range(0, K, limit)
        ]
    return [ReplicaGroup(protocol, tuple(part)) for part in parts]


def _replica(folds: Folds, protocol: Protocol, fold: int, variant: str, seed: int) -> Replica:
    split = folds.paper(fold) if protocol == "paper" else folds.held_out(fold)
    validation = torch.empty(0, dtype=torch.long) if split.validation is None else split.validation
    return Replica(split.train, validation, split.test, seed=seed, fold=fold, variant=variant)


class GroupTraining:
    """The training of one group, which can stop and go on.

    Args:
        group (ReplicaGroup): What is trained together.
        ready (EncodedGraphs): Graphs and input columns, on the device or on the host to be streamed.
        device (device): Where to train.
        config (RunConfig): Model and training.
        make (callable): From leading axes to the model.
        drawn (dict, optional): What draws the first weights of a variant.
        data (str): Digest of the graphs, for the checkpoint.
        checkpoint (Path, optional): File to keep up to date on the way.
        keep_end (bool): Write a checkpoint of the last epoch too: no record follows yet. (default: ``False``)
    """

    def __init__(
        self,
        group: ReplicaGroup,
        ready: EncodedGraphs,
        device: torch.device,
        config: RunConfig,
        make: ModelFactory,
        drawn: Mapping[str, ModelFactory] | None = None,
        data: str = "",
        checkpoint: Path | None = None,
        keep_end: bool = False,
    ) -> None:
        self.group, self.config, self.path, self.keep_end = group, config, checkpoint, keep_end
        self.device = device
        replicas = list(group.replicas)
        self.fingerprint: Mapping[str, Any] = run_fingerprint(config, data, replicas)
        with self._memory():
            training = config.training
            self.trainer = make_trainer(make, ready.store, ready.x, replicas, training, self.device, drawn)
        self.history: list[EpochEnd] = []
        self.notes: tuple[str, ...] = ()

    def resume(self) -> None:
        """Goes on from the checkpoint, where there is one.

        Raises:
            DataError: If it is damaged or of another run.
        """
        if self.path is None or not self.path.is_file():
            return
        found = load_checkpoint(self.path, self.fingerprint, self.device)
        state: dict[str, Tensor] = {name: value.to(self.device) for name, value in found.state.items()}
        self.trainer.load_state(state)
        self.history, self.notes = list(found.history), found.notes

    def run(self, on_epoch: Callable[[EpochEnd], object]) -> list[EpochEnd]:
        """Trains to the last epoch and returns the events of all epochs, those before a resume too.

        Ctrl-C leaves a checkpoint of a whole epoch behind, the last or one of a second before. One that
        cannot be written is noted.
        """
        last: Checkpoint | None = None
        copied = written = monotonic()
        copying = writing = 0.0  # seconds that the last one took
        inside = False
        try:
            while self.trainer.epoch < self.config.training.epochs:
                inside = True
                with self._memory():
                    event = self.trainer.run_epoch()
                self.history.append(event)
                now, ended = monotonic(), self.trainer.epoch >= self.config.training.epochs
                due = not ended and now - written >= max(CHECKPOINT_SECONDS, writing / MOST_SHARE)
                if due or last is None or now - copied >= max(COPY_SECONDS, copying / MOST_SHARE):
                    last, copied = self._take(), monotonic()
                    copying = copied - now
                inside = False
                if due:
                    self._write(last)
                    written = monotonic()
                    writing = written - copied
                on_epoch(event)
        except BaseException:
            # An epoch that was broken off has changed the weights, and a team that was broken off while it was
            # copied has ended: the copy before counts.
            self._write(last if inside else self._take())
            raise
        if self.keep_end:
            self._write(self._take())
        # A checkpoint of a longer run begins like this one.
        return self.history[: self.config.training.epochs]

    def _take(self) -> Checkpoint | None:
        return take_checkpoint(self.trainer, self.history) if self.path is not None and self.history else None

    def close(self) -> None:
        """Gives the memory back: the weights, and on a GPU the captured steps."""
        self.trainer.close()
        gc.collect()  # a training refers to itself here and there
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _write(self, checkpoint: Checkpoint | None) -> None:
        """Writes a checkpoint, or notes that it cannot be written: the training goes on without."""
        if self.path is None or checkpoint is None:
            return
        failed: Exception | None = None
        for _ in range(2):  # another run may remove the folder in between
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_checkpoint(self.path, checkpoint, self.fingerprint)
            except (OSError, DataError) as error:
                failed = error
            else:
                return
        note = f"A checkpoint could not be written: {failed}"
        if note not in self.notes:
            self.notes = (*self.notes, note)

    @contextlib.contextmanager
    def _memory(self) -> Any:
        try:
            with explain_out_of_memory(self.config, self.device):
                yield
        except OutOfMemoryError as error:
            if len(self.group.replicas) == 1:
                raise
            together = f"{len(self.group.replicas)} trainings run together"
            raise OutOfMemoryError(f"{error} Or set a smaller group: {together}.") from error


def _range(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"s{numbers[0]}to{numbers[-1]}"
