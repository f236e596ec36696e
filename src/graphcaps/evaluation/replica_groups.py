"""Groups of replicas (folds × seeds × variants), each group trained as one computation with checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Folds
from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.epoch_selection import held_out
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.selected_scores import SelectedScores
from graphcaps.inference.probabilities import probabilities
from graphcaps.metrics import SelectionMetric
from graphcaps.models.lookup import find_model
from graphcaps.nn.capsule_use import CapsuleUse
from graphcaps.nn.graph_model import GraphModel, ModelFactory
from graphcaps.training.checkpoint import check_state, load_checkpoint
from graphcaps.training.checkpoint_writer import CheckpointWriter
from graphcaps.training.early_stopping import EarlyStopping, epoch_scale
from graphcaps.training.fingerprint import run_fingerprint
from graphcaps.training.loop import Callback, RunInfo, TrainingLoop
from graphcaps.training.memory import OutOfMemoryError, explain_out_of_memory
from graphcaps.training.multiprocess import TrainerFactory, make_trainer
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica
from graphcaps.training.training_inputs import TrainingInputs

__all__ = ["GroupResult", "ReplicaGroup", "TrainingOptions", "plan_groups", "train_group"]

_NO_SCORES = (
    "Metrics other than accuracy are missing: the run was resumed from a checkpoint without the predictions of the "
    "selected epoch."
)


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

    def replica_name(self, replica: Replica) -> str:
        """``held-out-seed0-fold3``, with the variant in front where there is one."""
        variant = f"{replica.variant}-" if replica.variant else ""
        return f"{variant}{self.protocol}-seed{replica.seed}-fold{replica.fold}"

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


@dataclass(frozen=True, eq=False)
class GroupResult:
    """Events of all epochs of a group.

    Args:
        events (list): An :class:`EpochEnd` per epoch.
        epochs_run (ndarray): Number of epochs of each replica that count, ``[F]``: fewer than there are events if its
            patience was exhausted before that of the others.
        notes (tuple): Remarks on checkpoints, one sentence each.
        probabilities (list, optional): For each replica those of its validation graphs, then of its test graphs, at
            its held-out epoch, ``[n_f, O]``, where they were kept.
        capsule_use (tuple): Capsules in use of each replica after the last epoch; empty for a model without capsules.
    """

    events: list[EpochEnd]
    epochs_run: np.ndarray
    notes: tuple[str, ...]
    probabilities: list[np.ndarray] | None = None
    capsule_use: tuple[CapsuleUse, ...] = ()


@dataclass(frozen=True, eq=False)
class TrainingOptions:
    """What all groups of a cross-validation have in common.

    Args:
        num_folds (int): Number of folds.
        patience (int, optional): Number of epochs without progress after which a replica stops. (default: never)
        metric (str): Metric of the validation set that selects the epoch. (default: "loss")
        class_weight (str, optional): ``"balanced"`` weights the classes of each replica's training graphs.
        variants (dict, optional): Model factory for the initial weights of each variant.
        digest (str): Digest of the graphs, for checkpoints.
        checkpoint_every (int, optional): Number of epochs between checkpoints. (default: the first epoch, then one
            every 20 seconds)
        info (RunInfo, optional): What is trained, for callbacks; the names of the replicas are added.
        callbacks (tuple): Callbacks of the user. (default: none)
    """

    num_folds: int
    patience: int | None = None
    metric: SelectionMetric = "loss"
    class_weight: Literal["balanced"] | None = None
    variants: Mapping[str, ModelFactory] | None = None
    digest: str = ""
    checkpoint_every: int | None = None
    info: RunInfo | None = None
    callbacks: tuple[Callback, ...] = ()


def train_group(
    group: ReplicaGroup,
    inputs: TrainingInputs,
    config: RunConfig,
    options: TrainingOptions,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    on_epoch: Callable[[EpochEnd], object] | None = None,
) -> GroupResult:
    """Trains one group of replicas and frees its memory.

    After Ctrl-C a checkpoint of a complete epoch remains: the last one, or one about a second older.

    Args:
        group (ReplicaGroup): Replicas that are trained together.
        inputs (TrainingInputs): Encoded graphs, model factory and device.
        config (RunConfig): Model and training.
        options (TrainingOptions): What all groups have in common.
        checkpoint (Path, optional): Checkpoint file.
        resume (bool): Continue from the checkpoint, if there is one. (default: ``False``)
        on_epoch (callable, optional): Called with the event of every epoch.

    Raises:
        DataError: If the checkpoint is damaged or belongs to another run.
    """
    replicas, metric, class_weight = list(group.replicas), options.metric, options.class_weight
    fingerprint = run_fingerprint(
        config, options.digest, replicas,
        patience=options.patience, metric=None if metric == "loss" else metric, class_weight=class_weight,
    )  # fmt: skip
    keep_scores, scores = group.protocol == "held-out", SelectedScores(replicas)
    callbacks: list[Callback] = []
    if options.patience is not None:
        callbacks.append(EarlyStopping(options.patience, epoch_scale(replicas, config.training)))
    callbacks += [scores] if keep_scores else []
    writer = None
    if checkpoint is not None:
        # A record is written once all folds of its seed are trained: until then the checkpoint is the result.
        after_last: Literal["always", "never"] = "always" if len(replicas) < options.num_folds else "never"
        every = options.checkpoint_every
        writer = CheckpointWriter(checkpoint, fingerprint, every=every, after_last=after_last)
        callbacks.append(writer)
    explain = partial(_explain_memory, config, inputs.device, len(replicas))
    with explain():
        build = TrainerFactory(
            *(inputs.factory, inputs.store, inputs.x, config.training, inputs.device),
            variants=options.variants,
            class_weight=class_weight,
            metric=metric,
            keep_scores=keep_scores or bool(options.callbacks),  # a callback may read them
        )
        trainer = make_trainer(build, replicas)
    info = replace(options.info or RunInfo(), replicas=tuple(map(group.replica_name, replicas)))
    loop = TrainingLoop(trainer, callbacks, explain, options.callbacks, info)
    notes: tuple[str, ...] = ()
    try:
        if resume and checkpoint is not None and checkpoint.is_file():
            resumed = load_checkpoint(checkpoint, fingerprint, inputs.device)
            check_state(checkpoint, resumed.state, trainer.state())
            loop.resume(resumed)
            notes = resumed.notes
        events = loop.run_all(on_epoch)
        notes += () if writer is None else writer.notes
        predicted = None
        if keep_scores:
            curves = EpochRecords.from_events(events, replicas, loop.epochs_run)
            selected = held_out(curves.criterion, curves.test_accuracy, fold_epochs=curves.fold_epochs)
            predicted = _probabilities(scores.at(selected.epochs), config)
            notes += () if predicted is not None else (_NO_SCORES,)
        with explain():
            use = tuple(trainer.capsule_use())
        return GroupResult(events, loop.epochs_run, notes, predicted, use)
    finally:
        loop.close()


def _probabilities(scores: list[Tensor] | None, config: RunConfig) -> list[np.ndarray] | None:
    """Uncalibrated probabilities from the class scores of a network; ``None`` if they are missing or not finite."""
    model = find_model(config.model)
    assert issubclass(model, GraphModel)
    found = None if scores is None else [probabilities(rows, model.scores) for rows in scores]
    return found if found is not None and all(np.isfinite(rows).all() for rows in found) else None


@contextlib.contextmanager
def _explain_memory(config: RunConfig, device: torch.device, num_replicas: int) -> Iterator[None]:
    """Adds the number of replicas to messages about memory, and how to train fewer together."""
    try:
        with explain_out_of_memory(config, device):
            yield
    except OutOfMemoryError as error:
        if num_replicas == 1:
            raise
        together = f"{num_replicas} trainings run together"
        raise OutOfMemoryError(f"{error} Or set a smaller group: {together}.") from error


def _range(numbers: Sequence[int]) -> str:
    return f"{numbers[0]}" if len(numbers) == 1 else f"s{numbers[0]}to{numbers[-1]}"
