"""How fast a data set is trained, and how fast rivals train a fold of it, in the same run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn

from graphcaps.bench.entries import entry
from graphcaps.bench.phases import StepTime, time_phases
from graphcaps.bench.rivals.padded_training import PaddedTraining, padded_bytes
from graphcaps.bench.rivals.pyg_training import PygKind, PygTraining
from graphcaps.bench.rivals.rival import Rival
from graphcaps.bench.roofline import Ceilings, measure_ceilings
from graphcaps.config import RunConfig
from graphcaps.data.features.encoding import EncodedGraphs, compact_features
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.evaluation import CrossValidation
from graphcaps.evaluation.replica_groups import GroupTraining, plan_groups
from graphcaps.models.builder import model_factory
from graphcaps.nn import HGCN
from graphcaps.training.device import matmul_precision, total_memory
from graphcaps.training.multiprocess import ProcessPoolTrainer
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.types import FeatureTable

__all__ = ["RIVALS", "RivalTime", "Speed", "measure_speed"]

RIVALS = ("padded", "gin", "diffpool", "sagpool")
ModelFactory = Callable[[tuple[int, ...]], nn.Module]
_RIVAL_SECONDS, _RIVAL_EPOCHS = 20.0, 3
_MOST_MEMORY = 0.5  # share of the memory that padded graphs may take


@dataclass(frozen=True)
class RivalTime:
    """A rival that passed its check: its ``name``, ``seconds`` of an epoch of one fold, and how many ``times`` those
    of ours (an epoch of all folds, divided by their number)."""

    name: str
    seconds: float
    times: float


@dataclass(frozen=True)
class Speed:
    """What a data set takes on a device.

    Args:
        dataset, device, source (str): Name, ``"cpu"`` or ``"cuda"``, and the preset.
        folds (int): Folds trained together.
        seconds (float): An epoch of all folds, test accuracy included, once it is warm: the median of several.
        graphs_per_second (float): Training graphs of all folds, by these seconds.
        memory (int or None): Peak bytes; see ``memory_of``.
        memory_of (str): What that peak is of.
        ceilings (Ceilings): Of the device, in the same run.
        step (StepTime): Phases of a training step.
        replicas (int): Folds in that step: all, or on several cores those of one process.
        rivals (tuple): Those asked for.
        notes (tuple): Rivals that were left out, and why.
        reserved (int or None): Peak bytes that torch took from the GPU, unused ones included.
        precision (str): Of products.
    """

    dataset: str
    device: str
    source: str
    folds: int
    seconds: float
    graphs_per_second: float
    memory: int | None
    memory_of: str
    ceilings: Ceilings
    step: StepTime
    replicas: int
    rivals: tuple[RivalTime, ...]
    notes: tuple[str, ...] = ()
    reserved: int | None = None
    precision: str = "float32"

    def as_dict(self) -> dict[str, Any]:
        """For JSON; shares of the roofline beside what they come from."""
        shown = asdict(self)
        found = shown["step"]
        for phase, each in zip(self.step.phases, found["phases"], strict=True):
            each["share"] = phase.share
        found["whole"]["share"] = self.step.whole.share
        return shown

    def entries(self, command: str) -> list[dict[str, Any]]:
        """Figures for ``results/performance.json``."""
        figures: list[tuple[str, float, str]] = [
            (f"bench: an epoch of {self.folds} folds", self.seconds, "s"),
            ("bench: training graphs a second", self.graphs_per_second, "graphs/s"),
            ("bench: copy bandwidth", self.ceilings.bandwidth / 1e9, "GB/s"),
            ("bench: matrix product", self.ceilings.rate / 1e9, "Gop/s"),
            (f"bench: training step of {self.replicas} folds", self.step.whole.seconds * 1e3, "ms"),
        ]
        if self.memory is not None:
            figures.append((f"bench: {self.memory_of}", self.memory / 1e6, "MB"))
        if self.reserved is not None:
            figures.append(("bench: peak memory reserved of the GPU", self.reserved / 1e6, "MB"))
        for phase in (self.step.whole, *self.step.phases):
            name = "training step" if phase is self.step.whole else phase.name
            if phase is not self.step.whole and phase.seconds:
                figures.append((f"bench: phase of a step, {name}", phase.seconds * 1e3, "ms"))
            if phase.share is not None and phase.roofline:
                figures.append((f"bench: share of the roofline, {name}", 100 * phase.share, "%"))
        for rival in self.rivals:
            figures.append((f"bench: an epoch of one fold, {rival.name}", rival.seconds, "s"))
            figures.append((f"bench: a fold's epoch, times faster than {rival.name}", rival.times, "times"))
        suffix = "" if self.precision == "float32" else f", {self.precision}"
        return [
            entry(what + suffix, self.dataset, self.device, float(f"{value:.4g}"), unit, command)
            for what, value, unit in figures
        ]


def measure_speed(
    store: GraphStore,
    config: RunConfig,
    *,
    device: str = "cpu",
    rivals: Sequence[str] = (),
    folds: int = 10,
    warm_up: int | None = None,
    epochs: int | None = None,
) -> Speed:
    """Trains all folds of a data set as ``evaluate --protocol paper`` does, and reads the clock.

    Args:
        store (GraphStore): Graphs with classes.
        config (RunConfig): Model, input columns and training; an HGCN.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "cpu")
        rivals (list): Some of :data:`RIVALS`; each is checked before it is timed. (default: none)
        folds (int): Number of folds. (default: 10)
        warm_up (int, optional): Epochs before the clock starts. (default: 1; on a GPU 10, for captures)
        epochs (int, optional): Epochs under the clock, whose median counts: a shape that occurs for the first
            time is captured in between. (default: 3; on a GPU 20)

    Raises:
        GraphcapsError: If something asked for cannot be, before training starts.
        RivalError: If a rival does not pass its check.
    """
    for name in rivals:
        if name not in RIVALS:
            raise ArgumentError("bench", "rivals", f"be some of {', '.join(RIVALS)}, or none", repr(name))
    if config.model != "hgcn":
        raise ArgumentError("bench", "model", "be hgcn", repr(config.model))
    validation = CrossValidation(store, config, folds=folds, protocol="paper", device=device)
    config, place = validation.config, validation.device
    gpu = place.type == "cuda"
    warm_up = (10 if gpu else 1) if warm_up is None else warm_up
    epochs = (20 if gpu else 3) if epochs is None else epochs
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(place)
    ready = validation.prepare()
    seconds = 0.0
    part: list[Replica] = []
    plans = plan_groups(validation.folds, "paper", validation.seeds, validation.group)
    make = model_factory(config, ready.x.size(-1), store.num_classes)
    here = ready.store.device.type == place.type  # features as training reads them
    features: Tensor | FeatureTable = compact_features(ready.x, ready.store) if here else ready.x
    for plan in plans:  # one after another where they do not fit into memory together
        training = GroupTraining(plan, ready, place, config, make)
        took, trained = _epoch_seconds(training, warm_up, epochs)
        seconds, part = seconds + took, part or trained
    memory = torch.cuda.max_memory_allocated(place) if gpu else _resident_peak()
    reserved = torch.cuda.max_memory_reserved(place) if gpu else None
    ceilings, step = _phases(make, ready.store, features, part, config, place, len(plans[0].replicas))
    replicas = [replica for plan in plans for replica in plan.replicas]
    host = EncodedGraphs(ready.store.to("cpu"), ready.x.cpu(), ready.recipe)
    if gpu:
        torch.cuda.synchronize(place)  # stores move without waiting
    timed, notes = [], []
    for name in rivals:
        if name == "padded" and not _fits(host):
            notes.append("padded is left out: its graphs would fill more than half of the memory.")
            continue
        rival = _rival(name, make, host, replicas[0], config, place)
        took = _rival_seconds(rival, min(epochs, _RIVAL_EPOCHS))
        timed.append(RivalTime(rival.name, took, took / (seconds / len(replicas))))
    return Speed(
        dataset=store.name,
        device=place.type,
        source=config.source,
        folds=len(replicas),
        seconds=seconds,
        graphs_per_second=sum(replica.train.numel() for replica in replicas) / seconds,
        memory=memory,
        memory_of="peak memory of the GPU" if gpu else "resident peak of the process",
        ceilings=ceilings,
        step=step,
        replicas=len(part),
        rivals=tuple(timed),
        notes=tuple(notes),
        reserved=reserved,
        precision=config.training.precision if gpu else "float32",
    )


def _epoch_seconds(training: GroupTraining, warm_up: int, epochs: int) -> tuple[float, list[Replica]]:
    """Seconds of an epoch of one group, and the replicas that one process of it trains."""
    try:
        trainer = training.trainer
        for _ in range(warm_up):
            trainer.run_epoch()
        seconds = [trainer.run_epoch().seconds for _ in range(epochs)]
        part = trainer.shards[0] if isinstance(trainer, ProcessPoolTrainer) else trainer.replicas
    finally:
        training.close()
    return median(seconds), part


def _phases(
    make: ModelFactory,
    store: GraphStore,
    x: Tensor | FeatureTable,
    part: list[Replica],
    config: RunConfig,
    device: torch.device,
    together: int,
) -> tuple[Ceilings, StepTime]:
    """Ceilings and phases; on several cores those of one process, with its share of threads."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(max(1, threads * len(part) // together))
    try:
        with matmul_precision(config.training.precision, device):
            ceilings = measure_ceilings(device)
            model = cast(HGCN, stack_replicas(make, part).to(device))
            return ceilings, time_phases(model, store, x, part, config.training, ceilings)
    finally:
        torch.set_num_threads(threads)


