"""Measures how fast all folds of a data set are trained, with the phases of a step and their roofline."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from graphcaps.bench.measurements import make_measurement
from graphcaps.bench.phases import StepTime, time_phases
from graphcaps.bench.roofline import Ceilings, measure_ceilings
from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.evaluation import CrossValidation
from graphcaps.evaluation.replica_groups import plan_groups
from graphcaps.models.lookup import find_model
from graphcaps.nn import HGCN
from graphcaps.training.device import matmul_precision
from graphcaps.training.loop import TrainingLoop
from graphcaps.training.multiprocess import ProcessPoolTrainer, TrainerFactory, make_trainer
from graphcaps.training.replica_trainer import ReplicaTrainer
from graphcaps.training.replicas import Replica, stack_replicas

__all__ = ["Speed", "measure_speed", "time_epochs"]


@dataclass(frozen=True)
class Speed:
    """Speed of training a data set on a device.

    Args:
        dataset, device, source (str): Name of the data set, ``"cpu"`` or ``"cuda"``, and the preset.
        folds (int): Folds trained together.
        seconds (float): Median time of an epoch of all folds after warm-up, test accuracy included.
        graphs_per_second (float): Training graphs of all folds divided by ``seconds``.
        memory (int or None): Peak memory in bytes; ``memory_of`` says of what.
        memory_of (str): ``"peak memory of the GPU"`` or ``"resident peak of the process"``.
        ceilings (Ceilings): Ceilings of the device, measured in the same run.
        step (StepTime): Phases of a training step.
        replicas (int): Folds in that step: all, or on several cores those of one process.
        reserved (int or None): Peak bytes that torch reserved on the GPU, unused ones included.
        precision (str): Precision of matrix products.
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
    reserved: int | None = None
    precision: str = "float32"

    def as_dict(self) -> dict[str, Any]:
        """All fields for JSON, and the share of the roofline of every phase."""
        content = asdict(self)
        step = content["step"]
        for phase, row in zip(self.step.phases, step["phases"], strict=True):
            row["share"] = phase.share
        step["whole"]["share"] = self.step.whole.share
        return content

    def measurements(self, command: str) -> list[dict[str, Any]]:
        """Measurements for ``results/performance.json``."""
        values: list[tuple[str, float, str]] = [
            (f"bench: an epoch of {self.folds} folds", self.seconds, "s"),
            ("bench: training graphs a second", self.graphs_per_second, "graphs/s"),
            ("bench: copy bandwidth", self.ceilings.bandwidth / 1e9, "GB/s"),
            ("bench: matrix product", self.ceilings.rate / 1e9, "Gop/s"),
            (f"bench: training step of {self.replicas} folds", self.step.whole.seconds * 1e3, "ms"),
        ]
        if self.memory is not None:
            values.append((f"bench: {self.memory_of}", self.memory / 1e6, "MB"))
        if self.reserved is not None:
            values.append(("bench: peak memory reserved of the GPU", self.reserved / 1e6, "MB"))
        for phase in (self.step.whole, *self.step.phases):
            name = "training step" if phase is self.step.whole else phase.name
            if phase is not self.step.whole and phase.seconds:
                values.append((f"bench: phase of a step, {name}", phase.seconds * 1e3, "ms"))
            if phase.share is not None and phase.roofline:
                values.append((f"bench: share of the roofline, {name}", 100 * phase.share, "%"))
        return self.named(values, command)

    def named(self, values: list[tuple[str, float, str]], command: str) -> list[dict[str, Any]]:
        """Measurements of this data set, device and precision from (what, value, unit), to four digits."""
        suffix = "" if self.precision == "float32" else f", {self.precision}"
        return [
            make_measurement(what + suffix, self.dataset, self.device, float(f"{value:.4g}"), unit, command)
            for what, value, unit in values
        ]


