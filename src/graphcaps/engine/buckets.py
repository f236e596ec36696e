"""Steps of few shapes, which need no host: on a GPU each shape is captured once and replayed.

A step has a fixed number of slots. Its batch is assembled on the device, from the order of the epoch that lies
there, into a number of slots that is the same for many steps (:func:`graphcaps.engine.plan.bucket`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphcaps.data.assemble import assemble
from graphcaps.data.store import GraphStore
from graphcaps.engine.capture import Recorder
from graphcaps.engine.plan import EpochPlan, bucket
from graphcaps.engine.step import Update

__all__ = ["BucketSteps"]


class BucketSteps:
    """An epoch as a sequence of steps of known shapes.

    Args:
        update (Update): What a step does.
        store (GraphStore): All graphs, on the device.
        x (Tensor): Features of all nodes, on the device.
        num_replicas (int): F.
        num_steps (int): Steps of an epoch S.
        batch_size (int): Graphs a step B.
        recorder (Recorder, optional): Captures a step for each shape; without one, steps run as they are.
    """

    def __init__(
        self,
        update: Update,
        store: GraphStore,
        x: Tensor,
        num_replicas: int,
        num_steps: int,
        batch_size: int,
        recorder: Recorder | None = None,
    ) -> None:
        self.update, self.store, self.x = update, store, x
        self.num_steps, self.batch_size, self.recorder = num_steps, batch_size, recorder
        # One step more than an epoch has, without graphs: it changes nothing, so it serves to warm up.
        shape = (num_replicas, (num_steps + 1) * batch_size)
        self.order = torch.full(shape, -1, dtype=torch.int64, device=x.device)
        self.offsets = torch.arange(batch_size, device=x.device)
        self.cursor = torch.zeros((), dtype=torch.int64, device=x.device)
        self.steps: dict[int, Callable[[], None]] = {}

    def run(self, plan: EpochPlan) -> None:
        """An epoch of updates; on a GPU it returns when they are launched."""
        order = plan.order.pin_memory() if self.x.is_cuda else plan.order
        self.order[:, : order.size(1)].copy_(order, non_blocking=True)
        self.cursor.zero_()
        for number, slots in enumerate(plan.slots):
            V = bucket(slots)
            if V not in self.steps:
                self.steps[V] = self._prepare(V, number)
            self.steps[V]()

    def _step(self, num_slots: int) -> None:
        graphs = self.order.index_select(1, self.cursor * self.batch_size + self.offsets)
        self.update(assemble(self.store, self.x, graphs, num_slots), (graphs >= 0).any(-1))
        self.update.adam.zero_grad()  # gradients would keep memory that the next shape can use
        self.cursor += 1

    def _prepare(self, num_slots: int, number: int) -> Callable[[], None]:
        """The step of a new shape, before step ``number`` of the epoch."""
        if self.recorder is None:
            return lambda: self._step(num_slots)
        tally = self.update.tally
        kept = [tensor.clone() for tensor in tally.tensors]
        self.cursor.fill_(self.num_steps)
        replay = self.recorder.record(lambda: self._step(num_slots))
        tally.clear()  # the step without graphs counted nothing but itself
        for tensor, value in zip(tally.tensors, kept, strict=False):  # the first step makes more tensors
            tensor.copy_(value)
        self.cursor.fill_(number)
        return replay
