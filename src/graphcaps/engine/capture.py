"""Steps captured as CUDA graphs: the host replays them and is asked nothing.

A captured step has fixed shapes. Batches are assembled inside it, from the order of the epoch that lies on the
device, into a number of slots that is the same for many steps (:func:`graphcaps.engine.plan.bucket`): one
graph per number is captured, when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphcaps.data.assemble import assemble
from graphcaps.data.store import GraphStore
from graphcaps.engine.plan import EpochPlan, bucket
from graphcaps.engine.step import Update
from graphcaps.ops.kernels import kernels_serve

__all__ = ["CapturedSteps", "can_capture", "capture"]


def can_capture(model: Any, store: GraphStore, x: Tensor) -> bool:
    """Whether a step of this model can be captured: on a GPU with kernels, and no part of it asks the host."""
    if x.device.type != "cuda" or store.device != x.device or not kernels_serve(x, *model.parameters()):
        return False
    return store.edge_weight is None and bool(getattr(model, "capturable", False))


def capture(body: Callable[[], None], stream: Any, pool: Any) -> Callable[[], None]:
    """A function that does what ``body`` does, replayed; ``body`` itself runs once before.

    The run before compiles kernels and makes libraries allocate what they need, which no capture may do.
    """
    current = torch.cuda.current_stream()
    stream.wait_stream(current)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        body()
        stream.synchronize()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            body()
        finally:
            graph.capture_end()
    current.wait_stream(stream)
    return graph.replay


class CapturedSteps:
    """An epoch as a sequence of replays.

    Args:
        update (Update): What a step does.
        store (GraphStore): All graphs, on the GPU.
        x (Tensor): Features of all nodes, on the GPU.
        num_replicas (int): F.
        num_steps (int): Steps of an epoch S.
        batch_size (int): Graphs a step B.
    """

    def __init__(
        self, update: Update, store: GraphStore, x: Tensor, num_replicas: int, num_steps: int, batch_size: int
    ) -> None:
        self.update, self.store, self.x = update, store, x
        self.num_steps, self.batch_size = num_steps, batch_size
        # One step more than an epoch has, without graphs: it changes nothing, so it serves to warm up.
        shape = (num_replicas, (num_steps + 1) * batch_size)
        self.order = torch.full(shape, -1, dtype=torch.int64, device=x.device)
        self.offsets = torch.arange(batch_size, device=x.device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=x.device)
        self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        self.replays: dict[int, Callable[[], None]] = {}

    def run(self, plan: EpochPlan) -> None:
        """An epoch of updates; returns when they are launched."""
        self.order[:, : plan.order.size(1)].copy_(plan.order.pin_memory(), non_blocking=True)
        self.cursor.zero_()
        for step, slots in enumerate(plan.slots):
            V = bucket(slots)
            if V not in self.replays:
                self.replays[V] = self._capture(V, step)
            self.replays[V]()

    def _step(self, num_slots: int) -> None:
        graphs = self.order.index_select(1, self.cursor * self.batch_size + self.offsets)
        self.update(assemble(self.store, self.x, graphs, num_slots), (graphs >= 0).any(-1))
        self.update.adam.zero_grad()  # gradients would keep memory that the next capture can use
        self.cursor += 1

    def _capture(self, num_slots: int, step: int) -> Callable[[], None]:
        tally = self.update.tally
        kept = [tensor.clone() for tensor in tally.tensors]
        self.cursor.fill_(self.num_steps)
        replay = capture(lambda: self._step(num_slots), self.stream, self.pool)
        tally.clear()  # the step without graphs counted nothing but itself
        for tensor, value in zip(tally.tensors, kept, strict=False):  # the first step makes more tensors
            tensor.copy_(value)
        self.cursor.fill_(step)
        return replay
