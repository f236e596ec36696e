"""Trains a batch of trials as replicas: those of one shape together, and after each rung the best of them only.

A rung is a number of epochs. After it, trials are compared by their validation losses, the worst are dropped, and the
weights, moments and dropout streams of the others are selected along the axis of the replicas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Folds
from graphcaps.data.store import GraphStore
from graphcaps.errors import DataError, warn_user
from graphcaps.evaluation.epoch_selection import lowest_epoch, smooth, window_for
from graphcaps.models.builder import ModelBuilder, model_factory, precomputation_of
from graphcaps.models.lookup import find_graph_model
from graphcaps.search.search_space import SearchSpace
from graphcaps.search.trial import Trial
from graphcaps.training.checkpoint import Checkpoint, check_state, load_checkpoint
from graphcaps.training.checkpoint_writer import CheckpointWriter
from graphcaps.training.fingerprint import run_fingerprint
from graphcaps.training.loop import Callback, TrainingLoop
from graphcaps.training.memory import estimate_memory, explain_out_of_memory
from graphcaps.training.multiprocess import make_trainer
from graphcaps.training.replica_settings import REPLICA_SETTINGS, ReplicaSettings
from graphcaps.training.replicas import Replica, select_replicas
from graphcaps.training.trainer import EpochEnd
from graphcaps.training.training_inputs import TrainingInputs, prepare_inputs

__all__ = ["BatchEpoch", "BatchTrainer", "plan_rungs", "select_events", "survivors"]

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


def select_events(history: Sequence[EpochEnd], replicas: Sequence[int]) -> tuple[EpochEnd, ...]:
    """The events of some replicas alone."""

    def pick(values: list[float]) -> list[float]:
        return [values[f] for f in replicas] if values else []

    return tuple(
        replace(
            event,
            train_loss=pick(event.train_loss),
            train_accuracy=pick(event.train_accuracy),
            validation_loss=pick(event.validation_loss),
            validation_accuracy=pick(event.validation_accuracy),
            test_accuracy=pick(event.test_accuracy),
            validation_metric=pick(event.validation_metric),
            loss_terms={name: pick(values) for name, values in event.loss_terms.items()},
        )
        for event in history
    )


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


@dataclass(frozen=True)
class _Scores:
    """Validation loss and accuracy of each replica at its selected epoch, ``[F]``."""

    losses: np.ndarray
    accuracies: np.ndarray


class _Group:
    """Trials of one shape that are trained together, and their state between rungs.

    Args:
        name (str): Name of its checkpoint files.
        trials (list): The trials.
        configs (dict): Resolved configuration of each trial, by its number.
        replicas (list): The replicas of all trials: all folds of the first, then of the second, and so on.
    """

    def __init__(
        self, name: str, trials: list[Trial], configs: Mapping[int, RunConfig], replicas: list[Replica]
    ) -> None:
        self.name, self.trials, self.configs, self.replicas = name, trials, configs, replicas
        self.checkpoint: Checkpoint | None = None
        self.seconds = 0.0

    def keep(self, numbers: Sequence[int]) -> None:
        """Keeps some trials: their replicas, and the state and the history of these."""
        self.trials = [trial for trial in self.trials if trial.number in numbers]
        names = {_variant(trial.number) for trial in self.trials}
        kept = [f for f, replica in enumerate(self.replicas) if replica.variant in names]
        if self.checkpoint is not None and kept and len(kept) < len(self.replicas):
            state = {name: value for name, value in self.checkpoint.state.items() if name != "epoch"}
            selected = select_replicas(state, kept) | {"epoch": self.checkpoint.state["epoch"]}
            self.checkpoint = Checkpoint(selected, select_events(self.checkpoint.history, kept))
        self.replicas = [self.replicas[f] for f in kept]


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
    ) -> None:
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
        self, trials: Sequence[Trial], on_epoch: Callable[[BatchEpoch], object] | None = None
    ) -> Iterator[list[Trial]]:
        """Trains a batch, rung by rung.

        Yields the trials after every rung: those that are trained on are ``running``, after the last rung
        ``finished``. After an exception, a call with the same trials continues from the checkpoints.

        Args:
            trials (sequence): Trials of one batch, of which none is trained.
            on_epoch (callable, optional): Called after every epoch of a group of trials.
        """
        batch = trials[0].batch
        judged = {
            trial.number: replace(trial, state="running", losses={}, fold_losses=()) for trial in trials
        }
        groups = self._groups(trials)
        for position, rung in enumerate(self.rungs):
            last = position == len(self.rungs) - 1
            for group in groups:
                began = monotonic()
                scores = self._train_group(group, batch, rung, on_epoch)
                self._judge(judged, group, rung, scores, monotonic() - began)
            alive = [trial.number for group in groups for trial in group.trials]
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
            for group in groups:
                group.keep(kept)
            groups = [group for group in groups if group.trials]
            yield [judged[trial.number] for trial in trials]
            if not groups:
                return

    def remove_checkpoints(self, batch: int) -> None:
        """Removes the checkpoints of a batch that is complete, and their folder if it is empty then."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.glob(f"batch{batch}-*.checkpoint"):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _groups(self, trials: Sequence[Trial]) -> list[_Group]:
        """Trials by shape; those of one shape in several groups if their memory requires it."""
        configs = {trial.number: self.space.configure(self.config, trial.values) for trial in trials}
        by_shape: dict[str, list[Trial]] = {}
        for trial in trials:
            by_shape.setdefault(_shape_key(configs[trial.number]), []).append(trial)
        groups: list[_Group] = []
        for members in by_shape.values():
            config = configs[members[0].number]
            folds = [self._replica(fold, members[0]) for fold in range(self.folds.num_folds)]
            inputs, builder = self._prepare(config)
            with explain_out_of_memory(config, self.device):
                memory = estimate_memory(
                    *(builder, inputs.store, inputs.x, folds[0], config.training, self.device)
                )
            together = max(memory.max_replicas(len(members) * len(folds)) // len(folds), 1)
            for first in range(0, len(members), together):
                part = members[first : first + together]
                replicas = [self._replica(fold, trial) for trial in part for fold in range(len(folds))]
                name = f"batch{trials[0].batch}-group{len(groups)}"
                groups.append(_Group(name, part, configs, replicas))
        return groups

    def _replica(self, fold: int, trial: Trial) -> Replica:
        split = self.folds.held_out(fold)
        assert split.validation is not None
        no_test = torch.empty(0, dtype=torch.long)
        return Replica(
            split.train, split.validation, no_test,
            seed=self.seed, fold=fold, variant=_variant(trial.number),
        )  # fmt: skip

    def _prepare(self, config: RunConfig) -> tuple[TrainingInputs, ModelBuilder]:
        """Encoded graphs of a configuration, and the builder of its model; graphs are shared where possible."""
        key = json.dumps(config.as_dict()["features"], sort_keys=True)
        inputs = self._inputs.get(key)
        if inputs is not None:
            builder = self._builder(config, inputs)
            if precomputation_of(builder) is None and inputs.store.structure is None:
                return inputs, builder
        with explain_out_of_memory(config, self.device):
            inputs = prepare_inputs(self.store, config, self.device, owner="tune")
        self._inputs[key] = inputs
        return inputs, self._builder(config, inputs)

    def _builder(self, config: RunConfig, inputs: TrainingInputs) -> ModelBuilder:
        return model_factory(config, inputs.x.size(-1), self.store.num_classes, inputs.recipe.edge_kinds)

    def _train_group(
        self, group: _Group, batch: int, rung: int, on_epoch: Callable[[BatchEpoch], object] | None
    ) -> _Scores:
        """Trains a group up to a rung, from its state after the last one or from a checkpoint file."""
        first = group.configs[group.trials[0].number]
        config = first.with_training(epochs=rung)
        inputs, builder = self._prepare(config)
        settings = {}
        for trial in group.trials:
            changed = group.configs[trial.number].with_training(epochs=rung)
            settings[_variant(trial.number)] = ReplicaSettings(
                self._builder(changed, inputs), changed.training
            )
        numbers = {name: _numbers(each) for name, each in settings.items()}
        fingerprint = run_fingerprint(config, self.data, group.replicas, trials=numbers)
        path = None if self.folder is None else self.folder / f"{group.name}-rung{rung}.checkpoint"
        callbacks: list[Callback] = [] if path is None else [CheckpointWriter(path, fingerprint)]
        explain = partial(explain_out_of_memory, config, self.device)
        with explain():
            trainer = make_trainer(
                *(builder, inputs.store, inputs.x, group.replicas, config.training, self.device),
                settings=settings,
            )
        loop = TrainingLoop(trainer, callbacks, explain)
        try:
            resumed = None if path is None else self._load(path, fingerprint, trainer.state())
            resumed = group.checkpoint if resumed is None else resumed
            if resumed is not None:
                loop.resume(resumed)

            def report(event: EpochEnd) -> None:
                if on_epoch is not None:
                    on_epoch(BatchEpoch(batch, rung, event.epoch, len(group.trials), event.seconds))

            events = loop.run_all(report)
            group.checkpoint = loop.checkpoint()
        finally:
            loop.close()
        return _score(events)

    def _load(
        self, path: Path, fingerprint: Mapping[str, Any], state: Mapping[str, torch.Tensor]
    ) -> Checkpoint | None:
        """A checkpoint file of a group; one that is damaged or of another training is removed with a warning."""
        if not path.is_file():
            return None
        try:
            checkpoint = load_checkpoint(path, fingerprint, self.device)
            check_state(path, checkpoint.state, state)
        except DataError as error:
            path.unlink(missing_ok=True)
            reason = DataError(path, error.expected, error.found)  # without the advice to start again
            warn_user(f"tune: {reason} The file was removed, and its trials go on from the last rung.")
            return None
        return checkpoint

    def _judge(
        self, judged: dict[int, Trial], group: _Group, rung: int, scores: _Scores, seconds: float
    ) -> None:
        """Records the losses of a group after a rung."""
        K = self.folds.num_folds
        for position, trial in enumerate(group.trials):
            rows = slice(position * K, (position + 1) * K)
            before = judged[trial.number]
            losses = scores.losses[rows]
            finite = bool(np.isfinite(losses).all())
            judged[trial.number] = replace(
                before,
                losses={**before.losses, rung: float(losses.mean()) if finite else math.inf},
                fold_losses=tuple(losses.tolist()),
                accuracy=float(scores.accuracies[rows].mean()) if finite else None,
                seconds=before.seconds + seconds / len(group.trials),
            )


def _score(events: Sequence[EpochEnd]) -> _Scores:
    """For each replica the smoothed validation loss of its selected epoch, as the held-out rule selects it.

    A replica whose loss was not a number in some epoch has the loss infinity.
    """
    losses = np.array([event.validation_loss for event in events]).T  # [F, E]
    accuracies = np.array([event.validation_accuracy for event in events]).T
    finite = np.isfinite(losses).all(1) & (np.abs(losses).max(1, initial=0) < 1e6)
    clean = np.where(finite[:, None], losses, 0.0)
    window = window_for(losses.shape[1])
    chosen = lowest_epoch(clean, window)
    rows = np.arange(len(losses))
    return _Scores(np.where(finite, smooth(clean, window)[rows, chosen], np.inf), accuracies[rows, chosen])


def _variant(number: int) -> str:
    return f"trial{number}"


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


def _numbers(settings: ReplicaSettings) -> dict[str, Any]:
    """The numbers of a replica's settings, for the fingerprint."""
    options = settings.builder.kind.replica_options
    numbers = {
        name: settings.builder.arguments[name] for name in options if name in settings.builder.arguments
    }
    return numbers | {name: getattr(settings.training, name) for name in REPLICA_SETTINGS}
