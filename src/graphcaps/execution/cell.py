"""Cells and what executes them.

A cell is a part of a run that is trained on its own, such as some folds and seeds of one model on one data set. It is a
frozen value that can be pickled. An :class:`Executor` runs cells, here or on other machines, and gives their results
back to the run, which merges them into its records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from graphcaps.training.replica_trainer import EpochEnd

__all__ = ["Cell", "ClusterProgress", "Executor", "Outcome"]

Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True, eq=False)
class Cell(ABC, Generic[Result]):
    """A part of a run.

    Args:
        title (str): What is trained, for messages: ``"MUTAG hgcn held-out seed0-folds0to4"``.
        data (object): Graphs and what else the cells of a run have in common. It is sent to each machine once.
        device (device): Device of the training; on a cluster, one of the node.
        memory (int): Forecast of the memory on that device, in bytes; 0 if there is none.
    """

    title: str
    data: Any
    device: torch.device
    memory: int

    @abstractmethod
    def run(self, on_epoch: Callable[[EpochEnd], object]) -> Result:
        """Trains the cell, and calls ``on_epoch`` after every epoch."""

    @abstractmethod
    def resumed(self) -> Cell[Result]:
        """The same cell, which goes on from its checkpoint where it finds one."""

    @abstractmethod
    def halves(self) -> tuple[Cell[Result], ...]:
        """Two cells of half the size, which need less memory; none if this one cannot be divided."""


@dataclass(frozen=True, eq=False)
class Outcome(Generic[Result]):
    """The end of a cell.

    Args:
        cell (Cell): The cell; one that was divided has an outcome for each of its halves.
        result (object, optional): Its result.
        error (Exception, optional): The reason, if there is no result.
    """

    cell: Cell[Result]
    result: Result | None
    error: Exception | None = None


@dataclass(frozen=True)
class ClusterProgress:
    """Progress on a cluster.

    Args:
        nodes (int): Nodes that are alive.
        running (int): Cells that are running or wait for a free core or GPU.
        finished (int): Cells that have ended.
    """

    nodes: int
    running: int
    finished: int


class Executor(ABC):
    """Runs cells."""

    is_local: bool
    """Whether cells run in this process, which can then call functions of the user after every epoch."""

    @abstractmethod
    def choose_device(self, name: str, owner: str, model: str | None = None) -> torch.device:
        """The device of cells; arguments are those of :func:`graphcaps.training.device.choose_device`."""

    @abstractmethod
    def data_device(self, device: torch.device) -> torch.device:
        """Device that the data of cells are prepared on."""

    @abstractmethod
    def total_memory(self, device: torch.device) -> int | None:
        """Memory that a cell can have at most, in bytes; ``None`` if it is not known."""

    @abstractmethod
    def group_size(self, folds: int, seeds: int, fitting: int, runs: int, device: torch.device) -> int:
        """How many trainings a cell holds.

        Args:
            folds (int): Number of folds.
            seeds (int): Number of seeds.
            fitting (int): Number of trainings that fit into the memory together.
            runs (int): Number of runs whose cells are executed together.
            device (device): Device of the cells.
        """

    @abstractmethod
    def run(
        self,
        cells: Iterable[Cell[Any]],
        on_epoch: Callable[[Cell[Any], EpochEnd], object] | None = None,
        on_progress: Callable[[ClusterProgress], object] | None = None,
    ) -> Generator[Outcome[Any]]:
        """Runs cells and yields their outcomes as they arrive.

        Cells are taken from the iterable when there is room for them. Closing the iterator cancels those that run.

        Args:
            cells (iterable): The cells.
            on_epoch (callable, optional): Called after every epoch of a cell in this process.
            on_progress (callable, optional): Called when a cell starts or ends elsewhere, and every second.
        """
