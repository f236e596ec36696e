"""Trains a batch of trials as replicas: those of one shape together, and after each rung the best of them only.

A rung is a number of epochs. After it, trials are compared by their validation losses, the worst are dropped, and the
weights, moments and dropout streams of the others are selected along the axis of the replicas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import warn_user
from graphcaps.execution.cell import Cell, ClusterProgress, Executor
from graphcaps.execution.local_executor import LocalExecutor
from graphcaps.models.builder import ModelBuilder, precomputation_of
from graphcaps.models.lookup import find_graph_model
from graphcaps.search.search_space import SearchSpace
from graphcaps.search.trial import Trial
from graphcaps.search.trial_cells import TrialCell, TrialResult, trial_builder, trial_variant
from graphcaps.training.memory import estimate_memory, explain_out_of_memory
from graphcaps.training.replica_settings import REPLICA_SETTINGS
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica
from graphcaps.training.training_inputs import TrainingInputs, prepare_inputs

__all__ = ["BatchEpoch", "BatchTrainer", "plan_rungs", "survivors"]

MIN_RUNG = 10
"""Least number of epochs of a rung."""
MAX_RUNGS = 3


def plan_rungs(epochs: int, reduction: int) -> tuple[int, ...]:
    """Numbers of epochs after which trials are compared, ascending; the last one is ``epochs``.

    Args:
        epochs (int): Epochs of a trial that is never dropped.
        reduction (int): Factor between consecutive rungs, and between the numbers of trials before and after one; 1 for
            no rungs but the last.
    """
    rungs = [epochs]
    while reduction > 1 and len(rungs) < MAX_RUNGS and rungs[0] // reduction >= MIN_RUNG:
        rungs.insert(0, rungs[0] // reduction)
    return tuple(rungs)


def survivors(losses: Mapping[int, float], reduction: int) -> list[int]:
    """Numbers of the trials that are trained on: the best n / ``reduction`` of n, rounded up, in ascending order.

    Args:
        losses (mapping): Validation loss of each trial, by its number; those that are not finite never survive.
        reduction (int): The factor.
    """
    finite = sorted((loss, number) for number, loss in losses.items() if math.isfinite(loss))
    return sorted(number for _, number in finite[: math.ceil(len(losses) / reduction)])


@dataclass(frozen=True)
class BatchEpoch:
    """An epoch of some trials of a batch.

    Args:
        batch (int): Number of the batch, from 0.
        rung (int): Number of epochs of the present rung.
        epoch (int): Epochs that these trials have completed.
        trials (int): Number of trials that were trained together.
        seconds (float): Duration of the epoch.
    """

    batch: int
    rung: int
    epoch: int
    trials: int
    seconds: float


class BatchTrainer:
    """Trains batches of trials on the same graphs and folds.

    Args:
        store (GraphStore): Graphs with labels.
        config (RunConfig): The resolved configuration that trials change; its epochs are those of the last rung.
        space (SearchSpace): The options of the trials.
        folds (Folds): Each trial is trained on the training part of every fold, and judged on its validation part. Test
            parts are not read.
        seed (int): Seed of weights, order of graphs and dropout, the same for all trials.
        reduction (int): As in :func:`plan_rungs`.
        device (device): Device of the training.
        data (str): Digest of the graphs, for checkpoints.
        folder (Path, optional): Folder for checkpoints. (default: none are written)
        executor (Executor, optional): Where groups of trials are trained. (default: in this process)
    """

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig,
        space: SearchSpace,
        folds: Folds,
        *,
        seed: int,
        reduction: int,
        device: torch.device,
        data: str = "",
        folder: Path | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.executor = LocalExecutor() if executor is None else executor
        self.store, self.config, self.space, self.folds = store, config, space, folds
        self.seed, self.reduction, self.device, self.data, self.folder = seed, reduction, device, data, folder
        self.rungs = plan_rungs(config.training.epochs, reduction)
        self._inputs: dict[str, TrainingInputs] = {}

    def work(self, trials: int) -> int:
        """Epochs of all trials of a batch together, if none diverges."""
        total, before = 0, 0
        for rung in self.rungs:
            total += trials * (rung - before)
            trials, before = math.ceil(trials / self.reduction), rung
        return total

    def train(
        self,
        trials: Sequence[Trial],
        on_epoch: Callable[[BatchEpoch], object] | None = None,
        on_progress: Callable[[ClusterProgress], object] | None = None,
        marker: Path | None = None,
    ) -> Iterator[list[Trial]]:
        """Trains a batch, rung by rung.

        Yields the trials after every rung: those that are trained on are ``running``, after the last rung
        ``finished``. After an exception, a call with the same trials continues from the checkpoints.

        Args:
            trials (sequence): Trials of one batch, of which none is trained.
            on_epoch (callable, optional): Called after every epoch of a group of trials; of a group on a cluster when
                all of them have ended.
            on_progress (callable, optional): Called every second while groups run on a cluster.
            marker (Path, optional): As in :class:`graphcaps.search.trial_cells.TrialCell`.
        """
        judged = {
            trial.number: replace(trial, state="running", losses={}, fold_losses=()) for trial in trials
        }
        cells = self._cells(trials, marker)
        for position, rung in enumerate(self.rungs):
            last = position == len(self.rungs) - 1
            ended: list[tuple[TrialCell, TrialResult]] = []
            for cell, result in self._run([cell.up_to(rung) for cell in cells], on_epoch, on_progress):
                self._judge(judged, cell, rung, result)
                ended.append((cell, result))
            ended.sort(key=lambda each: each[0].trials[0].number)
            alive = [trial.number for cell, _ in ended for trial in cell.trials]
            losses = {number: judged[number].loss for number in alive}
            kept = alive if last else survivors(losses, self.reduction)
            for number in alive:
                trial = judged[number]
                if not math.isfinite(trial.loss):
                    judged[number] = replace(trial, state="diverged")
                elif last:
                    judged[number] = replace(trial, state="finished")
                elif number not in kept:
                    judged[number] = replace(trial, state="dropped")
            cells = [cell.keep(kept, result.checkpoint) for cell, result in ended]
            cells = [cell for cell in cells if cell.trials]
            yield [judged[trial.number] for trial in trials]
            if not cells:
                return

    def _run(
        self,
        cells: Sequence[TrialCell],
        on_epoch: Callable[[BatchEpoch], object] | None,
        on_progress: Callable[[ClusterProgress], object] | None,
    ) -> Iterator[tuple[TrialCell, TrialResult]]:
        """Runs the cells of a rung, and yields each with its result."""

        def report(cell: Cell[Any], event: EpochEnd) -> None:
            assert isinstance(cell, TrialCell)
            if on_epoch is not None:
                on_epoch(BatchEpoch(cell.batch, cell.rung, event.epoch, len(cell.trials), event.seconds))

        with closing(self.executor.run(cells, report, on_progress)) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    raise outcome.error
                cell, result = outcome.cell, outcome.result
                assert isinstance(cell, TrialCell)
                assert isinstance(result, TrialResult)
                for note in result.notes:
                    warn_user(f"tune: {note}")
                if not self.executor.is_local:
                    for event in result.checkpoint.history[cell.epochs_before :]:
                        report(cell, event)
                yield cell, result

    def remove_checkpoints(self, batch: int) -> None:
        """Removes the checkpoints of a batch that is complete, and their folder if it is empty then."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.glob(f"batch{batch}-*.checkpoint"):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _cells(self, trials: Sequence[Trial], marker: Path | None) -> list[TrialCell]:
        """Trials by shape; those of one shape in several cells if their memory requires it, or cores are free."""
        configs = {trial.number: self.space.configure(self.config, trial.values) for trial in trials}
        by_shape: dict[str, list[Trial]] = {}
        for trial in trials:
            by_shape.setdefault(_shape_key(configs[trial.number]), []).append(trial)
        K, cells = self.folds.num_folds, list[TrialCell]()
        folder = self.folder if self.folder is None or marker is None else self.folder.absolute()
        device = self.executor.data_device(self.device)
        for members in by_shape.values():
            config = configs[members[0].number]
            inputs, builder = self._prepare(config)
            first = self._replica(0, members[0])
            with explain_out_of_memory(config, device):
                memory = estimate_memory(builder, inputs.store, inputs.x, first, config.training, device)
            memory = replace(memory, total=self.executor.total_memory(self.device))
            fitting = memory.max_replicas(len(members) * K)
            size = self.executor.group_size(K, len(members), fitting, len(by_shape), self.device)
            together = max(size // K, 1)
            for start in range(0, len(members), together):
                part = tuple(members[start : start + together])
                name = f"batch{trials[0].batch}-group{len(cells)}"
                cells.append(
                    TrialCell(
                        f"{self.store.name} {self.config.model} {name}",
                        inputs,
                        self.device,
                        memory.bytes_for(len(part) * K),
                        name=name,
                        batch=trials[0].batch,
                        rung=0,
                        trials=part,
                        configs={trial.number: configs[trial.number] for trial in part},
                        replicas=tuple(self._replica(fold, trial) for trial in part for fold in range(K)),
                        num_classes=self.store.num_classes,
                        digest=self.data,
                        folder=folder,
                        marker=marker,
                    )
                )
        return cells

    def _replica(self, fold: int, trial: Trial) -> Replica:
        split = self.folds.held_out(fold)
        assert split.validation is not None
        no_test = torch.empty(0, dtype=torch.long)
        return Replica(
            split.train, split.validation, no_test,
            seed=self.seed, fold=fold, variant=trial_variant(trial.number),
        )  # fmt: skip

    def _prepare(self, config: RunConfig) -> tuple[TrainingInputs, ModelBuilder]:
        """Encoded graphs of a configuration, and the builder of its model; graphs are shared where possible."""
        key = json.dumps(config.as_dict()["features"], sort_keys=True)
        inputs = self._inputs.get(key)
        if inputs is not None:
            builder = self._builder(config, inputs)
            if precomputation_of(builder) is None and inputs.store.structure is None:
                return inputs, builder
        device = self.executor.data_device(self.device)
        with explain_out_of_memory(config, device):
            inputs = prepare_inputs(self.store, config, device, owner="tune")
        self._inputs[key] = inputs
        return inputs, self._builder(config, inputs)

    def _builder(self, config: RunConfig, inputs: TrainingInputs) -> ModelBuilder:
        return trial_builder(config, inputs, self.store.num_classes)

    def _judge(self, judged: dict[int, Trial], cell: TrialCell, rung: int, result: TrialResult) -> None:
        """Records the losses of a cell after a rung."""
        K = self.folds.num_folds
        for position, trial in enumerate(cell.trials):
            rows = slice(position * K, (position + 1) * K)
            before = judged[trial.number]
            losses = result.losses[rows]
            finite = bool(np.isfinite(losses).all())
            judged[trial.number] = replace(
                before,
                losses={**before.losses, rung: float(losses.mean()) if finite else math.inf},
                fold_losses=tuple(losses.tolist()),
                accuracy=float(result.accuracies[rows].mean()) if finite else None,
                seconds=before.seconds + result.seconds / len(cell.trials),
            )


def _shape_key(config: RunConfig) -> str:
    """What the configurations of trials that are trained together have in common.

    Whether there is a reconstruction loss is among it: without one, a step is shorter.
    """
    values = config.as_dict()
    for name in find_graph_model(config.model).replica_options:
        values["model"].pop(name, None)
    values["training"]["reconstructs"] = config.training.reconstruction_weight > 0
    for name in REPLICA_SETTINGS:
        values["training"].pop(name)
    return json.dumps(values, sort_keys=True, default=str)
