"""Groups of replicas (folds × seeds × variants), each group trained as one computation with checkpoints."""

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
from graphcaps.nn.graph_model import ModelFactory
from graphcaps.training.checkpoint import (
    CHECKPOINT_SECONDS,
    Checkpoint,
    load_checkpoint,
    take_checkpoint,
    write_checkpoint,
)
from graphcaps.training.fingerprint import run_fingerprint
from graphcaps.training.memory import OutOfMemoryError, explain_out_of_memory
from graphcaps.training.multiprocess import make_trainer
from graphcaps.training.replicas import Replica
from graphcaps.training.trainer import EpochEnd

__all__ = ["GroupTrainer", "ReplicaGroup", "plan_groups"]

COPY_SECONDS = 1.0
"""Least time between two copies of the state, to which an interrupted epoch falls back."""
MAX_TIME_SHARE = 0.01
"""Largest share of the time for copies, and for checkpoints: large states are copied and written less often."""


@dataclass(frozen=True)
class ReplicaGroup:
    """Replicas of one protocol, trained together."""

    protocol: Protocol
    replicas: tuple[Replica, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({replica.seed for replica in self.replicas}))

    @property
    def runs(self) -> tuple[tuple[str, int], ...]:
        """Distinct pairs of variant and seed of its replicas."""
        return tuple(dict.fromkeys((replica.variant, replica.seed) for replica in self.replicas))

    @property
    def name(self) -> str:
        """``seed0-folds0to9``, ``seeds0to4-folds0to9``: determined by the replicas."""
        folds = sorted({replica.fold for replica in self.replicas})
        return f"seed{_range(self.seeds)}-fold{_range(folds)}"


def plan_groups(
    folds: Folds, protocol: Protocol, seeds: Sequence[int | tuple[str, int]], group: int | None = None
) -> list[ReplicaGroup]:
    """Distributes all folds of all seeds over groups of at most ``group`` replicas.

    A group holds complete seeds, or a part of one seed: a finished seed never depends on an unfinished one.

    Args:
        folds (Folds): The folds.
        protocol (str): ``"held-out"`` or ``"paper"``.
        seeds (list): Seeds, or pairs of variant and seed.
        group (int, optional): Largest number of replicas per group. (default: all)
    """
    K = folds.num_folds
    limit = group or K * len(seeds)
    runs = [("", run) if isinstance(run, int) else run for run in seeds]
    replicas = [_replica(folds, protocol, fold, *run) for run in runs for fold in range(K)]
    if limit >= K:
        size = limit // K * K
        groups = [replicas[start : start + size] for start in range(0, len(replicas), size)]
    else:
        groups = [
            replicas[first + start : first + min(start + limit, K)]
            for first in range(0, len(replicas), K)
            for start in range(0, K, limit)
        ]
    return [ReplicaGroup(protocol, tuple(each)) for each in groups]


def _replica(folds: Folds, protocol: Protocol, fold: int, variant: str, seed: int) -> Replica:
    split = folds.paper(fold) if protocol == "paper" else folds.held_out(fold)
    validation = torch.empty(0, dtype=torch.long) if split.validation is None else split.validation
    return Replica(split.train, validation, split.test, seed=seed, fold=fold, variant=variant)


class GroupTrainer:
    """Trains one group of replicas; writes checkpoints and can resume from them.

    Args:
        group (ReplicaGroup): Replicas that are trained together.
        encoded (EncodedGraphs): Graphs and input features, on the device, or on the host for streaming.
        device (device): Device of the training.
        config (RunConfig): Model and training.
        make (callable): Builds the model, given its leading axes.
        initializers (dict, optional): Model factory for the initial weights of each variant.
        data (str): Digest of the graphs, for the checkpoint.
        checkpoint (Path, optional): Checkpoint file.
        keep_end (bool): Also write a checkpoint after the last epoch, if no record follows. (default: ``False``)
    """

    def __init__(
        self,
        group: ReplicaGroup,
        encoded: EncodedGraphs,
        device: torch.device,
        config: RunConfig,
        make: ModelFactory,
        initializers: Mapping[str, ModelFactory] | None = None,
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
            self.trainer = make_trainer(
                make, encoded.store, encoded.x, replicas, training, self.device, initializers
            )
        self.history: list[EpochEnd] = []
        self.notes: tuple[str, ...] = ()

    def resume(self) -> None:
        """Continues from the checkpoint, if there is one.

        Raises:
            DataError: If the checkpoint is damaged or belongs to another run.
        """
        if self.path is None or not self.path.is_file():
            return
        checkpoint = load_checkpoint(self.path, self.fingerprint, self.device)
        state: dict[str, Tensor] = {name: value.to(self.device) for name, value in checkpoint.state.items()}
        self.trainer.load_state(state)
        self.history, self.notes = list(checkpoint.history), checkpoint.notes

    def run(self, on_epoch: Callable[[EpochEnd], object]) -> list[EpochEnd]:
        """Trains to the last epoch and returns the events of all epochs, including those before a resume.

        After Ctrl-C a checkpoint of a complete epoch remains: the last one, or one about a second older. A failure
        to write it becomes a note.
        """
        copy: Checkpoint | None = None
        copied_at = written_at = monotonic()
        copy_seconds = write_seconds = 0.0  # of the last copy and the last checkpoint
        in_epoch = False
        try:
            while self.trainer.epoch < self.config.training.epochs:
                in_epoch = True
                with self._memory():
                    event = self.trainer.run_epoch()
                self.history.append(event)
                now, ended = monotonic(), self.trainer.epoch >= self.config.training.epochs
                due = not ended and now - written_at >= max(
                    CHECKPOINT_SECONDS, write_seconds / MAX_TIME_SHARE
                )
                if due or copy is None or now - copied_at >= max(COPY_SECONDS, copy_seconds / MAX_TIME_SHARE):
                    copy, copied_at = self._copy_state(), monotonic()
                    copy_seconds = copied_at - now
                in_epoch = False
                if due:
                    self._write(copy)
                    written_at = monotonic()
                    write_seconds = written_at - copied_at
                on_epoch(event)
        except BaseException:
            # An interrupted epoch has changed some weights, and the processes of an interrupted copy have ended:
            # in both cases the previous copy is written.
            self._write(copy if in_epoch else self._copy_state())
            raise
        if self.keep_end:
            self._write(self._copy_state())
        # The checkpoint may come from a longer run.
        return self.history[: self.config.training.epochs]

    def _copy_state(self) -> Checkpoint | None:
        return take_checkpoint(self.trainer, self.history) if self.path is not None and self.history else None

    def close(self) -> None:
        """Frees the memory of weights and, on a GPU, of captured steps."""
        self.trainer.close()
        gc.collect()  # a trainer contains reference cycles
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _write(self, checkpoint: Checkpoint | None) -> None:
        """Writes a checkpoint; a failure becomes a note and training continues."""
        if self.path is None or checkpoint is None:
            return
        failed: Exception | None = None
        for _ in range(2):  # another process may remove the folder in between
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
        """Adds the size of the group to messages about memory."""
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
