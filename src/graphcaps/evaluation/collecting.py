"""From groups of replicas back to seeds: a record is whole when all its folds are there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphcaps.engine.fit import EpochEnd
from graphcaps.evaluation.curves import EpochRecords
from graphcaps.evaluation.groups import ReplicaGroup
from graphcaps.evaluation.record import Protocol

__all__ = ["Collector", "WholeSeed"]


@dataclass(frozen=True)
class WholeSeed:
    """All folds of one variant and seed.

    Args:
        protocol (str): How it was trained.
        variant (str): As the replicas name it.
        seed (int): Its seed.
        curves (EpochRecords): A row per fold.
        seconds (float): Its share of the groups that it was trained in.
        notes (tuple): What was noted while it was trained.
    """

    protocol: Protocol
    variant: str
    seed: int
    curves: EpochRecords
    seconds: float
    notes: tuple[str, ...]


class Collector:
    """Takes what groups give and hands out seeds that are whole.

    Args:
        num_folds (int): Folds of a whole seed.
        notes (list): What was noted before the first group.
    """

    def __init__(self, num_folds: int, notes: Sequence[str] = ()) -> None:
        self.num_folds = num_folds
        self._notes = list(notes)
        self._parts: dict[tuple[Protocol, str, int], list[tuple[EpochRecords, float]]] = {}

    def add(
        self, group: ReplicaGroup, events: Sequence[EpochEnd], notes: Sequence[str]
    ) -> Iterator[WholeSeed]:
        """Takes the events of a group, and gives the seeds that it completes."""
        self._notes += notes
        curves = EpochRecords.from_events(events, group.replicas)
        share = sum(event.seconds for event in events) / len(group.replicas)
        for run in group.runs:
            rows = [row for row, each in enumerate(group.replicas) if (each.variant, each.seed) == run]
            part = (curves.folds(rows), share * len(rows))
            self._parts.setdefault((group.protocol, *run), []).append(part)
        whole = [key for key, parts in self._parts.items() if _rows(parts) == self.num_folds]
        for key in whole:
            parts = self._parts.pop(key)
            joined = EpochRecords.join([part for part, _ in parts])
            seconds = sum(seconds for _, seconds in parts)
            yield WholeSeed(*key, joined, seconds, tuple(dict.fromkeys(self._notes)))
        if not self._parts:  # what is noted belongs to the seeds that were trained together
            self._notes.clear()


def _rows(parts: Sequence[tuple[EpochRecords, float]]) -> int:
    return sum(curves.num_folds for curves, _ in parts)
