"""Checkpoints of trainings that have no record yet, in the folder of results."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from graphcaps.errors import DataError
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.replica_groups import ReplicaGroup
from graphcaps.evaluation.results_store import file_name

__all__ = ["CheckpointDir"]

_SEEDS = re.compile(r"seeds?(\d+)(?:to(\d+))?-folds?\d")


class CheckpointDir:
    """The checkpoints of one data set and variant.

    Args:
        results (Path, optional): Folder of results; without one nothing is kept.
        dataset (str): Name of the data set.
        variant (str): Name of the model in results.
    """

    def __init__(self, results: Path | None, dataset: str, variant: str) -> None:
        self.folder = None if results is None else results / "unfinished"
        self.dataset, self.variant = dataset, variant

    def path(self, group: ReplicaGroup) -> Path | None:
        """Where the checkpoint of a group is kept."""
        if self.folder is None:
            return None
        return self.folder / f"{self._start(group.protocol)}{group.name}.checkpoint"

    def refuse(self, protocols: Iterable[Protocol]) -> None:
        """An interrupted run is not overwritten by accident, whatever replicas it trained together."""
        for protocol in protocols:
            for path, _ in self._found(protocol):
                fix = "Add --resume to go on with it, or name another folder."
                raise DataError(path, "no interrupted run yet", "one", fix=fix)

    def unused(self, groups: Iterable[ReplicaGroup]) -> tuple[str, ...]:
        """A sentence on each checkpoint that none of these groups goes on from: another number ran together."""
        groups = list(groups)
        wanted = {self.path(group) for group in groups}
        return tuple(
            f"The checkpoint {path.name} was not used: other folds or seeds were trained together there."
            for protocol in dict.fromkeys(group.protocol for group in groups)
            for path, _ in self._found(protocol)
            if path not in wanted
        )

    def tidy(self, protocol: Protocol, seeds: set[int]) -> None:
        """Removes checkpoints whose seeds all have their record."""
        for path, own in self._found(protocol):
            if own <= seeds:
                with contextlib.suppress(OSError):  # the folder stays: other runs may write into it
                    path.unlink(missing_ok=True)

    def _start(self, protocol: Protocol) -> str:
        return file_name(self.dataset, self.variant, protocol, "")

    def _found(self, protocol: Protocol) -> Iterator[tuple[Path, set[int]]]:
        """Checkpoints of a protocol and their seeds."""
        if self.folder is None or not self.folder.is_dir():
            return
        start = self._start(protocol)
        for path in sorted(self.folder.glob("*.checkpoint")):
            seeds = _SEEDS.match(path.name.removeprefix(start))
            if path.name.startswith(start) and seeds is not None:
                first = int(seeds[1])
                yield path, set(range(first, int(seeds[2] or first) + 1))
