"""Steps of few shapes, which need no host: on a GPU each shape is captured once and replayed.

A step has a fixed number of slots. Its batch is assembled on the device, from the order of the epoch that lies
there, into a number of slots that is the same for many steps (:func:`graphcaps.training.batch_schedule.bucket`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from graphcaps.data.batching import batch_from_layout
from graphcaps.data.store import GraphStore
from graphcaps.ops._triton.dispatch import kernels_serve
from graphcaps.ops.batch_layout.layout import lay_out
from graphcaps.training.batch_schedule import EpochPlan, bucket
from graphcaps.training.step import Update
from graphcaps.types import FeatureTable

__all__ = ["BucketSteps", "Recorder", "can_capture"]


def can_capture(model: Any, store: GraphStore, x: Tensor) -> bool:
    """Whether a step of this model can be captured: on a GPU with kernels, and no part of it asks the host."""
    if x.device.type != "cuda" or store.device != x.device or not kernels_serve(x, *model.parameters()):
        return False
    return store.edge_weight is None and bool(getattr(model, "capturable", False))


class Recorder:
    """Captures functions, one after another, into one pool of memory.

    Replays must not overlap, and what a function leaves behind lies in tensors made before. The pool lives as
    long as any of the replays does, so that letting go of them gives the memory back.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self._replays: WeakSet[Callable[[], None]] = WeakSet()
        self._pool: Any = None

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        """A function that does what ``body`` does, replayed; ``body`` itself runs once before.

        That run compiles kernels and makes libraries allocate what they need, which no capture may do.
        """
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            body()
            self.stream.synchronize()
            graph.capture_begin(pool=self._shared_pool(), capture_error_mode="thread_local")
            try:
                body()
            finally:
                graph.capture_end()
        current.wait_stream(self.stream)
        torch.cuda.empty_cache()  # what the run before took; replays have the pool

        def replay() -> None:
            graph.replay()

        # The graph reads what the function holds on to: both live as long as the other.
        replay.body = body  # type: ignore[attr-defined]
        self._replays.add(replay)
        return replay

    def _shared_pool(self) -> Any:
        """The pool of the replays that are left. A pool dies with its last graph and refuses another one, so where
        none is left there has to be a new pool."""
        if self._pool is None or not self._replays:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool


class BucketSteps:
    """An epoch as a sequence of steps of known shapes.

    Args:
        update (Update): What a step does.
        store (GraphStore): All graphs, on the device.
        x (Tensor or FeatureTable): Features of all nodes, on the device.
        num_replicas (int): F.
        num_steps (int): Steps of an epoch S.
        batch_size (int): Graphs a step B.
        recorder (Recorder, optional): Captures a step for each shape; without one, steps run as they are.
    """

    def __init__(
        self,
        update: Update,
        store: GraphStore,
        x: Tensor | FeatureTable,
        num_replicas: int,
        num_steps: int,
        batch_size: int,
        recorder: Recorder | None = None,
    ) -> None:
        self.update, self.store, self.x = update, store, x
        self.num_steps, self.batch_size, self.recorder = num_steps, batch_size, recorder
        # One step more than an epoch has, without graphs: it changes nothing, so it serves to warm up.
        shape = (num_replicas, (num_steps + 1) * batch_size)
        self.order = torch.full(shape, -1, dtype=torch.int64, device=store.device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=store.device)
        self.steps: dict[int, Callable[[], None]] = {}

    def run(self, plan: EpochPlan) -> None:
        """An epoch of updates; on a GPU it returns when they are launched."""
        order = plan.order.pin_memory() if self.order.is_cuda else plan.order
        self.order[:, : order.size(1)].copy_(order, non_blocking=True)
        shapes = [bucket(slots) for slots in plan.slots]
        # The largest first: what it takes is then cut up for the others, which need no memory of their own.
        for V in sorted(set(shapes) - set(self.steps), reverse=True):
            self.steps[V] = self._prepare(V)
        self.cursor.zero_()
        for V in shapes:
            self.steps[V]()

    def _step(self, num_slots: int) -> None:
        laid = lay_out(
            self.store.node_ptr, self.order, num_slots,
            classes=self.store.y, cursor=self.cursor, batch_size=self.batch_size,
        )  # fmt: skip
        self.update(batch_from_layout(self.store, self.x, laid), laid.active)
        self.update.adam.zero_grad()  # gradients would keep memory that the next shape can use
        self.cursor += 1

    def _prepare(self, num_slots: int) -> Callable[[], None]:
        """The step of a new shape, before an epoch in which it is needed."""
        if self.recorder is None:
            return lambda: self._step(num_slots)
        self.cursor.fill_(self.num_steps)
        replay = self.recorder.record(lambda: self._step(num_slots))
        self.update.tally.clear()  # the epoch has not begun, and the step without graphs counted itself
        return replay
