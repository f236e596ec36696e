"""Nested cross-validation of a search: what the accuracy of its result is on graphs that the search has not seen.

Inside each outer fold the search sees the training part only, and the outer test fold is scored once, with the
configuration that this search found. The accuracy of the configuration that a search on all graphs found is measured on
the same folds for comparison; that search has seen all of them, so its accuracy is optimistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Folds
from graphcaps.data.store import GraphStore
from graphcaps.evaluation.checkpoint_dir import CheckpointDir
from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.epoch_selection import held_out
from graphcaps.evaluation.replica_groups import ReplicaGroup, TrainingOptions, plan_groups
from graphcaps.evaluation.training_cells import CellResult, NetworkCell
from graphcaps.execution.cell import Cell, ClusterProgress, Executor
from graphcaps.execution.local_executor import LocalExecutor
from graphcaps.search.tuning import Search, SearchProgress, SearchResult, TimeUp
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.memory import estimate_memory
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.training_inputs import prepare_inputs

__all__ = ["NestedResult", "held_out_accuracies", "outer_training_part", "run_outer_searches"]


@dataclass(frozen=True, eq=False)
class NestedResult:
    """Held-out accuracies of a search, with and without the test graphs among those that it has seen.

    Args:
        nested (ndarray): Test accuracy of each outer fold with the configuration of the search inside it, ``[F]``.
        unnested (ndarray): Test accuracy of the same folds with the configuration of the search on all graphs, ``[F]``.
        searches (tuple): The search inside each outer fold.
    """

    nested: np.ndarray
    unnested: np.ndarray
    searches: tuple[SearchResult, ...]

    @property
    def accuracy(self) -> float:
        """Held-out accuracy of the search, in percent."""
        return float(100 * self.nested.mean())

    @property
    def std_folds(self) -> float:
        """Standard deviation of the accuracy over outer folds (n − 1), in percent."""
        return float(100 * self.nested.std(ddof=1))

    @property
    def unnested_accuracy(self) -> float:
        """Accuracy of the configuration that the search on all graphs found, in percent; optimistic."""
        return float(100 * self.unnested.mean())

    @property
    def difference(self) -> float:
        """Unnested minus nested accuracy, in percentage points."""
        return self.unnested_accuracy - self.accuracy

    def as_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary."""
        return {
            "accuracy": round(self.accuracy, 4),
            "std_folds": round(self.std_folds, 4),
            "unnested_accuracy": round(self.unnested_accuracy, 4),
            "difference": round(self.difference, 4),
            "fold_accuracies": [round(float(value), 6) for value in self.nested],
            "unnested_fold_accuracies": [round(float(value), 6) for value in self.unnested],
            "best": [None if each.best is None else each.best.as_dict() for each in self.searches],
        }


def outer_training_part(store: GraphStore, folds: Folds, fold: int) -> GraphStore:
    """All graphs except those of an outer test fold."""
    return store[folds.paper(fold).train]


def run_outer_searches(
    searches: Sequence[Search],
    on_event: Callable[[SearchProgress], object] | None = None,
    minutes: Callable[[], float | None] = lambda: None,
) -> tuple[SearchResult, ...]:
    """Runs the search of each outer fold.

    Args:
        searches (sequence): A search per outer fold, on its training part.
        on_event (callable, optional): As in :meth:`Search.run`.
        minutes (callable): Remaining time, ``None`` for no limit.

    Raises:
        TimeUp: If the time is spent before all of them are complete.
    """
    results = []
    for search in searches:
        result = search.run(on_event, minutes())
        if not result.complete:
            raise TimeUp
        results.append(result)
    return tuple(results)


def held_out_accuracies(
    store: GraphStore,
    configs: Sequence[RunConfig],
    folds: Folds,
    *,
    seed: int,
    device: torch.device,
    executor: Executor | None = None,
    part: str = "",
    on_event: Callable[[SearchProgress], object] | None = None,
) -> np.ndarray:
    """Test accuracy of each fold with its own configuration, at the epoch that its validation fold selects, ``[F]``.

    Args:
        store (GraphStore): Graphs with labels.
        configs (sequence): Configuration of each fold.
        folds (Folds): The folds; each is tested once.
        seed (int): Seed of the training.
        device (device): Device of the training.
        executor (Executor, optional): Where the folds are trained. (default: in this process)
        part (str): Which folds these are, for progress. (default: "")
        on_event (callable, optional): Called with a :class:`SearchProgress` after every epoch, and on a cluster when a
            cell starts or ends.
    """
    executor = LocalExecutor() if executor is None else executor
    replicas = [each for group in plan_groups(folds, "held-out", [seed]) for each in group.replicas]
    # Data-dependent settings come from the training graphs of the fold alone.
    resolved = [resolve_config(config, store[folds.paper(f).train]) for f, config in enumerate(configs)]
    host = executor.data_device(device)

    def cells() -> Iterator[NetworkCell]:
        remaining = list(range(folds.num_folds))
        while remaining:
            config = resolved[remaining[0]]
            same = [fold for fold in remaining if resolved[fold] == config]
            remaining = [fold for fold in remaining if fold not in same]
            inputs = prepare_inputs(store, config, host, owner="tune")
            first = replicas[same[0]]
            memory = estimate_memory(inputs.factory, inputs.store, inputs.x, first, config.training, host)
            group = ReplicaGroup("held-out", tuple(replicas[fold] for fold in same))
            title = f"{store.name} {config.model} {group.name}"
            yield NetworkCell(
                title, inputs, device, memory.bytes_for(len(same)), group, 0, 1, 1, config,
                TrainingOptions(len(same)), CheckpointDir(None, store.name, config.model), False, memory,
            )  # fmt: skip

    total, work, ended = sum(config.training.epochs for config in resolved), 0, 0

    def report(cluster: ClusterProgress | None = None) -> None:
        if on_event is not None:
            counts = work, total, ended, folds.num_folds
            on_event(SearchProgress(*counts, None, part=part, cluster=cluster, is_scoring=True))

    def on_epoch(cell: Cell[Any], event: EpochEnd) -> None:
        nonlocal work
        assert isinstance(cell, NetworkCell)
        work += len(cell.group.replicas)
        report()

    accuracies = np.zeros(folds.num_folds)
    report()
    with closing(executor.run(cells(), on_epoch, report)) as outcomes:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
            cell, result = outcome.cell, outcome.result
            assert isinstance(cell, NetworkCell)
            assert isinstance(result, CellResult)
            trained = result.group
            curves = EpochRecords.from_events(trained.events, cell.group.replicas, trained.epochs_run)
            selected = held_out(curves.criterion, curves.test_accuracy, fold_epochs=curves.fold_epochs)
            accuracies[[replica.fold for replica in cell.group.replicas]] = selected.accuracies
            ended += len(cell.group.replicas)
            if not executor.is_local:  # its epochs are not followed
                work += len(cell.group.replicas) * cell.config.training.epochs
            report()
    return accuracies
