"""Checkpoints of unfinished trainings, in the folder ``unfinished`` of a results store."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from graphcaps._io.atomic_write import remove_leftovers, temporary_file
from graphcaps.errors import DataError
from graphcaps.evaluation.record import Protocol
from graphcaps.evaluation.replica_groups import ReplicaGroup
from graphcaps.evaluation.results_store import file_name

__all__ = ["CheckpointDir"]

_SEEDS = re.compile(r"seeds?(\d+)(?:to(\d+))?-folds?\d")


class CheckpointDir:
    """The checkpoints of one data set and variant.

    Args:
        results (Path, optional): Folder of results; without one no checkpoint is written.
        dataset (str): Name of the data set.
        variant (str): Name of the model in results.
        division (int): Number of the division into folds. (default: 0)
    """

    def __init__(self, results: Path | None, dataset: str, variant: str, division: int = 0) -> None:
        self.results = results
        self.folder = None if results is None else results / "unfinished"
        self.dataset, self.variant, self.division = dataset, variant, division

    def path(self, group: ReplicaGroup) -> Path | None:
        """The checkpoint file of a group; ``None`` without a folder of results."""
        if self.folder is None:
            return None
        return self.folder / f"{self._prefix(group.protocol)}{group.name}.checkpoint"

    def absolute(self) -> CheckpointDir:
        """The same folder for processes with another working directory."""
        results = None if self.results is None else self.results.absolute()
        return CheckpointDir(results, self.dataset, self.variant, self.division)

    @contextlib.contextmanager
    def marker(self) -> Iterator[Path | None]:
        """A file in the folder of results, by which other machines can tell whether they share it.

        Yields:
            Path: Its absolute path; ``None`` without a folder of results.
        """
        if self.results is None:
            yield None
            return
        self.results.mkdir(parents=True, exist_ok=True)
        with temporary_file(self.results) as path:
            yield path

    def write_problem(self) -> str:
        """Why no checkpoint can be written, as a sentence; "" if nothing is known to prevent it."""
        if self.folder is None or not self.folder.exists():
            return ""
        try:
            with tempfile.TemporaryFile(dir=self.folder):
                return ""
        except OSError as error:
            return f"No checkpoints can be written to {self.folder} ({error.strerror or error})."

    def require_none(self, protocols: Iterable[Protocol]) -> None:
        """Prevents a new run from overwriting an interrupted one, whatever replicas that one trained together.

        Raises:
            DataError: If a checkpoint of one of the protocols exists.
        """
        for protocol in protocols:
            for path, _ in self._checkpoints(protocol):
                fix = "Add --resume to continue it, or name another folder."
                raise DataError(path, "this is the checkpoint of an interrupted run", fix=fix)

    def unused_notes(self, groups: Iterable[ReplicaGroup]) -> tuple[str, ...]:
        """A note for each checkpoint that no group resumes from, because it holds a different set of replicas."""
        groups = list(groups)
        used = {self.path(group) for group in groups}
        return tuple(
            f"The checkpoint {path.name} was not used: other folds or seeds were trained together there."
            for protocol in dict.fromkeys(group.protocol for group in groups)
            for path, _ in self._checkpoints(protocol)
            if path not in used
        )

    def remove_finished(self, protocol: Protocol, finished_seeds: set[int]) -> None:
        """Removes the checkpoints whose seeds all have a record, and the folder if it is empty then.

        Another run that is about to write into the folder makes it again.
        """
        for path, seeds in self._checkpoints(protocol):
            if seeds <= finished_seeds:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        if self.folder is not None:
            with contextlib.suppress(OSError):  # missing, or not empty
                self.folder.rmdir()

    def remove_leftovers(self) -> None:
        """Removes the partial checkpoints and records of killed processes."""
        for folder in (self.results, self.folder):
            if folder is not None:
                remove_leftovers(folder)

    def _prefix(self, protocol: Protocol) -> str:
        division = f"division{self.division}-" if self.division else ""
        return file_name(self.dataset, self.variant, protocol, division)

    def _checkpoints(self, protocol: Protocol) -> Iterator[tuple[Path, set[int]]]:
        """The checkpoints of a protocol, each with its seeds."""
        if self.folder is None or not self.folder.is_dir():
            return
        prefix = self._prefix(protocol)
        for path in sorted(self.folder.glob("*.checkpoint")):
            seeds = _SEEDS.match(path.name.removeprefix(prefix))
            if path.name.startswith(prefix) and seeds is not None:
                first = int(seeds[1])
                yield path, set(range(first, int(seeds[2] or first) + 1))
