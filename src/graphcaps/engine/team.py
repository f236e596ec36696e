"""Several trainers side by side: on a CPU, replicas are what is worth sharing among its cores.

The operations of a training on small graphs are too short to be split among threads. Half of the replicas on
one core and half on the other keeps both busy.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import fields
from itertools import pairwise
from threading import Barrier

import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.engine.config import TrainConfig
from graphcaps.engine.fit import EpochEnd, Trainer
from graphcaps.engine.replicas import TRUNK, Replica, stack_replicas

__all__ = ["Team", "gather_trainer"]

MOST_WORKERS = 4
"""Trainers side by side at most: they share one interpreter, which runs one of them at a time."""


class Team:
    """Trainers of a part of the replicas each, with the interface of one :class:`Trainer` of all of them.

    Args:
        trainers (list): Trainers of the same configuration, none of which shares a tensor that is written.
        threads (int): Threads for all of them.
    """

    def __init__(self, trainers: list[Trainer], threads: int) -> None:
        self.trainers = trainers
        self.config = trainers[0].config
        self.replicas = [replica for trainer in trainers for replica in trainer.replicas]
        count = len(trainers)
        each = max(1, threads // count)
        self._pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(each,))
        # What a worker sets for itself also becomes the default of threads that start later: so all of them
        # start now, and the default is set back.
        together = Barrier(count)
        wait([self._pool.submit(together.wait) for _ in range(count)])
        torch.set_num_threads(threads)

    @property
    def epoch(self) -> int:
        return self.trainers[0].epoch

    def run_epoch(self) -> EpochEnd:
        """One epoch of all replicas; their figures stand in the order of :attr:`replicas`."""
        began = time.perf_counter()
        running: list[Future[EpochEnd]] = []
        try:
            for trainer in self.trainers:
                running.append(self._pool.submit(trainer.run_epoch))
            events = [future.result() for future in running]
        except BaseException:
            for trainer in self.trainers:  # no worker goes on behind the back of who interrupted
                trainer.stop()
            wait(running)
            raise
        joined = {
            entry.name: self._join([getattr(event, entry.name) for event in events])
            for entry in fields(EpochEnd)
            if entry.name not in ("epoch", "epochs", "seconds")
        }
        return EpochEnd(self.epoch, self.config.epochs, time.perf_counter() - began, **joined)

    def _join(self, parts: list[list[float]]) -> list[float]:
        """One figure of all replicas; NaN for those of a trainer that has none, where another has."""
        if not any(parts):
            return []
        sizes = [len(trainer.replicas) for trainer in self.trainers]
        return [value for part, size in zip(parts, sizes, strict=True) for value in part or [math.nan] * size]

    def close(self) -> None:
        """As :meth:`Trainer.close`, of all."""
        self._pool.shutdown()
        for trainer in self.trainers:
            trainer.close()

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.state` of all replicas together."""
        states = [trainer.state() for trainer in self.trainers]
        joined = {name: torch.cat([state[name] for state in states]) for name in states[0] if name != "epoch"}
        return joined | {"epoch": states[0]["epoch"]}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Goes on where :meth:`state` was taken, also that of one trainer of all replicas."""
        first = 0
        for trainer in self.trainers:
            end = first + len(trainer.replicas)
            own = {name: value[first:end] for name, value in state.items() if name != "epoch"}
            trainer.load_state(own | {"epoch": state["epoch"]})
            first = end


def gather_trainer(
    make: Callable[[tuple[int, ...]], nn.Module],
    store: GraphStore,
    x: Tensor,
    replicas: list[Replica],
    config: TrainConfig,
    device: torch.device,
) -> Trainer | Team:
    """A trainer for these replicas on this device: one, or on a CPU of several threads a team."""

    def trainer(part: list[Replica]) -> Trainer:
        return Trainer(stack_replicas(make, part).to(device), store, x, part, config)

    threads = torch.get_num_threads()
    workers = min(MOST_WORKERS, threads, len(replicas)) if device.type == "cpu" else 1
    # A trunk keeps its replicas under names, not along an axis.
    if workers == 1 or any(TRUNK in name for name in stack_replicas(make, replicas[:1]).state_dict()):
        return trainer(replicas)
    bounds = [len(replicas) * worker // workers for worker in range(workers + 1)]
    return Team([trainer(replicas[first:end]) for first, end in pairwise(bounds)], threads)
