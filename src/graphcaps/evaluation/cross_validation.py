"""Ten folds, several seeds, two protocols: from graphs and a configuration to a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
from torch import Tensor

from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data.features.encoding import EncodedGraphs, encode_graphs
from graphcaps.data.features.recipe import FeatureRecipe
from graphcaps.data.splits.folds import Folds, Split, stratified_folds
from graphcaps.data.splits.groups import Grouping, resolve_groups
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError
from graphcaps.evaluation.checkpoint_dir import CheckpointDir
from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.ledger import Ledger
from graphcaps.evaluation.partition import Partition, partition_by_groups, single_split
from graphcaps.evaluation.record import PROTOCOLS, DataMark, Protocol, RecordKey, SeedRecord, settings
from graphcaps.evaluation.replica_groups import GroupTraining, ReplicaGroup, plan_groups
from graphcaps.evaluation.results_store import ResultsStore, check_settings
from graphcaps.models.builder import model_factory, recipe_arguments
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.device import choose_device
from graphcaps.training.fingerprint import data_digest
from graphcaps.training.holdout import label_column_hint
from graphcaps.training.memory import MemoryEstimate, estimate_memory, explain_out_of_memory
from graphcaps.training.streaming import move_to_device
from graphcaps.training.trainer import EpochEnd

__all__ = [
    "FOLDS_SEED",
    "CompletedSeed",
    "CrossValidation",
    "GroupEpoch",
    "Groups",
    "SeedCollector",
    "check_joint_variants",
    "cross_validate",
    "folds_of",
]


FOLDS_SEED = 12345  # of the published figures
Groups = Sequence[int | str] | np.ndarray | Tensor | Grouping | str | Path


def check_joint_variants(config: RunConfig, name: str, joint_variants: Mapping[str, RunConfig]) -> None:
    """Refuses variants that compute something else: they would be trained as ``config``."""
    if joint_variants and config.model_arguments.get("factor_squash", "joined") != "joined":
        raise ArgumentError("cross_validate", "joint_variants", "come with joined factors", "separate ones")
    own = {**config.model_arguments, "num_factors": None}
    for other_variant, other in joint_variants.items():
        arguments = {**other.model_arguments, "num_factors": None}
        same = replace(other, model_arguments=config.model_arguments) == config and arguments == own
        if other_variant == name or not same:
            expected = f"differ from '{name}' in its name and in 'num_factors' alone"
            raise ArgumentError("cross_validate", "joint_variants", expected, f"'{other_variant}'")


def folds_of(
    store: GraphStore,
    folds: int,
    groups: Groups | None = None,
    split: Split | None = None,
    *,
    chooses: bool = True,
) -> tuple[Folds, Partition | None]:
    """The folds of a store and the mark of those that are not plain, or a sentence that names the store.

    Args:
        store (GraphStore): Graphs with classes.
        folds (int): Number of folds.
        groups (sequence, Grouping or str, optional): Group of each graph, or what
            :func:`graphcaps.data.splits.groups.resolve_groups` finds by that name.
        split (Split, optional): In place of folds.
        chooses (bool): Whether graphs choose the epoch, as in the protocol held-out. (default: ``True``)
    """
    if store.y is None:
        got = f"'{store.name}' without"
        raise ArgumentError("cross_validate", "store", "have a class for every graph", got, "Add labels.")
    if split is not None:
        if groups is not None:
            raise ArgumentError("cross_validate", "groups", "be left out beside a split", "both")
        return single_split(split, store.y, FOLDS_SEED, chooses=chooses, class_names=store.class_names)
    if chooses and type(folds) is int and folds < 3:
        expected = "be at least 3, since one fold tests and one chooses the epoch"
        raise ArgumentError("cross_validate", "folds", expected, folds)
    found = None if groups is None else _groups(store, groups)
    ids = None if found is None else found.ids
    try:
        plain = stratified_folds(store.y, folds, FOLDS_SEED, class_names=store.class_names, groups=ids)
    except ArgumentError as error:
        name = {"y": "store", "num_folds": "folds"}.get(error.name, error.name)
        where = f"{error.got} in '{store.name}'"
        few = (
            "Add graphs, or lower the number of folds (--folds)."
            if "for as many folds" in error.expected
            else ""
        )
        fix = " ".join(part for part in (label_column_hint(store.y), few or error.fix) if part)
        raise ArgumentError("cross_validate", name, error.expected, where, fix) from error
    return plain, None if found is None else partition_by_groups(found.ids, found.by)


def _groups(store: GraphStore, groups: Groups) -> Grouping:
    """The group of each graph."""
    if isinstance(groups, Grouping):
        return groups
    if isinstance(groups, str | Path):
        return resolve_groups(groups, store)
    names = groups.tolist() if isinstance(groups, np.ndarray | Tensor) else list(groups)
    return Grouping(np.unique(np.array(names, dtype=str), return_inverse=True)[1].reshape(-1), "given")


@dataclass(frozen=True)
class CompletedSeed:
    """All folds of one variant and seed.

    Args:
        protocol (str): How it was trained.
        variant (str): As the replicas name it.
        seed (int): Its seed.
        curves (EpochRecords): A row per fold.
        seconds (float): Its share of the groups that it was trained in.
        notes (tuple): What was noted while it was trained.
    """

    protocol: Protocol
    variant: str
    seed: int
    curves: EpochRecords
    seconds: float
    notes: tuple[str, ...]


class SeedCollector:
    """Takes what groups give and hands out seeds that are whole.

    Args:
        num_folds (int): Folds of a whole seed.
        notes (list): What was noted before the first group.
    """

    def __init__(self, num_folds: int, notes: Sequence[str] = ()) -> None:
        self.num_folds = num_folds
        self._notes = list(notes)
        self._parts: dict[tuple[Protocol, str, int], list[tuple[EpochRecords, float]]] = {}

    def add(
        self, group: ReplicaGroup, events: Sequence[EpochEnd], notes: Sequence[str]
    ) -> Iterator[CompletedSeed]:
        """Takes the events of a group, and gives the seeds that it completes."""
        self._notes += notes
        curves = EpochRecords.from_events(events, group.replicas)
        share = sum(event.seconds for event in events) / len(group.replicas)
        for run in group.runs:
            rows = [row for row, each in enumerate(group.replicas) if (each.variant, each.seed) == run]
            part = (curves.folds(rows), share * len(rows))
            self._parts.setdefault((group.protocol, *run), []).append(part)
        whole = [key for key, parts in self._parts.items() if _rows(parts) == self.num_folds]
        for key in whole:
            parts = self._parts.pop(key)
            joined = EpochRecords.join([part for part, _ in parts])
            seconds = sum(seconds for _, seconds in parts)
            yield CompletedSeed(*key, joined, seconds, tuple(dict.fromkeys(self._notes)))
        if not self._parts:  # what is noted belongs to the seeds that were trained together
            self._notes.clear()


def _rows(parts: Sequence[tuple[EpochRecords, float]]) -> int:
    return sum(curves.num_folds for curves, _ in parts)


@dataclass(frozen=True)
class GroupEpoch:
    """An epoch of one of several trainings.

    Args:
        dataset (str): Name of the data set.
        protocol (str): ``"held-out"`` or ``"paper"``.
        group (int): Number of the training, counted from 1 over both protocols.
        groups (int): How many there will be.
        replicas (int): Folds and seeds that it trains together.
        epoch (EpochEnd): What the epoch gave, one number per replica.
    """

    dataset: str
    protocol: Protocol
    group: int
    groups: int
    replicas: int
    epoch: EpochEnd


def cross_validate(
    store: GraphStore,
    config: RunConfig | None = None,
    *,
    folds: int = 10,
    seeds: int = 1,
    protocol: Literal["held-out", "paper", "both"] = "held-out",
    device: str = "cpu",
    group: int | None = None,
    on_event: Callable[[GroupEpoch], object] | None = None,
    variant: str | None = None,
    results: ResultsStore | str | Path | None = None,
    resume: bool = False,
    groups: Groups | None = None,
    split: Split | None = None,
) -> Ledger:
    """Trains and tests a model on every fold of a data set, under every seed.

    Folds and seeds are replicas of one training. The folds are stratified and the same for every model and
    seed. **held-out** trains on all folds but two, chooses the epoch on one and tests on the other;
    **paper** trains on all folds but the one that tests, and can only choose on test data.

    Args:
        store (GraphStore): Graphs with classes.
        config (RunConfig, optional): Model, input columns and training. (default: the defaults of each)
        folds (int): Number of folds. (default: 10)
        seeds (int): Number of seeds; they are 0, 1, 2, … (default: 1)
        protocol (str): ``"held-out"``, ``"paper"`` or ``"both"``. (default: "held-out")
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "cpu")
        group (int, optional): Most replicas to train at a time; figures do not depend on it, up to rounding.
            (default: as many as the forecast says fit into memory)
        on_event (callable, optional): Is handed a :class:`GroupEpoch` after every epoch.
        variant (str, optional): Name of the model in results. (default: the model's)
        results (ResultsStore or path, optional): Folder to write records to, as soon as a seed is finished,
            and checkpoints, under ``unfinished``.
        resume (bool): Keep finished records of ``results`` and go on from its checkpoints.
        groups (sequence or str, optional): Group of each graph; no group stands in two folds. ``"copies"`` finds
            the copies among the graphs, another text is a file that ``graphcaps data check --groups`` wrote.
        split (Split, optional): One given split in place of folds; ``paper`` learns from its validation part too.
            Without one, held-out draws a tenth of every class of the training part to choose by.

    Raises:
        GraphcapsError: If the graphs cannot be split or a number is out of range, before training starts.
    """
    place = results if isinstance(results, ResultsStore) or results is None else ResultsStore(results)
    validation = CrossValidation(
        store, config, folds=folds, seeds=seeds, protocol=protocol, device=device, group=group,
        variant=variant, results=place, resume=resume, groups=groups, split=split,
    )  # fmt: skip
    return validation.run(on_event)


class CrossValidation:
    """A cross-validation that is checked when it is made and trained when it is run.

    Arguments are those of :func:`cross_validate`, and

    Args:
        joint_variants (dict, optional): More variants, by their names in results, that differ from ``config`` in
            ``num_factors`` alone: the joined factors are one projection, so that only the first weights are
            drawn otherwise (docs/method.md). They are trained as further replicas of the same run.
    """

    def __init__(
        self,
        store: GraphStore,
        config: RunConfig | None = None,
        *,
        folds: int = 10,
        seeds: int = 1,
        protocol: str = "held-out",
        device: str = "cpu",
        group: int | None = None,
        variant: str | None = None,
        results: ResultsStore | None = None,
        resume: bool = False,
        joint_variants: Mapping[str, RunConfig] | None = None,
        groups: Groups | None = None,
        split: Split | None = None,
    ) -> None:
        for name, value in (("seeds", seeds), ("group", 1 if group is None else group)):
            if type(value) is not int or value < 1:
                raise ArgumentError("cross_validate", name, "be a whole number from 1 on", value)
        if protocol not in (*PROTOCOLS, "both"):
            known = f"be one of {', '.join(PROTOCOLS)}, both"
            raise ArgumentError("cross_validate", "protocol", known, repr(protocol))
        if resume and results is None:
            raise ArgumentError("cross_validate", "resume", "come with a folder of results", "none")
        self.store = store
        self.protocols = tuple(p for p in PROTOCOLS if protocol in (p, "both"))
        chooses = "held-out" in self.protocols
        self.folds, self.partition = folds_of(store, folds, groups, split, chooses=chooses)
        # Folds test every graph in turn; of one split, the test graphs decide nothing.
        seen = store if split is None else store[self.folds.paper(0).train]
        self.config = resolve_config(config or RunConfig(), seen)
        self.variant = variant or self.config.model
        joint_variants = {
            name: resolve_config(other_variant, seen)
            for name, other_variant in (joint_variants or {}).items()
        }
        self.variants = {self.variant: self.config, **joint_variants}
        check_joint_variants(self.config, self.variant, joint_variants)
        model_factory(self.config, 1, store.num_classes)  # refuses unknown models and arguments
        self.seeds, self.group = tuple(range(seeds)), group
        self.device = choose_device(device, "cross_validate")
        self.results = results
        counts = (len(store), store.num_nodes, store.num_edges, store.num_classes)
        self.data = DataMark(*counts, self.folds.checksum, data_digest(store))
        self.finished = self._finished(resume)
        self.resume = resume
        self.forecast: MemoryEstimate | None = None
        self._ready: EncodedGraphs | None = None
        folder = None if results is None else results.folder
        self.unfinished = CheckpointDir(folder, store.name, "+".join(self.variants))
        if not resume:
            self.unfinished.refuse(self.protocols)

    def _finished(self, resume: bool) -> dict[RecordKey, SeedRecord]:
        """Records that are there already and belong to this run."""
        if self.results is None:
            return {}
        found = {}
        for protocol in self.protocols:
            for key in (self._key(protocol, name, seed) for name in self.variants for seed in self.seeds):
                record = self.results.get(key)
                if record is None:
                    continue
                if not resume:
                    fix = "Add --resume to keep it, or name another folder."
                    raise DataError(self.results.path(key), "no record yet", f"one of {key}", fix=fix)
                config = self.variants[key.variant]
                wanted = settings(config, self.folds.num_folds, self.folds.seed, self.data, self.partition)
                check_settings(record.settings, wanted, key, self.results.path(key))
                found[key] = record
        return found

    def run(self, on_event: Callable[[GroupEpoch], object] | None = None) -> Ledger:
        """Trains what is not finished; returns the ledger of all records of ``variant``, without joint variants."""
        return self.run_all(on_event)[self.variant]

    def run_all(self, on_event: Callable[[GroupEpoch], object] | None = None) -> dict[str, Ledger]:
        """As :meth:`run`, with a ledger per variant."""
        records = dict(self.finished)
        if any(self._missing(protocol) for protocol in self.protocols):
            self.prepare()
        plans = [plan for protocol in self.protocols for plan in self._plan(protocol)]
        collector = SeedCollector(self.folds.num_folds, self.unfinished.unused(plans))
        for number, plan in enumerate(plans, 1):

            def tell(epoch: EpochEnd, plan: ReplicaGroup = plan, number: int = number) -> None:
                if on_event is not None:
                    size = len(plan.replicas)
                    on_event(GroupEpoch(self.store.name, plan.protocol, number, len(plans), size, epoch))

            events, told = self._train(plan, tell)
            for whole in collector.add(plan, events, told):
                record = self._record(whole)
                records[record.key] = record
                if self.results is not None:
                    self.results.add(record)
            keys = [[self._key(plan.protocol, name, seed) for name in self.variants] for seed in self.seeds]
            self.unfinished.tidy(plan.protocol, {key[0].seed for key in keys if set(key) <= set(records)})
        return {
            name: Ledger(tuple(record for key, record in records.items() if key.variant == name))
            for name in self.variants
        }

    def _train(
        self, plan: ReplicaGroup, tell: Callable[[EpochEnd], object]
    ) -> tuple[list[EpochEnd], tuple[str, ...]]:
        """The events of a group and what is to be noted; its memory is free again for the next group."""
        training = self._training(plan, self.prepare(), self.data.sha256)
        try:
            return training.run(tell), training.notes
        finally:
            training.close()

    def prepare(self) -> EncodedGraphs:
        """Computes the input columns, forecasts the memory, and sets how many replicas are trained together."""
        if self._ready is not None:
            return self._ready
        recipe = FeatureRecipe(**recipe_arguments(self.config.features))  # type: ignore[arg-type]
        ready = encode_graphs(self.store, recipe, max_nodes=self.config.features.max_nodes)
        with explain_out_of_memory(self.config, self.device):
            store, x = move_to_device(ready.store, ready.x, self.device)
            self._ready = EncodedGraphs(store, x, ready.recipe)
            runs = {protocol: self._missing(protocol) for protocol in self.protocols}
            first = next(protocol for protocol in self.protocols if runs[protocol])
            replica = plan_groups(self.folds, first, runs[first], 1)[0].replicas[0]
            make = model_factory(self.config, x.size(-1), self.store.num_classes)
            self.forecast = estimate_memory(make, store, x, replica, self.config.training, self.device)
        if self.group is None:
            most = self.folds.num_folds * max(len(each) for each in runs.values())
            self.group = self.forecast.max_replicas(most)
        return self._ready

    def _missing(self, protocol: Protocol) -> list[tuple[str, int]]:
        """Variants, as replicas name them ("" is the first), and seeds that are not finished."""
        wanted = [(name, seed) for name in self.variants for seed in self.seeds]
        left = [run for run in wanted if self._key(protocol, *run) not in self.finished]
        return [("" if name == self.variant else name, seed) for name, seed in left]

    def _plan(self, protocol: Protocol) -> list[ReplicaGroup]:
        runs = self._missing(protocol)
        return plan_groups(self.folds, protocol, runs, self.group) if runs else []

    def _training(self, plan: ReplicaGroup, ready: EncodedGraphs, digest: str) -> GroupTraining:
        sizes = (ready.x.size(-1), self.store.num_classes)
        make, *_ = makers = [model_factory(config, *sizes) for config in self.variants.values()]
        drawn = dict(zip(self.variants, makers, strict=True))
        path = self.unfinished.path(plan)
        # The record of a seed waits for all its folds: a part of them is kept until then.
        part = len(plan.replicas) < self.folds.num_folds
        training = GroupTraining(
            plan, ready, self.device, self.config, make, drawn, digest, path, keep_end=part
        )
        if self.resume:
            training.resume()
        return training

    def _key(self, protocol: Protocol, variant: str, seed: int) -> RecordKey:
        return RecordKey(self.store.name, variant, protocol, seed)

    def _record(self, whole: CompletedSeed) -> SeedRecord:
        key = self._key(whole.protocol, whole.variant or self.variant, whole.seed)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return SeedRecord(
            key, self.variants[key.variant], self.data, self.folds.seed, whole.curves, whole.seconds, now,
            versions_and_commit(), describe_hardware(self.device), (*self.folds.notes, *whole.notes),
            self.partition,
        )  # fmt: skip
