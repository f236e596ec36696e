"""Times each phase of a training step on real batches, and compares it with the roofline of the device.

The steps are those of training, and the phases are the ranges that the step and the forward pass mark
(:mod:`graphcaps.profiling`). Time between the ranges is the ``"rest"``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.bench.roofline import Ceilings, Count, count_phases, step_sizes
from graphcaps.config import TrainConfig
from graphcaps.data.store import GraphStore
from graphcaps.errors import UsageError
from graphcaps.nn import HGCN
from graphcaps.profiling import PHASES, STEP, time_ranges
from graphcaps.training.batch_schedule import EpochSchedule, schedule_epoch
from graphcaps.training.cuda_graphs import BucketedRunner, CudaGraphRecorder, can_capture
from graphcaps.training.epoch_metrics import EpochMetrics
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.replicas import Replica
from graphcaps.training.step import EagerRunner, TrainingStep
from graphcaps.training.streaming import batch_source
from graphcaps.types import FeatureTable, LossOptions

__all__ = ["EventClock", "HostClock", "PhaseTime", "StepTime", "time_phases"]

# A step is repeated for so many seconds, and at least and at most so many times.
_SECONDS, _LEAST_RUNS, _MOST_RUNS = 0.5, 3, 20

_IN_SEQUENCE = (*((name,) for name in PHASES if name not in ("backward", "update")), ("backward", "update"))
"""Phases that follow each other. On a GPU, a part of the update runs beside the backward pass, and counts to its time:
these two are one."""


@dataclass(frozen=True)
class PhaseTime:
    """One phase of a step.

    Args:
        name (str): One of :data:`PHASES`, or ``"rest"``.
        seconds (float): Measured time.
        count (Count): Compulsory bytes and operations.
        roofline (float): Seconds that these take at the ceilings of the device.
    """

    name: str
    seconds: float
    count: Count
    roofline: float

    @property
    def share(self) -> float | None:
        """Roofline time divided by measured time; ``None`` for a phase that took no time.

        Above 1 if the data of a phase are in a cache, because the phase before wrote them.
        """
        return self.roofline / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True)
class StepTime:
    """Mean over several training steps: the ``phases`` with the rest, and the ``whole`` step.

    On a CPU the step is the sum of its phases. On a GPU it is timed without the events between them, which take
    microseconds each: the sum is longer.
    """

    phases: tuple[PhaseTime, ...]
    whole: PhaseTime


def time_phases(
    model: HGCN,
    store: GraphStore,
    x: Tensor | FeatureTable,
    replicas: list[Replica],
    config: TrainConfig,
    ceilings: Ceilings,
    *,
    num_steps: int = 3,
) -> StepTime:
    """Times the phases of a few steps of an epoch; weights do not change, running statistics do.

    Each step runs several times as in training, and the fastest run is taken. On a GPU with kernels it is a captured
    graph, in which CUDA events mark the ends of the phases; a phase lasts from the moment the GPU reaches its first
    event until it reaches its second. The whole step is then timed in a graph without these events, as training replays
    it. Without a capture the events are launched with the operations, so that a phase includes the time in which the
    GPU waits for the host. On a CPU phases are timed by the clock of the host.

    Tables that several phases share count to the first that needs them. ``"rest"`` is the step with events minus its
    phases: losses, metrics and what is between the phases.

    Args:
        model (HGCN): Leading axis F, on the device.
        store (GraphStore): All graphs, on the device or on the host to be streamed.
        x (Tensor or FeatureTable): Features of all nodes, on the device of the store, as training reads them.
        replicas (list): Training graphs of each replica.
        config (TrainConfig): Training options.
        ceilings (Ceilings): Ceilings of the same device, measured in the same run.
        num_steps (int): Steps to time, spread over the epoch. (default: 3)
    """
    schedule = schedule_epoch(
        replicas, 0, config.batch_size, store.host_node_ptr.diff(), config.batches_per_epoch
    )
    full = max(1, len(schedule.num_rows) - 1)  # the last step of an epoch is smaller
    chosen = sorted({full * index // num_steps for index in range(num_steps)})
    model.train()
    seconds = dict.fromkeys((*PHASES, "rest", "whole"), 0.0)
    counts = dict.fromkeys((*PHASES, "rest"), Count(0, 0))
    for step in chosen:
        graphs = schedule.graphs(step)
        timed = _time_step(model, store, x, graphs, config)
        for name, value in timed.items():
            seconds[name] += value / len(chosen)
        table = x if isinstance(x, FeatureTable) else None
        for name, count in count_phases(step_sizes(model, store, graphs, table)).items():
            part = Count(count.bytes / len(chosen), count.operations / len(chosen))
            counts[name] = counts[name] + part
    phases = tuple(
        PhaseTime(name, seconds[name], count, ceilings.seconds(count.bytes, count.operations))
        for name, count in counts.items()
    )
    total = sum(counts.values(), Count(0, 0))
    # These run in sequence, so their roofline times add up. A phase whose data stay in a cache is faster than its
    # roofline: it counts with its measured time, so that it does not compensate for another phase.
    by_name = {phase.name: phase for phase in phases}
    roofline = 0.0
    for names in _IN_SEQUENCE:
        joint = [by_name[name] for name in names]
        roofline += min(sum(phase.roofline for phase in joint), sum(phase.seconds for phase in joint))
    return StepTime(phases, PhaseTime("whole", seconds["whole"], total, roofline))


def _time_step(
    model: HGCN, store: GraphStore, x: Tensor | FeatureTable, graphs: Tensor, config: TrainConfig
) -> dict[str, float]:
    """Repeats one step with the runner that training uses for it.

    Returns:
        dict: Seconds of every phase, of the rest and of the whole step, each in the fastest of several runs.
    """
    device = next(model.parameters()).device
    F, B = graphs.shape
    adam = ReplicaAdam(model, F, weight_decay=config.weight_decay)
    adam.set_rate(0.0)  # same work, unchanged weights
    options = LossOptions(reconstruction_weight=config.reconstruction_weight)
    step = TrainingStep(model, adam, EpochMetrics(F, device), options)
    captures = can_capture(model, store, x.x if isinstance(x, FeatureTable) else x)
    sizes = store.host_node_ptr.diff()
    rows = sizes[graphs.clamp_min(0)].masked_fill(graphs < 0, 0)
    schedule = EpochSchedule(graphs, (int(rows.sum(-1).max()),), (int(rows.max()),), B, 0)

    def fastest(clock: HostClock | EventClock) -> dict[str, float]:
        runner: EagerRunner | BucketedRunner
        if captures:
            runner = BucketedRunner(step, store, x, F, 1, B, CudaGraphRecorder())
        else:
            runner = EagerRunner(step, batch_source(store, device), x)
        runs = _repeat(lambda: runner.run(schedule), clock)
        if isinstance(runner, BucketedRunner):
            runner.steps.clear()  # a captured step refers to its runner: release its memory now
        return min(runs, key=lambda run: run[STEP])

    on_gpu = device.type == "cuda"
    marked = fastest(EventClock() if on_gpu else HostClock())
    phases = {name: marked.get(name, 0.0) for name in PHASES}
    whole = fastest(EventClock((STEP,)))[STEP] if on_gpu else marked[STEP]
    return phases | {"rest": marked[STEP] - sum(phases.values()), "whole": whole}


def _repeat(run: Callable[[], object], clock: HostClock | EventClock) -> list[dict[str, float]]:
    """Seconds of the ranges of several runs, after one that captures the step."""
    runs: list[dict[str, float]] = []
    with time_ranges(clock):
        run()
        start = time.perf_counter()
        while len(runs) < _LEAST_RUNS or (len(runs) < _MOST_RUNS and time.perf_counter() - start < _SECONDS):
            run()
            runs.append(clock.read())
    return runs


class HostClock:
    """Times ranges with the clock of the host, for operations that have ended when they return."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Times a block; the range of a step starts a new measurement."""
        if name == STEP:
            self._seconds = {}
        start = time.perf_counter()
        yield
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def read(self) -> dict[str, float]:
        """Seconds of each range of the last step."""
        return dict(self._seconds)


class EventClock:
    """Times ranges with CUDA events at their ends.

    If a step is captured, the events are nodes of its graph: every replay records them, and :meth:`read` reads those of
    the last replay.

    Args:
        names (tuple, optional): Ranges to time; others have no events. (default: all)

    Raises:
        UsageError: If torch cannot record such events.
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        if torch.__version__ < "2.8":
            raise UsageError(f"bench: phases on a GPU need torch 2.8 or newer, found {torch.__version__}.")
        self._names = names
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Times a block; the range of a step starts a new measurement."""
        if name == STEP:
            self._events = []
        if self._names is not None and name not in self._names:
            yield
            return
        # External: inside a capture the event becomes a node of the graph.
        start, end = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._events.append((name, start, end))

    def read(self) -> dict[str, float]:
        """Waits for the GPU; seconds of each range of the last step."""
        torch.cuda.synchronize()
        seconds: dict[str, float] = {}
        for name, start, end in self._events:
            seconds[name] = seconds.get(name, 0.0) + start.elapsed_time(end) / 1000
        return seconds