def _rival(
    name: str,
    make: ModelFactory,
    host: EncodedGraphs,
    replica: Replica,
    config: RunConfig,
    device: torch.device,
) -> Rival:
    training = config.training
    rates: dict[str, Any] = {"learning_rate": training.learning_rate, "weight_decay": training.weight_decay}
    parts = (replica.train, replica.test, training.batch_size)
    if name != "padded":
        return PygTraining(cast(PygKind, name), host.store, host.x, *parts, device, **rates)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(replica.stream_seed)
        model = cast(HGCN, make(()))
    return PaddedTraining(
        model, host.store, host.x, *parts, device=device,
        halve_every=training.halve_every, reconstruction_weight=training.reconstruction_weight, **rates,
    )  # fmt: skip


def _fits(host: EncodedGraphs) -> bool:
    total = total_memory(torch.device("cpu"))
    return total is None or padded_bytes(host.store, host.x) <= _MOST_MEMORY * total


def _rival_seconds(rival: Rival, epochs: int) -> float:
    """Seconds of an epoch, after the check and an epoch that is not counted; fewer epochs of a slow one.

    With all threads and with one, whichever is faster: on small graphs one often is, and a rival gets its best.
    """
    rival.check()
    threads = torch.get_num_threads()
    try:
        return min(_mean_seconds(rival, epochs, count) for count in {threads, 1})
    finally:
        torch.set_num_threads(threads)


def _mean_seconds(rival: Rival, epochs: int, threads: int) -> float:
    torch.set_num_threads(threads)
    rival.epoch()
    found: list[float] = []
    while len(found) < epochs and sum(found) < _RIVAL_SECONDS:
        began = time.perf_counter()
        rival.epoch()
        found.append(time.perf_counter() - began)
    return sum(found) / len(found)


def _resident_peak() -> int | None:
    """The most memory that this process, or the largest it started, ever had; ``None`` where no one counts."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return int(most) if sys.platform == "darwin" else int(most) * 1024
