"""Cross-validation: trains all folds under all seeds and collects the records in a :class:`Ledger`.

:func:`cross_validate` is the public entry point. :class:`CrossValidation` checks the arguments on construction and
trains on :meth:`~CrossValidation.run`. Folds × seeds are replicas that are trained together in groups.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from graphcaps._io.provenance import versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data.quality.summary import describe_empty_graphs
from graphcaps.data.quality.twins import has_twin, twin_colours
from graphcaps.data.splits.class_counts import (
    ClassCounts,
    count_classes,
    count_fold_classes,
)
from graphcaps.data.splits.folds import Split
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError, warn_user
from graphcaps.evaluation.checkpoint_dir import CheckpointDir
from graphcaps.evaluation.divisions import Groups, build_folds, check_divisions, group_graphs
from graphcaps.evaluation.fold_metrics import FoldMetrics
from graphcaps.evaluation.joint_training import GroupEpoch, train_together
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.mixture_results import CompanionRecords
from graphcaps.evaluation.partition import FixedSplits
from graphcaps.evaluation.record import (
    PROTOCOLS,
    DatasetFingerprint,
    Protocol,
    RecordKey,
    SeedRecord,
    settings,
)
from graphcaps.evaluation.replica_groups import ReplicaGroup, TrainingOptions, plan_groups
from graphcaps.evaluation.results_store import ResultsStore, check_settings
from graphcaps.evaluation.seed_collector import CompletedSeed, SeedCollector
from graphcaps.evaluation.training_cells import (
    CellResult,
    ClassicalCell,
    GroupCell,
    NetworkCell,
)
from graphcaps.execution.cell import Executor
from graphcaps.execution.local_executor import LocalExecutor
from graphcaps.metrics import SelectionMetric, check_selection_metric
from graphcaps.models.builder import build_classical, model_factory
from graphcaps.models.lookup import is_classical
from graphcaps.nn.capsule_use import CapsuleCollapseWarning
from graphcaps.training.auto_config import check_network_options, check_run_types, resolve_config
from graphcaps.training.classical_training import check_members
from graphcaps.training.companion_weights import companion_configs, stacking_folds
from graphcaps.training.data_notes import describe_reading
from graphcaps.training.early_stopping import check_metric, check_patience
from graphcaps.training.fingerprint import data_digest
from graphcaps.training.holdout import check_nodes
from graphcaps.training.loop import Callback, CallbackError, RunInfo, hyperparameters, notify_result
from graphcaps.training.memory import MemoryEstimate, estimate_memory, explain_out_of_memory
from graphcaps.training.training_inputs import TrainingInputs, prepare_inputs

__all__ = ["CompanionRuns", "CrossValidation", "check_joint_variants", "cross_validate"]


@dataclass(frozen=True, eq=False)
class CompanionRuns:
    """The cross-validations beside that of a network.

    Args:
        folds (tuple): Of each companion, on the folds of the network.
        inner (tuple): Of the network, then of each companion, on inner splits of the training graphs; empty if the
            validation graphs choose the weights.
        fold_of_inner (tuple): Fold that each inner split belongs to.
    """

    folds: tuple[CrossValidation, ...]
    inner: tuple[CrossValidation, ...]
    fold_of_inner: tuple[int, ...]


def cross_validate(
    store: GraphStore,
    config: RunConfig | None = None,
    *,
    folds: int = 10,
    seeds: int = 1,
    protocol: Literal["held-out", "paper", "both"] = "held-out",
    device: str = "auto",
    group: int | None = None,
    on_event: Callable[[GroupEpoch], object] | None = None,
    variant: str | None = None,
    results: ResultsStore | str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    groups: Groups | None = None,
    split: Split | Sequence[Split] | None = None,
    patience: int | None = None,
    metric: SelectionMetric = "loss",
    class_weight: Literal["balanced"] | None = None,
    predictions: bool = False,
    callbacks: Sequence[Callback] = (),
    members: int | None = None,
    divisions: int = 1,
    companion: str | None = None,
    executor: Executor | None = None,
) -> Ledger:
    """Trains and tests a model on every fold of a data set, under every seed.

    Folds and seeds are replicas of one training. The folds are stratified and the same for every model and
    seed. **held-out** trains on all folds but two, selects the epoch on one of them and tests on the other.
    **paper** trains on all folds but the test fold and selects the epoch on test data. Classical models, which have no
    epochs, are fitted to the same training graphs, one after another, and nothing is selected.

    Args:
        store (GraphStore): Graphs with class labels.
        config (RunConfig, optional): Model, input features and training. (default: the defaults of each)
        folds (int): Number of folds. (default: 10)
        seeds (int): Number of seeds; they are 0, 1, 2, … (default: 1)
        protocol (str): ``"held-out"``, ``"paper"`` or ``"both"``. (default: "held-out")
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        group (int, optional): Largest number of replicas trained together; results do not depend on it, up to
            rounding. (default: as many as the memory estimate allows)
        on_event (callable, optional): Called with a :class:`GroupEpoch` after every epoch.
        variant (str, optional): Name of the model in results. (default: the model's)
        results (ResultsStore or path, optional): Folder for records, written as soon as a seed is finished, and
            for checkpoints, under ``unfinished``.
        resume (bool): Keep finished records of ``results`` and continue from its checkpoints.
        checkpoint_every (int, optional): Number of epochs between checkpoints. (default: the first epoch, then one
            every 20 seconds)
        groups (sequence or str, optional): Group of each graph; graphs of one group are in the same fold.
            ``"copies"`` groups duplicate graphs and ``"scaffolds"`` molecules with the same ring system. Any other text
            is a file written by ``graphcaps data check --groups``.
        split (Split or sequence, optional): A fixed split in place of folds, or several, such as
            :func:`graphcaps.data.scaffold_split` under several seeds: all are trained together, as folds are. ``paper``
            trains on the validation part too. If a split has no validation part, held-out draws a tenth of every class
            of the training part.
        patience (int, optional): A fold stops after this many epochs without a decrease of its validation loss, or an
            increase of ``metric``, by 0.0005; its later epochs do not count, and epochs of fewer than ten steps count
            in part. Only with the protocol held-out. (default: never)
        metric (str): Metric of the validation fold that selects the epoch: ``"loss"``, ``"accuracy"``,
            ``"balanced-accuracy"``, ``"roc-auc"``, ``"pr-auc"`` or ``"mcc"``. Only with the protocol held-out.
            (default: "loss")
        class_weight (str, optional): ``"balanced"`` weights classes inversely to their frequency in the training
            graphs of each fold. (default: 1 each)
        predictions (bool): Keep the predictions of all validation and test graphs in the records. Only with the
            protocol held-out. (default: ``False``)
        callbacks (list): :class:`graphcaps.training.Callback` objects, for networks. They are called with each group
            of folds and seeds, and once with the results. (default: none)
        members (int, optional): Number of members of a committee. Each seed is then a committee of as many seeds:
            those of the first are 0 to ``members − 1``. Records are of single seeds, with predictions, and
            :meth:`Ledger.committees` gives the results of the committees. Only with the protocol held-out.
            (default: that of ``config``)
        divisions (int): Number of divisions into folds: all folds and seeds are trained in each, one division after
            another, and results are also averaged over divisions. Division 0 is the folds that one division has; the
            shuffle of division d has d added to its seed. Not with ``split``. (default: 1)
        companion (str, optional): Name of a classical model that is fitted on the same folds and mixed with the network
            (docs/companion.md), or several with commas between them. They have records of their own, and
            :meth:`Ledger.mixture` gives the results; ``"none"`` for none. Only with the protocol held-out.
            (default: that of ``config``)
        executor (Executor, optional): Where the trainings run, such as a
            :class:`graphcaps.execution.RayExecutor`, which calls neither ``on_event`` nor ``callbacks``.
            (default: in this process)

    Returns:
        Ledger: One record per protocol, seed and division.

    Raises:
        GraphcapsError: If the graphs cannot be split or an argument is invalid; raised before training starts.
        CallbackError: If a callback raises. If it does so in ``on_result``, ``result`` of the error is the ledger.

    Warns:
        CapsuleCollapseWarning: If in a training one capsule holds almost all nodes (docs/parts.md).
    """
    check_divisions("cross_validate", divisions, None if split is None else "a split")
    results_store = results if isinstance(results, ResultsStore) or results is None else ResultsStore(results)
    validations = [
        CrossValidation(
            store, config, folds=folds, seeds=seeds, protocol=protocol, device=device, group=group,
            variant=variant, results=results_store, resume=resume, checkpoint_every=checkpoint_every,
            groups=groups, split=split, patience=patience, metric=metric, class_weight=class_weight,
            predictions=predictions, callbacks=callbacks, members=members, division=division,
            companion=companion, executor=executor,
        )
        for division in range(divisions)
    ]  # fmt: skip
    ledgers: list[Ledger] = []
    failure: CallbackError | None = None
    with ExitStack() as locks:
        for validation in validations:  # all of them before the first training
            locks.enter_context(validation.lock())
        if executor is not None and not executor.is_local:
            train_together([part for validation in validations for part in validation.parts], executor)
        for validation in validations:
            try:
                ledgers.append(validation.run(on_event))
            except CallbackError as error:
                if not isinstance(error.result, Ledger):
                    raise
                ledgers.append(error.result)
                failure = failure or error
    ledger = Ledger.join(ledgers)
    if failure is not None:  # last: an exception in a callback loses no division
        failure.result = ledger
        raise failure
    if warning := ledger.capsule_warning:
        warn_user(warning, CapsuleCollapseWarning)
    return ledger


class CrossValidation:
    """A cross-validation: arguments are checked on construction, training starts with :meth:`run`.

    Arguments are those of :func:`cross_validate`, and

    Args:
        joint_variants (dict, optional): Further configurations, by their variant names in results, that differ from
            ``config`` only in ``num_factors``. Joined factors are one projection, so ``num_factors`` changes only
            the initial weights (docs/method.md). The variants are trained as further replicas of the same run.
        division (int): Number of the division into folds, in place of ``divisions``. (default: 0)
        may_lack_classes (bool): Accept splits of which a set lacks a class, as folds may. (default: ``False``)
    """

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig | None = None,
        *,
        folds: int = 10,
        seeds: int = 1,
        protocol: str = "held-out",
        device: str = "auto",
        group: int | None = None,
        variant: str | None = None,
        results: ResultsStore | None = None,
        resume: bool = False,
        checkpoint_every: int | None = None,
        joint_variants: Mapping[str, RunConfig] | None = None,
        groups: Groups | None = None,
        split: Split | Sequence[Split] | None = None,
        patience: int | None = None,
        metric: SelectionMetric = "loss",
        class_weight: Literal["balanced"] | None = None,
        predictions: bool = False,
        callbacks: Sequence[Callback] = (),
        members: int | None = None,
        division: int = 0,
        companion: str | None = None,
        may_lack_classes: bool = False,
        executor: Executor | None = None,
    ) -> None:
        config = RunConfig() if config is None else config
        check_run_types(store, config, "cross_validate")
        optional = {"members": members, "group": group, "checkpoint_every": checkpoint_every}
        given_counts = {name: value for name, value in optional.items() if value is not None}
        for name, value in {"seeds": seeds, **given_counts}.items():
            if type(value) is not int or value < 1:
                raise ArgumentError("cross_validate", name, "be a whole number from 1 on", value)
        if protocol not in (*PROTOCOLS, "both"):
            expected = f"be one of {', '.join(PROTOCOLS)}, both"
            raise ArgumentError("cross_validate", "protocol", expected, repr(protocol))
        check_patience("cross_validate", patience)
        by_config = [
            name for name, given in (("members", members), ("companion", companion)) if given is None
        ]
        committee = config.with_committee(members=members, companion=companion).committee
        members, companion = committee.members, committee.companion
        needs_validation = {
            "patience": patience,
            "metric": None if check_selection_metric("cross_validate", metric) == "loss" else metric,
            "predictions": predictions or None,
            "members": members if members > 1 else None,
            "companion": companion,
        }
        for name, given in needs_validation.items():
            if given is not None and protocol != "held-out":
                expected = "be left out unless the protocol is held-out: 'paper' has no validation set"
                fix = f"It is of '{config.source}'; members=1 and companion='none' leave it out."
                fix = fix if name in by_config else ""
                raise ArgumentError("cross_validate", name, expected, f"{given} with '{protocol}'", fix)
        if class_weight not in (None, "balanced"):
            expected = "be 'balanced', or be left out"
            raise ArgumentError("cross_validate", "class_weight", expected, repr(class_weight))
        if resume and results is None:
            raise ArgumentError("cross_validate", "resume", "come with a folder of results", "none")
        if checkpoint_every is not None and results is None:
            raise ArgumentError("cross_validate", "checkpoint_every", "come with a folder of results", "none")
        self.executor = LocalExecutor() if executor is None else executor
        if callbacks and not self.executor.is_local:
            expected = "be left out where the trainings run in other processes"
            listed = ", ".join(type(callback).__name__ for callback in callbacks)
            raise ArgumentError("cross_validate", "callbacks", expected, listed)
        self.store = store
        self.protocols = tuple(p for p in PROTOCOLS if protocol in (p, "both"))
        with_validation = "held-out" in self.protocols
        self.division = division
        self.folds, self.partition = build_folds(
            store,
            folds,
            groups,
            split,
            with_validation=with_validation,
            division=division,
            may_lack_classes=may_lack_classes,
        )
        for fold in range(self.folds.num_folds):
            train = (self.folds.held_out(fold) if with_validation else self.folds.paper(fold)).train
            check_nodes(store, train, "cross_validate", "store")
        # Data-dependent settings: with folds every graph is a test graph once; with splits, the training graphs of the
        # first one only.
        visible = store if split is None else store[self.folds.paper(0).train]
        self.config = resolve_config(config.of_one_model(), visible)
        self.variant = variant or self.config.model
        joint_configs = {name: resolve_config(each, visible) for name, each in (joint_variants or {}).items()}
        self.variants = {self.variant: self.config, **joint_configs}
        check_joint_variants(self.config, self.variant, joint_configs)
        self.is_classical = is_classical(self.config.model)
        if self.is_classical:
            build_classical(self.config, store.num_classes)  # raises on unknown arguments
            group = 1  # one fit after another, each with all threads
            network_options = {
                **needs_validation,
                "predictions": None,
                "members": None,
                "companion": None,
                "class_weight": class_weight,
                "checkpoint_every": checkpoint_every,
                "callbacks": ", ".join(type(callback).__name__ for callback in callbacks) or None,
            }
            check_network_options(self.config, network_options, "cross_validate")
            check_members(self.config, members, "cross_validate")
        else:
            model_factory(self.config, 1, store.num_classes)
        self.members, self.seeds = members, tuple(range(seeds * members))
        self.group, self.patience = group, patience
        # Those of a committee, or with companions, are computed from the predictions of the parts.
        self.class_weight, self._groups = class_weight, groups
        self.predictions = predictions or members > 1 or companion is not None
        assert store.y is not None
        validation_sets = [
            self.folds.held_out(fold).validation
            for fold in range(self.folds.num_folds if with_validation else 0)
        ]
        sets = [graphs for graphs in validation_sets if graphs is not None]
        self.metric = check_metric("cross_validate", metric, store.y, sets)
        self.device = self.executor.choose_device(device, "cross_validate", self.config.model)
        self.results, self.callbacks = results, list(callbacks)
        counts = (len(store), store.num_nodes, store.num_edges, store.num_classes)
        self.data = DatasetFingerprint(*counts, self.folds.checksum, data_digest(store))
        self.finished = self._load_finished(resume)
        self.resume, self.checkpoint_every = resume, checkpoint_every
        self.memory_estimate: MemoryEstimate | None = None
        self._inputs: TrainingInputs | None = None
        self._is_locked = False
        self._collector: SeedCollector | None = None
        self.runs_together = 1
        folder = None if results is None else results.folder
        self.checkpoints = CheckpointDir(folder, store.name, "+".join(self.variants), division)
        if not resume:
            self.checkpoints.require_none(self.protocols)
        self.companion_runs = self._companion_runs(companion, seeds)

    @property
    def class_counts(self) -> ClassCounts | None:
        """Graphs of each class in each part of the splits, or in each fold of groups; ``None`` for plain folds."""
        y, names = self.store.y, self.store.class_names
        assert y is not None
        if isinstance(self.folds, FixedSplits):
            return ClassCounts.stack([count_classes(split, y, names) for split in self.folds.splits])
        return None if self.partition is None else count_fold_classes(self.folds, y, names)

    @property
    def splits(self) -> tuple[Split, ...]:
        """The fixed splits in the place of folds; empty for folds."""
        return self.folds.splits if isinstance(self.folds, FixedSplits) else ()

    def baseline(self, config: RunConfig) -> CrossValidation:
        """Another model on the same folds or splits, with one seed; nothing is stored.

        Args:
            config (RunConfig): Model, input features and training.
        """
        protocol = "held-out" if "held-out" in self.protocols else "paper"
        return CrossValidation(
            self.store,
            config,
            folds=self.folds.num_folds,
            protocol=protocol,
            device="auto",
            groups=self._groups,
            split=self.splits or None,
            division=self.division,
            executor=self.executor,
        )

    @property
    def parts(self) -> tuple[CrossValidation, ...]:
        """This cross-validation and those of its companions."""
        runs = self.companion_runs
        return (self,) if runs is None else (self, *runs.folds, *runs.inner)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Refuses other processes that would write the same records into the folder of results.

        :meth:`run` does this itself. Nothing is locked if all records are finished, or if there is no folder.

        Raises:
            DataError: If another process has the lock.
        """
        missing = {
            (key.variant, protocol) for protocol in self.protocols for key in self._missing_keys(protocol)
        }
        if self.results is None or self._is_locked or not missing:
            yield
            return
        with ExitStack() as stack:
            for variant, protocol in sorted(missing):
                stack.enter_context(self.results.lock(self.store.name, variant, protocol, self.division))
            stack.callback(setattr, self, "_is_locked", False)
            self._is_locked = True
            yield

    def run(self, on_event: Callable[[GroupEpoch], object] | None = None) -> Ledger:
        """Trains unfinished seeds; returns the ledger of all records of ``variant``, without joint variants."""
        runs, failure = self.companion_runs, None
        try:
            ledger = self.run_all(on_event)[self.variant]
        except CallbackError as error:
            if runs is None or not isinstance(error.result, Ledger):
                raise
            ledger, failure = error.result, error
        if runs is None:
            return ledger
        folds = tuple(run.run(on_event).of("held-out") for run in runs.folds)
        inner = tuple(run.run(on_event).of("held-out") for run in runs.inner)
        names = tuple(run.config.model for run in runs.folds)
        companions = CompanionRecords(names, folds, inner, runs.fold_of_inner, self.division)
        ledger = replace(ledger, companions=(companions,))
        if failure is not None:  # last: an exception in a callback loses no companion
            failure.result = ledger
            raise failure
        return ledger

    def _companion_runs(self, companion: str | None, seeds: int) -> CompanionRuns | None:
        """The cross-validations of the companions, and inner ones that choose the weights; ``None`` without any."""
        configs = companion_configs(companion, self.config.model, self.store, "cross_validate")
        if not configs:
            return None
        inner, fold_of_inner = self._inner_splits()
        common: dict[str, Any] = {
            "seeds": seeds,
            "predictions": True,
            "executor": self.executor,
        }
        # Inner records are no results of the data set: they lie in a folder of their own.
        inner_results = None if self.results is None else ResultsStore(self.results.folder / "inner")
        within: dict[str, Any] = {"split": inner, "may_lack_classes": True, "results": inner_results}
        keeps = self.results is not None  # a fit that is in the folder already is not repeated
        outer: dict[str, Any] = {
            "folds": self.folds.num_folds,
            "groups": self._groups,
            "split": self.splits or None,
            "division": self.division,
            "results": self.results,
        }
        network: dict[str, Any] = {
            "device": str(self.device),
            "group": None if self.is_classical else self.group,
            "patience": self.patience,
            "metric": self.metric,
            "class_weight": self.class_weight,
            "checkpoint_every": self.checkpoint_every,
            "resume": self.resume,
        }
        runs = []
        where = f"inner folds of division {self.division}" if self.division else "inner folds"
        if inner:
            title = f"{self.variant}, {where}"
            runs.append(
                CrossValidation(self.store, self.config, variant=title, **within, **network, **common)
            )
            for config in configs:
                title = f"{config.model}, {where}"
                runs.append(
                    CrossValidation(self.store, config, variant=title, resume=keeps, **within, **common)
                )
        return CompanionRuns(
            tuple(CrossValidation(self.store, config, resume=keeps, **outer, **common) for config in configs),
            tuple(runs),
            fold_of_inner,
        )

    def _inner_splits(self) -> tuple[list[Split], tuple[int, ...]]:
        """Splits of the training graphs of each fold with few validation graphs, and the fold of each split."""
        y = self.store.y
        assert y is not None
        ids = None if self._groups is None else group_graphs(self.store, self._groups).ids
        splits, fold_of = [], []
        for fold in range(self.folds.num_folds):
            parts = self.folds.held_out(fold)
            assert parts.validation is not None
            for train, test in stacking_folds(y, parts.train, parts.validation, self.folds.seed, ids):
                splits.append(Split(train, parts.validation, test, name="inner folds"))
                fold_of.append(fold)
        return splits, tuple(fold_of)

    def run_all(self, on_event: Callable[[GroupEpoch], object] | None = None) -> dict[str, Ledger]:
        """As :meth:`run`, with a ledger per variant."""
        with self.lock():
            return self._run_all(on_event)

    def _run_all(self, on_event: Callable[[GroupEpoch], object] | None) -> dict[str, Ledger]:
        is_finished = not any(self._missing_keys(protocol) for protocol in self.protocols)
        train_together([self], self.executor, on_event)
        ledgers = {
            name: Ledger(tuple(record for key, record in self.finished.items() if key.variant == name))
            for name in self.variants
        }
        if not is_finished:
            results = {
                f"{rule}_accuracy" if name == self.variant else f"{name}_{rule}_accuracy": estimate.mean / 100
                for name, ledger in ledgers.items()
                for rule, estimate in ledger.estimates.items()
            }
            try:
                notify_result(self.callbacks, results)
            except CallbackError as error:
                error.result = ledgers[self.variant]
                raise
        return ledgers

    def cells(self, owner: int = 0, marker: Path | None = None) -> list[GroupCell]:
        """The groups of replicas that have no record yet.

        Args:
            owner (int): Number of this cross-validation, for the cells. (default: 0)
            marker (Path, optional): As in :class:`graphcaps.evaluation.training_cells.NetworkCell`.
        """
        self.checkpoints.remove_leftovers()
        if not self.is_classical and any(self._missing_runs(protocol) for protocol in self.protocols):
            self.prepare()
        groups = [group for protocol in self.protocols for group in self._plan(protocol)]
        assert self.store.y is not None
        notes = self.checkpoints.unused_notes(groups)
        self._collector = SeedCollector(self.folds.num_folds, notes, self.store.y.cpu().numpy())
        counts = [(owner, number, len(groups)) for number in range(1, len(groups) + 1)]
        return [self._cell(group, *each, marker) for group, each in zip(groups, counts, strict=True)]

    def collect(self, cell: GroupCell, result: CellResult) -> None:
        """Adds the result of a cell, and writes the record of each seed that it completes."""
        assert self._collector is not None
        group = cell.group
        for completed in self._collector.add(group, result.group, result.peak_memory, result.hardware):
            record = self._record(completed)
            self.finished[record.key] = record
            if self.results is not None:
                self.results.add(record)
        keys = [[self._key(group.protocol, name, seed) for name in self.variants] for seed in self.seeds]
        finished_seeds = {key[0].seed for key in keys if set(key) <= set(self.finished)}
        self.checkpoints.remove_finished(group.protocol, finished_seeds)

    def release(self) -> None:
        """Frees the encoded graphs, which a later training would encode again."""
        self._inputs = None

    @property
    def num_missing(self) -> int:
        """Number of trainings, folds × seeds, that have no record yet."""
        return self.folds.num_folds * sum(len(self._missing_keys(protocol)) for protocol in self.protocols)

    @property
    def info(self) -> RunInfo:
        """What is trained, for callbacks."""
        identity = self.settings() | ({"division": self.division} if self.division else {})
        values = json.dumps(identity, sort_keys=True, default=str)
        digest = hashlib.sha256(values.encode()).hexdigest()
        options = {
            "folds": self.folds.num_folds,
            "seeds": len(self.seeds),
            "patience": self.patience,
            "metric": self.metric,
            "class_weight": self.class_weight,
        }
        division = f"-division{self.division}" if self.division else ""
        name = f"{self.store.name}-{self.variant}{division}"
        return RunInfo(name, digest, hyperparameters(self.config, **options))

    def prepare(self) -> TrainingInputs:
        """Encodes the input features, estimates the memory and sets how many replicas are trained together.

        For networks; a classical model reads the graphs themselves.
        """
        if self._inputs is not None:
            return self._inputs
        device = self.executor.data_device(self.device)
        with explain_out_of_memory(self.config, device):
            inputs = prepare_inputs(self.store, self.config, device, owner="cross_validate")
            runs = {protocol: self._missing_runs(protocol) for protocol in self.protocols}
            first = next(protocol for protocol in self.protocols if runs[protocol])
            replica = plan_groups(self.folds, first, runs[first], 1)[0].replicas[0]
            estimate = estimate_memory(
                inputs.factory, inputs.store, inputs.x, replica, self.config.training, device
            )
            self.memory_estimate = replace(estimate, total=self.executor.total_memory(self.device))
        self._inputs = inputs
        if self.group is None:
            seeds = max(len(each) for each in runs.values())
            fitting = self.memory_estimate.max_replicas(self.folds.num_folds * seeds)
            counts = self.folds.num_folds, seeds, fitting, self.runs_together
            self.group = self.executor.group_size(*counts, self.device)
        return inputs

    def _load_finished(self, resume: bool) -> dict[RecordKey, SeedRecord]:
        """The records of this run that the results store already holds."""
        if self.results is None:
            return {}
        finished = {}
        for protocol in self.protocols:
            for key in (self._key(protocol, name, seed) for name in self.variants for seed in self.seeds):
                record = self.results.get(key)
                if record is None:
                    continue
                if not resume:
                    fix = "Add --resume to keep it, or name another folder."
                    raise DataError(self.results.path(key), "no record yet", f"one of {key}", fix=fix)
                config = self.variants[key.variant]
                check_settings(record.settings, self.settings(config), key, self.results.path(key))
                if self.predictions and record.predictions is None:
                    fix = "Name another folder, or leave out --predictions, --ensemble and --companion."
                    raise DataError(
                        self.results.path(key), "a record with predictions", "none in it", fix=fix
                    )
                finished[key] = record
        return finished

    def settings(self, config: RunConfig | None = None) -> dict[str, Any]:
        """All values that determine the records, as in :attr:`SeedRecord.settings`.

        Args:
            config (RunConfig, optional): Configuration of a joint variant. (default: that of the first variant)
        """
        folds = (self.folds.num_folds, self.folds.seed - self.division, self.data, self.partition)
        return settings(config or self.config, *folds, self.patience, self.metric, self.class_weight)

    def _missing_runs(self, protocol: Protocol) -> list[tuple[str, int]]:
        """Variant and seed of each unfinished run; replicas name the first variant ``""``."""
        keys = self._missing_keys(protocol)
        return [("" if key.variant == self.variant else key.variant, key.seed) for key in keys]

    def _missing_keys(self, protocol: Protocol) -> list[RecordKey]:
        keys = [self._key(protocol, name, seed) for name in self.variants for seed in self.seeds]
        return [key for key in keys if key not in self.finished]

    def _plan(self, protocol: Protocol) -> list[ReplicaGroup]:
        runs = self._missing_runs(protocol)
        return plan_groups(self.folds, protocol, runs, self.group) if runs else []

    def _cell(self, group: ReplicaGroup, owner: int, number: int, of: int, marker: Path | None) -> GroupCell:
        title = f"{self.store.name} {self.variant} {group.protocol} {group.name}"
        if self.is_classical:
            return ClassicalCell(title, self.store, self.device, 0, group, owner, number, of, self.config)
        inputs = self.prepare()
        assert self.memory_estimate is not None
        kinds = inputs.recipe.edge_kinds
        factories = {
            name: model_factory(config, inputs.x.size(-1), self.store.num_classes, kinds)
            for name, config in self.variants.items()
        }
        options = TrainingOptions(
            self.folds.num_folds, self.patience, self.metric, self.class_weight, factories, self.data.sha256,
            self.checkpoint_every, self.info, tuple(self.callbacks),
        )  # fmt: skip
        memory = self.memory_estimate.bytes_for(len(group.replicas))
        checkpoints = self.checkpoints if marker is None else self.checkpoints.absolute()
        return NetworkCell(
            title, inputs, self.device, memory, group, owner, number, of, self.config, options, checkpoints,
            self.resume, self.memory_estimate, marker,
        )  # fmt: skip

    def _key(self, protocol: Protocol, variant: str, seed: int) -> RecordKey:
        return RecordKey(self.store.name, variant, protocol, seed, self.division)

    def _record(self, completed: CompletedSeed) -> SeedRecord:
        key = self._key(completed.protocol, completed.variant or self.variant, completed.seed)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        empty = describe_empty_graphs(self.store)
        reading = describe_reading(self.store, self.config)
        notes = (*self.folds.notes, *((empty,) if empty else ()), *reading, *completed.notes)
        predictions, metrics = completed.predictions, None
        if predictions is not None:
            metrics = FoldMetrics.from_predictions(predictions, self.store.class_names, self._twins)
        return SeedRecord(
            key, self.variants[key.variant], self.data, self.folds.seed, completed.curves, completed.seconds, now,
            versions_and_commit(), completed.hardware, notes, self.partition, self.patience,
            self.metric, self.class_weight, metrics, predictions if self.predictions else None,
            completed.capsule_use, completed.peak_memory,
        )  # fmt: skip

    @cached_property
    def _twins(self) -> dict[int, np.ndarray]:
        """For each fold the indices of its test graphs that have a twin among the other graphs of the fold."""
        colours = twin_colours(self.store)
        splits = [self.folds.held_out(fold) for fold in range(self.folds.num_folds)]
        return {fold: split.test.cpu().numpy()[has_twin(colours, split)] for fold, split in enumerate(splits)}


def check_joint_variants(config: RunConfig, name: str, joint_variants: Mapping[str, RunConfig]) -> None:
    """Checks that joint variants differ from ``config`` in ``num_factors`` only: they are trained as one model.

    Args:
        config (RunConfig): Configuration that is trained.
        name (str): Its variant name.
        joint_variants (dict): Configurations trained with it, by variant name.

    Raises:
        ArgumentError: If factors are squashed separately, a name is used twice, or another setting differs.
    """
    if joint_variants and config.model_arguments.get("factor_squash", "joined") != "joined":
        raise ArgumentError(
            "cross_validate", "joint_variants", "be left out unless factor_squash is 'joined'", "'separate'"
        )
    arguments = {**config.model_arguments, "num_factors": None}
    for joint_name, joint_config in joint_variants.items():
        joint_arguments = {**joint_config.model_arguments, "num_factors": None}
        same_settings = replace(joint_config, model_arguments=config.model_arguments) == config
        if joint_name == name or not (same_settings and joint_arguments == arguments):
            expected = f"differ from '{name}' in its name and in 'num_factors' alone"
            raise ArgumentError("cross_validate", "joint_variants", expected, f"'{joint_name}'")
