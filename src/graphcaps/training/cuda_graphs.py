"""CUDA graphs: capture of training steps and their replay.

Batches are rounded up to a few sizes (:func:`graphcaps.training.batch_schedule.bucket_size`). Each size is captured
once. A step assembles its batch on the device, from the order of the epoch that is stored there, so that a replay
needs no host–device synchronisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor

from graphcaps.data.batching import batch_from_layout
from graphcaps.data.store import GraphStore
from graphcaps.nn.graph_model import GraphModel
from graphcaps.ops._triton.branches import fork, use_side_streams
from graphcaps.ops._triton.dispatch import kernels_available
from graphcaps.ops.batch_layout.layout import layout_batch
from graphcaps.profiling import STEP, profiled
from graphcaps.training.batch_schedule import EpochSchedule, bucket_size
from graphcaps.training.cuda_streams import CAPTURE_PRIORITY, lease_side_streams, lease_stream
from graphcaps.training.sample_weight import batch_weights
from graphcaps.training.step import TrainingStep
from graphcaps.types import FeatureTable

__all__ = ["BucketedRunner", "CudaGraphRecorder", "StepSize", "can_capture"]

_CURSOR = 2
"""Side stream that counts the step: its next launch, which draws the dropout, is small."""


def can_capture(model: GraphModel, store: GraphStore, x: Tensor) -> bool:
    """Whether a step of this model can be captured: on a GPU with kernels, without host–device synchronisation.

    Edge weights must be float32 without a gradient, because the torch form of sums over neighbours synchronises.
    """
    if x.device.type != "cuda" or store.device != x.device or not kernels_available(x, *model.parameters()):
        return False
    weight = store.edge_weight
    constant = weight is None or (weight.dtype == torch.float32 and not weight.requires_grad)
    return constant and model.capturable


class CudaGraphRecorder:
    """Captures functions as CUDA graphs that share one memory pool.

    Replays must not overlap, and results must be written to tensors that exist before the capture. The pool lives as
    long as any of the replays, so dropping all of them releases the memory.
    """

    def __init__(self) -> None:
        self._lease = lease_stream(priority=CAPTURE_PRIORITY)
        self._side_leases = lease_side_streams()
        self._replays: WeakSet[Callable[[], None]] = WeakSet()
        self._pool: Any = None

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        """Captures ``body`` and returns a function that replays it.

        ``body`` runs once before the capture: kernels are compiled and libraries allocate their workspaces then,
        which is not allowed during a capture.
        """
        current, stream = torch.cuda.current_stream(), self._lease.stream
        stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            body()
            stream.synchronize()
            graph.capture_begin(pool=self._shared_pool(), capture_error_mode="thread_local")
            try:
                with use_side_streams([lease.stream for lease in self._side_leases]):
                    body()
            finally:
                graph.capture_end()
        current.wait_stream(stream)
        torch.cuda.empty_cache()  # memory of the warm-up run; replays use the pool

        def replay() -> None:
            graph.replay()

        # The graph reads tensors that the closure refers to, and the cuBLAS workspaces of the streams: all live as long
        # as the graph.
        replay.body, replay.leases = body, (self._lease, *self._side_leases)  # type: ignore[attr-defined]
        self._replays.add(replay)
        return replay

    def _shared_pool(self) -> Any:
        """The pool of the live replays. A pool is destroyed with its last graph and cannot be used again, so without
        live replays a new pool is created."""
        if self._pool is None or not self._replays:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool


class StepSize(NamedTuple):
    """What the shapes of a captured step depend on.

    Args:
        num_rows (int): Number of rows of a replica.
        max_size (int): Upper bound of the number of nodes of its largest graph.
    """

    num_rows: int
    max_size: int


class BucketedRunner:
    """Runs an epoch with batches that are padded to a few sizes; on a GPU each size is captured once and replayed.

    Args:
        step (TrainingStep): Applied to every batch.
        store (GraphStore): All graphs, on the device.
        x (Tensor or FeatureTable): Features of all nodes, on the device.
        num_replicas (int): Number of replicas F.
        num_steps (int): Steps per epoch S.
        batch_size (int): Graphs per step B.
        recorder (CudaGraphRecorder, optional): Captures the step of each size; without it steps run eagerly.
        weights (Tensor, optional): Weight of each graph, on the device, ``[F, G]``. (default: 1 each)
    """

    def __init__(
        self,
        step: TrainingStep,
        store: GraphStore,
        x: Tensor | FeatureTable,
        num_replicas: int,
        num_steps: int,
        batch_size: int,
        recorder: CudaGraphRecorder | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.step, self.store, self.x, self.weights = step, store, x, weights
        self.num_steps, self.batch_size, self.recorder = num_steps, batch_size, recorder
        # One more step than an epoch has, without graphs: it changes nothing and serves as warm-up.
        shape = (num_replicas, (num_steps + 1) * batch_size)
        self.order = torch.full(shape, -1, dtype=torch.int64, device=store.device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=store.device)
        self.steps: dict[StepSize, Callable[[], None]] = {}

    def run(self, schedule: EpochSchedule) -> None:
        """Runs all steps of an epoch; on a GPU it returns when they are launched."""
        order = schedule.order.pin_memory() if self.order.is_cuda else schedule.order
        self.order[:, : order.size(1)].copy_(order, non_blocking=True)
        sizes = [self._size(*each) for each in zip(schedule.num_rows, schedule.max_sizes, strict=True)]
        # Largest first: the smaller captures then fit into memory that the pool already has.
        for size in sorted(set(sizes) - set(self.steps), reverse=True):
            self.steps[size] = self._prepare(size)
        self.cursor.zero_()
        for size in sizes:
            self.steps[size]()

    def run_largest(self, schedule: EpochSchedule) -> None:
        """Runs the largest step of an epoch once, eagerly and without graphs."""
        sizes = zip(schedule.num_rows, schedule.max_sizes, strict=True)
        self.cursor.fill_(self.num_steps)
        self._step(max(self._size(*each) for each in sizes))

    def _size(self, num_rows: int, max_size: int) -> StepSize:
        """The size of a step with this number of rows and this largest graph."""
        largest = self.store.max_size
        if self.step.model.pads_to_largest:
            largest = min(largest, bucket_size(max_size))
        return StepSize(bucket_size(num_rows), largest)

    def _step(self, size: StepSize) -> None:
        with profiled(STEP):
            with profiled("batch"):
                layout = layout_batch(
                    self.store.node_ptr, self.order, size.num_rows,
                    classes=self.store.y, cursor=self.cursor, batch_size=self.batch_size,
                )  # fmt: skip
                batch = batch_from_layout(self.store, self.x, layout, max_size=size.max_size)
            with fork(stream=_CURSOR) as counted:  # nothing else of this step reads it
                self.cursor += 1
            weights = None if self.weights is None else batch_weights(self.weights, layout.graphs)
            self.step(batch, layout.active, weights)
            counted.join()

    def _prepare(self, size: StepSize) -> Callable[[], None]:
        """The step for a new size. Called before the epoch that needs it."""
        if self.recorder is None:
            return lambda: self._step(size)
        self.cursor.fill_(self.num_steps)
        replay = self.recorder.record(lambda: self._step(size))
        self.step.metrics.clear()  # the warm-up step was counted, and the epoch has not begun
        return replay
