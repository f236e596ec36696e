"""Trains the cells of cross-validations, those of several at a time where the executor can."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from graphcaps.data.store import GraphStore
from graphcaps.errors import GraphcapsError
from graphcaps.evaluation.checkpoint_dir import CheckpointDir
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.training_cells import CellResult, GroupCell
from graphcaps.execution.cell import Cell, ClusterProgress, Executor
from graphcaps.training.replica_trainer import EpochEnd

__all__ = ["GroupEpoch", "JointProgress", "train_together"]


@dataclass(frozen=True)
class GroupEpoch:
    """An epoch of one group of replicas.

    Args:
        dataset (str): Name of the data set.
        protocol (str): ``"held-out"`` or ``"paper"``.
        group (int): Number of the group, counted from 1 over both protocols.
        groups (int): Total number of groups.
        replicas (int): Folds × seeds trained together in this group.
        epoch (EpochEnd): Metrics of the epoch, one value per replica.
        variant (str): Variant of the run, such as the name of a companion.
    """

    dataset: str
    protocol: Protocol
    group: int
    groups: int
    replicas: int
    epoch: EpochEnd
    variant: str


@dataclass(frozen=True)
class JointProgress:
    """Progress of cross-validations that are trained together on a cluster.

    Args:
        cluster (ClusterProgress): Nodes and cells.
        trained, total (int): Trainings, folds × seeds, that have ended, and all of them.
    """

    cluster: ClusterProgress
    trained: int
    total: int


class _Training(typing.Protocol):
    """What :func:`train_together` needs of a cross-validation: its cells, and a place for their results."""

    store: GraphStore
    variant: str
    checkpoints: CheckpointDir
    runs_together: int

    @property
    def num_missing(self) -> int: ...

    def lock(self) -> AbstractContextManager[None]: ...

    def cells(self, owner: int = 0, marker: Path | None = None) -> list[GroupCell]: ...

    def collect(self, cell: GroupCell, result: CellResult) -> None: ...

    def release(self) -> None: ...


_T = typing.TypeVar("_T", bound=_Training)


def train_together(
    validations: Sequence[_T],
    executor: Executor,
    on_event: Callable[[GroupEpoch], object] | None = None,
    *,
    on_progress: Callable[[JointProgress], object] | None = None,
    on_finished: Callable[[_T], object] | None = None,
    errors: dict[_T, Exception] | None = None,
    may_start: Callable[[], bool] = lambda: True,
) -> list[_T]:
    """Trains what several cross-validations lack, the cells of all of them at a time where the executor can.

    Their records are written as they are complete; :meth:`CrossValidation.run` then trains nothing.

    Args:
        validations (sequence): The cross-validations.
        executor (Executor): Runs their cells.
        on_event (callable, optional): Called after every epoch of a cell in this process.
        on_progress (callable, optional): Called when a cell starts or ends elsewhere.
        on_finished (callable, optional): Called with each cross-validation when its last cell has ended.
        errors (dict, optional): Gets the exception of each cross-validation that fails; the others go on. (default: an
            exception is raised)
        may_start (callable): Asked before each cross-validation. (default: always)

    Returns:
        list: Those that were not started.
    """
    waiting = [each for each in validations if each.num_missing]
    total = sum(each.num_missing for each in waiting)
    trained, not_started = 0, []

    def fail(validation: _T, error: Exception) -> None:
        if errors is None:
            raise error
        errors.setdefault(validation, error)

    def cells(markers: ExitStack) -> Iterator[Cell[CellResult]]:
        for owner, validation in enumerate(waiting):
            if not may_start():
                not_started.append(validation)
                continue
            validation.runs_together = len(waiting)
            try:
                marker = None if executor.is_local else markers.enter_context(validation.checkpoints.marker())
                planned = validation.cells(owner, marker)
            except GraphcapsError as error:
                fail(validation, error)
                continue
            yield from planned
            if not executor.is_local:
                validation.release()

    def on_epoch(cell: Cell[CellResult], epoch: EpochEnd) -> None:
        assert isinstance(cell, GroupCell)
        if on_event is not None:
            group, validation = cell.group, waiting[cell.owner]
            counts = cell.number, cell.of, len(group.replicas)
            on_event(GroupEpoch(validation.store.name, group.protocol, *counts, epoch, validation.variant))

    def report(progress: ClusterProgress) -> None:
        if on_progress is not None:
            on_progress(JointProgress(progress, trained, total))

    with ExitStack() as stack:
        for validation in waiting:
            stack.enter_context(validation.lock())
        outcomes = executor.run(cells(stack), on_epoch, report)
        stack.callback(outcomes.close)  # cancels what is still running, after an exception
        for outcome in outcomes:
            cell = outcome.cell
            assert isinstance(cell, GroupCell)
            validation = waiting[cell.owner]
            trained += len(cell.group.replicas)
            if outcome.error is not None:
                fail(validation, outcome.error)
                continue
            assert isinstance(outcome.result, CellResult)
            validation.collect(cell, outcome.result)
            if on_finished is not None and not validation.num_missing:
                on_finished(validation)
    return not_started
