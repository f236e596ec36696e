"""Cells in this process, one after another, each with all cores or the GPU."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any

import torch

from graphcaps.execution.cell import Cell, ClusterProgress, Executor, Outcome
from graphcaps.training.device import choose_device, total_memory
from graphcaps.training.replica_trainer import EpochEnd

__all__ = ["LocalExecutor"]


class LocalExecutor(Executor):
    """Runs cells in this process. An exception of a cell is raised."""

    is_local = True

    def choose_device(self, name: str, owner: str, model: str | None = None) -> torch.device:
        return choose_device(name, owner, model)

    def data_device(self, device: torch.device) -> torch.device:
        return device

    def total_memory(self, device: torch.device) -> int | None:
        return total_memory(device)

    def group_size(self, folds: int, seeds: int, fitting: int, runs: int, device: torch.device) -> int:
        """As many as fit: the replicas of a cell are divided among the cores by the training itself."""
        return fitting

    def run(
        self,
        cells: Iterable[Cell[Any]],
        on_epoch: Callable[[Cell[Any], EpochEnd], object] | None = None,
        on_progress: Callable[[ClusterProgress], object] | None = None,
    ) -> Generator[Outcome[Any]]:
        for cell in cells:
            report = _ignore if on_epoch is None else partial(on_epoch, cell)
            yield Outcome(cell, cell.run(report))


def _ignore(event: EpochEnd) -> None:
    """For cells whose epochs nobody follows."""
