"""Cells of a cross-validation: a group of folds and seeds of one model, trained with a network or fitted."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from graphcaps._io.provenance import describe_hardware
from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.evaluation.checkpoint_dir import CheckpointDir
from graphcaps.evaluation.classical_folds import fit_group
from graphcaps.evaluation.replica_groups import GroupResult, ReplicaGroup, TrainingOptions, train_group
from graphcaps.execution.cell import Cell
from graphcaps.training.memory import MemoryEstimate
from graphcaps.training.peak_memory import PeakMemory
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.training_inputs import TrainingInputs, inputs_on

__all__ = ["CellResult", "ClassicalCell", "GroupCell", "NetworkCell"]


@dataclass(frozen=True, eq=False)
class CellResult:
    """Result of a cell.

    Args:
        group (GroupResult): Events of all epochs.
        peak_memory (int, optional): Largest memory, in bytes.
        hardware (str): Description of the device.
    """

    group: GroupResult
    peak_memory: int | None
    hardware: str


@dataclass(frozen=True, eq=False)
class GroupCell(Cell[CellResult]):
    """A group of replicas.

    Args:
        group (ReplicaGroup): The replicas.
        owner (int): Number of the cross-validation, among those that are trained together.
        number, of (int): Number of the group in its cross-validation, from 1, and number of groups.
        config (RunConfig): Model and training, resolved.
    """

    group: ReplicaGroup
    owner: int
    number: int
    of: int
    config: RunConfig

    def run(self, on_epoch: Callable[[EpochEnd], object]) -> CellResult:
        with PeakMemory(self.device) as memory:

            def follow(event: EpochEnd) -> None:
                memory.sample()
                on_epoch(event)

            result = self._train(follow)
        return CellResult(result, memory.bytes, describe_hardware(self.device))

    def _train(self, on_epoch: Callable[[EpochEnd], object]) -> GroupResult:
        raise NotImplementedError

    def halves(self) -> tuple[Cell[CellResult], ...]:
        replicas = self.group.replicas
        if len(replicas) < 2:
            return ()
        middle = len(replicas) // 2
        return tuple(
            self._with_group(replace(self.group, replicas=part))
            for part in (replicas[:middle], replicas[middle:])
        )

    def _with_group(self, group: ReplicaGroup) -> GroupCell:
        title = f"{self.title.removesuffix(self.group.name)}{group.name}"
        return replace(self, title=title, group=group, memory=self.memory // 2)


@dataclass(frozen=True, eq=False)
class ClassicalCell(GroupCell):
    """A group that is fitted without epochs; ``data`` is the :class:`GraphStore`."""

    data: GraphStore

    def _train(self, on_epoch: Callable[[EpochEnd], object]) -> GroupResult:
        return fit_group(self.group, self.data, self.config, on_epoch)

    def resumed(self) -> ClassicalCell:
        return self


@dataclass(frozen=True, eq=False)
class NetworkCell(GroupCell):
    """A group of networks that are trained as one computation; ``data`` are the :class:`TrainingInputs`.

    Args:
        options (TrainingOptions): What the cells of a cross-validation have in common.
        checkpoints (CheckpointDir): Checkpoints.
        resume (bool): Continue from the checkpoint, if there is one.
        marker (Path, optional): A file in the folder of results. A machine that does not see it has a file system of
            its own, and writes no checkpoints. (default: this machine)
        estimate (MemoryEstimate): For the memory of a half.
    """

    data: TrainingInputs
    options: TrainingOptions
    checkpoints: CheckpointDir
    resume: bool
    estimate: MemoryEstimate
    marker: Path | None = None

    def _train(self, on_epoch: Callable[[EpochEnd], object]) -> GroupResult:
        is_shared = self.marker is None or self.marker.is_file()
        result = train_group(
            self.group,
            inputs_on(self.data, self.device),
            self.config,
            self.options,
            checkpoint=self.checkpoints.path(self.group) if is_shared else None,
            resume=self.resume,
            on_epoch=on_epoch,
        )
        if self.marker is None:
            return result
        # Such as a checkpoint that could not be written, on one of several machines.
        return replace(result, notes=tuple(f"Node {platform.node()}: {note}" for note in result.notes))

    def resumed(self) -> NetworkCell:
        return replace(self, resume=True)

    def _with_group(self, group: ReplicaGroup) -> GroupCell:
        return replace(super()._with_group(group), memory=self.estimate.bytes_for(len(group.replicas)))
