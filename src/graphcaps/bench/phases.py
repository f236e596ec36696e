"""Times each phase of a training step on real batches, and compares it with the roofline of the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcaps.bench.measurements import CheckError
from graphcaps.bench.roofline import PHASES, Ceilings, Count, count_phases, step_sizes
from graphcaps.config import TrainConfig
from graphcaps.data.batching import collate_padded
from graphcaps.data.store import GraphStore
from graphcaps.nn import HGCN
from graphcaps.ops.coarsening import clamp_adjacency, coarsen
from graphcaps.ops.routing import route
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.training.batch_schedule import bucket_size, schedule_epoch
from graphcaps.training.cuda_graphs import CudaGraphRecorder, can_capture
from graphcaps.training.epoch_metrics import EpochMetrics
from graphcaps.training.optimizer import ReplicaAdam
from graphcaps.training.replicas import Replica
from graphcaps.training.step import TrainingStep
from graphcaps.training.streaming import batch_source
from graphcaps.types import CapsuleLevel, FeatureTable, GraphBatch, LossOptions

__all__ = ["PhaseTime", "StepTime", "time_phases"]

_FORWARD = PHASES[:-2]
_TOLERANCE = 1e-4
_REPLAYS = 20
_SECONDS, _MAX_RUNS = 0.3, 20  # on a CPU a phase is repeated for so many seconds, or so many times


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

        Above 1 if the data of a repeated phase stay in a cache.
        """
        return self.roofline / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True)
class StepTime:
    """Mean over several training steps: the ``phases``, and the ``whole`` step, timed separately."""

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

    On a GPU with kernels every phase is captured and replayed as in training. Elsewhere it runs eagerly, and the
    fastest of several runs is taken. ``"backward"`` is the whole step minus its forward pass and its update.
    ``"rest"`` is the forward pass minus its phases: losses, and tables that several phases share.

    Args:
        model (HGCN): Leading axis F, on the device.
        store (GraphStore): All graphs, on the device or on the host to be streamed.
        x (Tensor or FeatureTable): Features of all nodes, on the device of the store, as training reads them.
        replicas (list): Training graphs of each replica.
        config (TrainConfig): Training options.
        ceilings (Ceilings): Ceilings of the same device, measured in the same run.
        num_steps (int): Steps to time, spread over the epoch. (default: 3)

    Raises:
        CheckError: If the phases in sequence do not give the class capsules of the model.
    """
    schedule = schedule_epoch(replicas, 0, config.batch_size, store.host_node_ptr.diff())
    full = max(1, len(schedule.num_rows) - 1)  # the last step of an epoch is smaller
    chosen = sorted({full * index // num_steps for index in range(num_steps)})
    model.train()
    seconds = dict.fromkeys((*PHASES, "rest", "whole"), 0.0)
    counts = dict.fromkeys((*PHASES, "rest"), Count(0, 0))
    for step in chosen:
        graphs = schedule.graphs(step)
        timed = _Step(model, store, x, graphs, config).times()
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
    # Phases run in sequence, so their times add up. A phase whose data stay in a cache is faster than its roofline:
    # it counts with its measured time, so that it does not compensate for another phase.
    roofline = sum(min(phase.roofline, phase.seconds) for phase in phases)
    return StepTime(phases, PhaseTime("whole", seconds["whole"], total, roofline))


class _Step:
    """One training step, and its phases as separate functions."""

    def __init__(
        self,
        model: HGCN,
        store: GraphStore,
        x: Tensor | FeatureTable,
        graphs: Tensor,
        config: TrainConfig,
    ) -> None:
        self.model: Any = model
        self.device = next(model.parameters()).device
        self.recorder = CudaGraphRecorder() if _captures(model, store, x) else None
        self.fetch = _fetcher(store, x, graphs, self.device, self.recorder is not None)
        self.options = LossOptions(reconstruction_weight=config.reconstruction_weight)
        self.adam = ReplicaAdam(model, graphs.size(0), weight_decay=config.weight_decay)
        self.adam.set_rate(0.0)  # same work, unchanged weights
        self.update = TrainingStep(model, self.adam, EpochMetrics(graphs.size(0), self.device), self.options)
        self.active: Tensor | None = (graphs >= 0).any(-1).to(self.device)
        if bool(self.active.all()) and self.recorder is None:
            self.active = None

    def times(self) -> dict[str, float]:
        """Seconds of every phase, of the rest and of the whole step."""
        batch = self.fetch()
        inputs = self._inputs(batch)
        seconds = {"batch": self._time(self.fetch)}
        seconds |= {name: self._time(body) for name, body in self._phases(batch, inputs).items()}
        forward = self._time(self._forward)
        whole = self._time(self._whole)
        self._forward().sum().backward()  # gradients for the update
        seconds["update"] = self._time(lambda: self.adam.step(active=self.active))
        self.adam.zero_grad()
        seconds["rest"] = max(0.0, forward - sum(seconds.get(name, 0.0) for name in _FORWARD))
        seconds["backward"] = max(0.0, whole - forward - seconds["update"])
        return seconds | {"whole": whole}

    def _forward(self) -> Tensor:
        batch = self.fetch()
        total: Tensor = self.model.loss(self.model.forward_batch(batch, batch.y), batch.y, self.options).total
        return total

    def _whole(self) -> None:
        self.update(self.fetch(), self.active)
        self.adam.zero_grad()

    def _inputs(self, batch: GraphBatch) -> dict[str, Any]:
        """Inputs of each phase, after the check that the phases in sequence give the model's class capsules."""
        layer, segments = self.model.layers[0], batch.segments
        output = self.model.forward_batch(batch, batch.y)
        primary = output.primary.detach().requires_grad_()
        hop = layer.hop(primary, batch.edges, segments)
        h, mean = hop.h, None if hop.mean is None else hop.mean.unsqueeze(-2)
        first = _route(layer, h, mean, batch)
        adjacency = _coarsen(layer, first.assignment, batch)
        capsules = _above(self.model, first.capsules, adjacency, segments)
        expected = output.class_capsules
        assert batch.y is not None
        real = batch.y >= 0  # values of padded graphs are undefined
        if not torch.allclose(capsules[real], expected[real], rtol=_TOLERANCE, atol=_TOLERANCE):
            raise CheckError("bench: the phases of a step do not give the class capsules of the model.")
        inputs = {"h": h, "mean": mean, "assignment": first.assignment, "capsules": first.capsules}
        inputs |= {"adjacency": adjacency, "classes": expected}
        detached = {
            name: None if value is None else value.detach().requires_grad_(value.requires_grad)
            for name, value in inputs.items()
        }
        return detached | {"primary": primary}

    def _phases(self, batch: GraphBatch, inputs: dict[str, Any]) -> dict[str, Callable[[], object]]:
        model, layer, segments = self.model, self.model.layers[0], batch.segments
        phases: dict[str, Callable[[], object]] = {
            "primary": lambda: model.primary(batch.features, batch.edges, segments),
            "hop": lambda: layer.hop(inputs["primary"], batch.edges, segments),
            "routing": lambda: _route(layer, inputs["h"], inputs["mean"], batch),
            "coarsening": lambda: _coarsen(layer, inputs["assignment"], batch),
            "class level": lambda: _above(model, inputs["capsules"], inputs["adjacency"], segments),
        }
        if model.decoder is not None:
            phases["reconstruction"] = lambda: model.decoder(
                inputs["primary"], batch.edges, segments, class_capsules=inputs["classes"], y=batch.y
            )
        return phases

    def _time(self, body: Callable[[], object]) -> float:
        def discard_result() -> None:
            body()

        replay = discard_result if self.recorder is None else self.recorder.record(discard_result)
        return _on_gpu(replay) if self.device.type == "cuda" else _on_cpu(replay)


