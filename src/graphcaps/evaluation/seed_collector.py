"""Collects the results of groups of replicas into seeds with all their folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from graphcaps.evaluation.epoch_records import EpochRecords
from graphcaps.evaluation.graph_predictions import GraphPredictions
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.replica_groups import GroupResult, ReplicaGroup
from graphcaps.nn.capsule_use import CapsuleUse

__all__ = ["CompletedSeed", "SeedCollector"]


@dataclass(frozen=True)
class CompletedSeed:
    """All folds of one variant and seed.

    Args:
        protocol (str): ``"held-out"`` or ``"paper"``.
        variant (str): Variant as named in the replicas.
        seed (int): Seed of the training.
        curves (EpochRecords): One row per fold.
        seconds (float): Training time: this seed's share of the time of its groups.
        notes (tuple): Notes recorded during training.
        predictions (GraphPredictions, optional): Predictions at the held-out epoch, where they were kept.
        capsule_use (tuple): Capsules in use of each fold after the last epoch; empty for a model without capsules.
        peak_memory (int, optional): Largest memory of its groups, in bytes.
        hardware (str): Description of the devices of its groups.
    """

    protocol: Protocol
    variant: str
    seed: int
    curves: EpochRecords
    seconds: float
    notes: tuple[str, ...]
    predictions: GraphPredictions | None = None
    capsule_use: tuple[CapsuleUse, ...] = ()
    peak_memory: int | None = None
    hardware: str = ""


class SeedCollector:
    """Collects the events of groups and returns each seed once all its folds are trained.

    Args:
        num_folds (int): Folds of a completed seed.
        notes (list): Notes recorded before the first group.
        y (ndarray, optional): Class of each graph, ``[G]``, for the predictions of groups that have them.
    """

    def __init__(self, num_folds: int, notes: Sequence[str] = (), y: np.ndarray | None = None) -> None:
        self.num_folds, self._y = num_folds, y
        self._notes = list(notes)
        self._parts: dict[tuple[Protocol, str, int], list[_Part]] = {}

    def add(
        self, group: ReplicaGroup, result: GroupResult, peak_memory: int | None = None, hardware: str = ""
    ) -> Iterator[CompletedSeed]:
        """Adds the events of a group, and yields the seeds that it completes. Groups may come in any order.

        Args:
            group (ReplicaGroup): The group.
            result (GroupResult): Its events.
            peak_memory (int, optional): Its largest memory in bytes.
            hardware (str): Description of its device.
        """
        self._notes += result.notes
        curves = EpochRecords.from_events(result.events, group.replicas, result.epochs_run)
        seconds_per_replica = sum(event.seconds for event in result.events) / len(group.replicas)
        for run in group.runs:
            rows = [row for row, each in enumerate(group.replicas) if (each.variant, each.seed) == run]
            predictions = None
            if result.probabilities is not None and self._y is not None:
                replicas = [group.replicas[row] for row in rows]
                probabilities = [result.probabilities[row] for row in rows]
                predictions = GraphPredictions.from_replicas(replicas, probabilities, self._y)
            use = tuple(result.capsule_use[row] for row in rows) if result.capsule_use else ()
            seconds, first = seconds_per_replica * len(rows), group.replicas[rows[0]].fold
            part = _Part(first, curves.folds(rows), seconds, predictions, use, peak_memory, hardware)
            self._parts.setdefault((group.protocol, *run), []).append(part)
        completed = [key for key, parts in self._parts.items() if _num_folds(parts) == self.num_folds]
        for key in completed:
            parts = sorted(self._parts.pop(key), key=lambda part: part.first_fold)
            joined = EpochRecords.join([part.curves for part in parts])
            seconds = sum(part.seconds for part in parts)
            kept = [part.predictions for part in parts if part.predictions is not None]
            predictions = GraphPredictions.join(kept) if len(kept) == len(parts) else None
            notes = tuple(dict.fromkeys(self._notes))
            use = tuple(each for part in parts for each in part.capsule_use)
            peak = max((part.peak_memory for part in parts if part.peak_memory is not None), default=None)
            hardware = "; ".join(dict.fromkeys(part.hardware for part in parts))
            yield CompletedSeed(*key, joined, seconds, notes, predictions, use, peak, hardware)
        if not self._parts:  # notes apply to all seeds that were trained together
            self._notes.clear()


@dataclass(frozen=True, eq=False)
class _Part:
    """Some folds of a seed, trained in one group."""

    first_fold: int
    curves: EpochRecords
    seconds: float
    predictions: GraphPredictions | None
    capsule_use: tuple[CapsuleUse, ...]
    peak_memory: int | None
    hardware: str


def _num_folds(parts: Sequence[_Part]) -> int:
    return sum(part.curves.num_folds for part in parts)