def measure_speed(
    store: GraphStore,
    config: RunConfig,
    *,
    device: str = "auto",
    folds: int = 10,
    warm_up: int | None = None,
    epochs: int | None = None,
) -> Speed:
    """Trains all folds of a data set as ``evaluate --protocol paper`` does, and times epochs and phases.

    Args:
        store (GraphStore): Graphs with class labels.
        config (RunConfig): Model (an HGCN), input columns and training.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")
        folds (int): Number of folds. (default: 10)
        warm_up (int, optional): Epochs before timing starts. (default: 1; on a GPU 10, for captures)
        epochs (int, optional): Timed epochs, of which the median is taken: a batch shape that occurs for the
            first time is captured in between. (default: 3; on a GPU 20)

    Raises:
        GraphcapsError: If an argument is invalid, before training starts.
    """
    if not issubclass(find_model(config.model), HGCN):
        raise ArgumentError("bench", "model", "be hgcn", repr(config.model))
    validation = CrossValidation(store, config, folds=folds, protocol="paper", device=device)
    config, target = validation.config, validation.device
    gpu = target.type == "cuda"
    warm_up = (10 if gpu else 1) if warm_up is None else warm_up
    epochs = (20 if gpu else 3) if epochs is None else epochs
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(target)
    prepared = validation.prepare()
    seconds = 0.0
    part: list[Replica] = []
    plans = plan_groups(validation.folds, "paper", validation.seeds, validation.group)
    build = TrainerFactory(prepared.factory, prepared.store, prepared.x, config.training, target).compacted()
    for plan in plans:  # one after another where they do not fit into memory together
        trainer = make_trainer(build, list(plan.replicas))
        shards = trainer.shards[0] if isinstance(trainer, ProcessPoolTrainer) else trainer.replicas
        seconds += median(time_epochs(trainer, warm_up, epochs)[1])
        part = part or shards
    memory = torch.cuda.max_memory_allocated(target) if gpu else _resident_peak()
    reserved = torch.cuda.max_memory_reserved(target) if gpu else None
    ceilings, step = _phases(build, part, len(plans[0].replicas))
    replicas = [replica for plan in plans for replica in plan.replicas]
    return Speed(
        dataset=store.name,
        device=target.type,
        source=config.source,
        folds=len(replicas),
        seconds=seconds,
        graphs_per_second=sum(replica.train.numel() for replica in replicas) / seconds,
        memory=memory,
        memory_of="peak memory of the GPU" if gpu else "resident peak of the process",
        ceilings=ceilings,
        step=step,
        replicas=len(part),
        reserved=reserved,
        precision=config.training.precision if gpu else "float32",
    )


def time_epochs(trainer: ReplicaTrainer, warm_up: int, epochs: int) -> tuple[list[float], list[float]]:
    """Seconds of each epoch of a training from its start: of the first ``warm_up`` ones, and of the next ``epochs``.

    The trainer is closed.
    """
    loop = TrainingLoop(trainer)
    try:
        seconds = [trainer.run_epoch().seconds for _ in range(warm_up + epochs)]
    finally:
        loop.close()
    return seconds[:warm_up], seconds[warm_up:]


def _phases(build: TrainerFactory, part: list[Replica], together: int) -> tuple[Ceilings, StepTime]:
    """Ceilings and phases; on several cores those of one process, with its share of the threads."""
    threads, device, config = torch.get_num_threads(), build.device, build.config
    if device.type == "cpu":
        torch.set_num_threads(max(1, threads * len(part) // together))
    try:
        with matmul_precision(config.precision, device):
            ceilings = measure_ceilings(device)
            model = stack_replicas(build.factory, part).to(device)
            assert isinstance(model, HGCN)
            return ceilings, time_phases(model, build.store, build.x, part, config, ceilings)
    finally:
        torch.set_num_threads(threads)


def _resident_peak() -> int | None:
    """Peak resident memory of this process or of its largest child, in bytes; ``None`` on Windows."""
    try:
        import resource
    except ImportError:
        return None
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024