def _captures(model: HGCN, store: GraphStore, x: Tensor | FeatureTable) -> bool:
    return can_capture(model, store, x.x if isinstance(x, FeatureTable) else x)


def _fetcher(
    store: GraphStore, x: Tensor | FeatureTable, graphs: Tensor, device: torch.device, captured: bool
) -> Callable[[], GraphBatch]:
    """Assembles this batch as training does: padded to a bucket on the device if captured, else of exact size."""
    if not captured:
        source = batch_source(store, device)
        return lambda: source.batch(x, graphs)
    sizes = store.host_node_ptr.diff()
    num_rows = bucket_size(int(sizes[graphs.clamp_min(0)].masked_fill(graphs < 0, 0).sum(-1).max()))
    on_device = graphs.to(device)
    return lambda: collate_padded(store, x, on_device, num_rows)


def _route(layer: Any, h: Tensor, mean: Tensor | None, batch: GraphBatch) -> CapsuleLevel:
    routing = route(
        h, layer.weight, layer.bias, batch.segments, layer.routing_iterations,
        residual=mean if layer.released else None, method=layer.method,
        detach=layer.released, epsilon=RELEASED_EPSILON if layer.released else 0.0,
    )  # fmt: skip
    capsules = routing.capsules if layer.released or mean is None else routing.capsules + mean
    return CapsuleLevel(capsules, routing.assignment, None)


def _coarsen(layer: Any, assignment: Tensor, batch: GraphBatch) -> Tensor:
    adjacency = coarsen(assignment, batch.edges, batch.segments)
    return clamp_adjacency(adjacency) if layer.released else adjacency


def _above(model: Any, capsules: Tensor, adjacency: Tensor, segments: Any) -> Tensor:
    """Class capsules, from the capsules of the first level."""
    for layer in model.layers[1:]:
        level = layer.forward_dense(capsules, adjacency, segments.graph_mask)
        capsules, adjacency = level.capsules, level.adjacency
    return capsules


def _on_gpu(body: Callable[[], object]) -> float:
    body()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(_REPLAYS):
        body()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000 / _REPLAYS


def _on_cpu(body: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs, after one that is not timed."""
    body()
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < _SECONDS and len(seconds) < _MAX_RUNS):
        start = time.perf_counter()
        body()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
