"""Replicas that are divided among several trainers, with the interface of one trainer of all of them."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.nn.capsule_use import CapsuleUse
from graphcaps.training.replicas import Replica, join_replicas, slice_replicas
from graphcaps.training.trainer import EpochEnd

__all__ = ["DividedTrainer", "divide_replicas"]


def divide_replicas(replicas: list[Replica], parts: int) -> list[list[Replica]]:
    """The replicas in ``parts`` shards of nearly equal size, in order."""
    bounds = [len(replicas) * part // parts for part in range(parts + 1)]
    return [replicas[first:end] for first, end in pairwise(bounds)]


class DividedTrainer(ABC):
    """Trains shards of the replicas, each with a :class:`Trainer` of its own.

    A subclass states where these trainers are (:meth:`_call_all`) and how they are closed.

    Args:
        shards (list): The replicas of each trainer.
        config (TrainConfig): Hyper-parameters of the training.
    """

    def __init__(self, shards: list[list[Replica]], config: TrainConfig) -> None:
        self.config, self.shards, self.epoch = config, shards, 0
        self.replicas = [replica for shard in shards for replica in shard]

    @abstractmethod
    def _call_all(self, name: str, arguments: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Calls a method of every trainer and returns the results, in the order of the shards.

        Args:
            name (str): Name of the method.
            arguments (list, optional): Arguments for each trainer. (default: none)
        """

    @abstractmethod
    def close(self) -> None:
        """Releases memory and processes. No epoch can follow."""

    def run_epoch(self) -> EpochEnd:
        """One epoch of all replicas; metrics are in the order of :attr:`replicas`."""
        began = time.perf_counter()
        events: list[EpochEnd] = self._call_all("run_epoch")
        self.epoch = events[0].epoch
        metrics = {
            entry.name: self._concatenate([getattr(event, entry.name) for event in events])
            for entry in fields(EpochEnd)
            if entry.name not in ("epoch", "epochs", "seconds", "loss_terms")
        }
        terms = {
            name: self._concatenate([event.loss_terms[name] for event in events])
            for name in events[0].loss_terms
        }
        seconds = time.perf_counter() - began
        return EpochEnd(self.epoch, self.config.epochs, seconds, **metrics, loss_terms=terms)

    def scores(self) -> list[Tensor]:
        """As :meth:`Trainer.scores`."""
        return [rows for shard in self._call_all("scores") for rows in shard]

    def capsule_use(self) -> list[CapsuleUse]:
        """As :meth:`Trainer.capsule_use`."""
        return [use for shard in self._call_all("capsule_use") for use in shard]

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.weights`; a copy."""
        return join_replicas(self._call_all("weights"))

    def keep(self, replicas: Sequence[int]) -> None:
        """As :meth:`Trainer.keep`: every trainer keeps weights of its own replicas."""
        self._call_all(
            "keep", [([f - first for f in replicas if first <= f < end],) for first, end in self._bounds()]
        )

    def kept(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.kept`; a copy."""
        return join_replicas(self._call_all("kept"))

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.state` of all replicas together; a copy."""
        states = [
            {name: value for name, value in state.items() if name != "epoch"}
            for state in self._call_all("state")
        ]
        return join_replicas(states) | {"epoch": torch.tensor(self.epoch)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continues from a result of :meth:`state`, also of a :class:`Trainer` of all replicas."""
        self.epoch = int(state["epoch"])
        values = {name: value for name, value in state.items() if name != "epoch"}
        parts = [slice_replicas(values, first, end) for first, end in self._bounds()]
        self._call_all("load_state", [(part | {"epoch": state["epoch"]},) for part in parts])

    def _bounds(self) -> list[tuple[int, int]]:
        """First replica of each trainer, and the one after its last."""
        ends = [*accumulate(map(len, self.shards))]
        return [*pairwise((0, *ends))]

    def _concatenate(self, shards: list[list[float]]) -> list[float]:
        """One metric of all replicas; NaN for the replicas of a shard that lacks it, where another shard has it."""
        if not any(shards):
            return []
        sizes = map(len, self.shards)
        return [
            value for shard, size in zip(shards, sizes, strict=True) for value in shard or [math.nan] * size
        ]
