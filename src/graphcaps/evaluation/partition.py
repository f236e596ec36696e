"""Folds that are not the plain ones: how a record knows them again, and one given split in place of folds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.splits.folds import Folds, Split, label_checksum, split_codes
from graphcaps.errors import ArgumentError, DataError
from graphcaps.training.holdout import label_column_hint, validation_split

__all__ = ["KINDS", "Partition", "SingleSplit", "partition_by_groups", "partition_by_split", "single_split"]

KINDS = ("groups", "split")
_SHARE = 0.1  # of every class of the training part, where a split has no graphs to choose by


@dataclass(frozen=True)
class Partition:
    """By what folds other than the plain ones are known again.

    Args:
        kind (str): ``"groups"``: no group of graphs stands in two folds; ``"split"``: one given split, no folds.
        count (int): Number of groups, or of parts.
        sha256 (str): Of the group, or the part, of each graph; what groups are called does not count.
        by (str): Where they come from, in words.
        drawn (int): Graphs of the training part that were drawn to choose by, where the split has no validation
            part. It does not count for ``mark``: split and seed of the folds leave one draw.
    """

    kind: str
    count: int
    sha256: str
    by: str = "given"
    drawn: int = 0

    @property
    def sentence(self) -> str:
        if self.kind == "split":
            drawn = f", {self.drawn:,} training graphs drawn to choose by" if self.drawn else ""
            return f"One split ({self.by}{drawn}) in place of folds."
        return f"Folds keep groups together: {self.count:,} groups ({self.by})."

    @property
    def mark(self) -> str:
        """What two records must share to stand together; where it comes from does not count."""
        return f"{self.count:,} {'parts' if self.kind == 'split' else 'groups'} {self.sha256[:16]}"

    @classmethod
    def from_dict(cls, values: Any, where: str) -> Partition:
        """Reads ``vars()`` of a partition."""
        found = values if isinstance(values, Mapping) else {}
        texts = [found.get(name) for name in ("kind", "sha256", "by")]
        counts = [found.get("count"), found.get("drawn")]
        numbers = all(type(count) is int for count in counts)
        if not (numbers and all(isinstance(text, str) for text in texts) and texts[0] in KINDS):
            raise DataError(where, "kind, count, sha256, by and drawn under 'partition'", repr(values)[:60])
        return cls(found["kind"], found["count"], found["sha256"], found["by"], found["drawn"])


def partition_by_groups(groups: np.ndarray, by: str) -> Partition | None:
    """The mark of folds by these groups; ``None`` where each graph stands alone, which gives the plain folds."""
    _, first, ids = np.unique(groups.astype(str), return_index=True, return_inverse=True)
    if len(first) == len(groups):
        return None
    order = np.argsort(np.argsort(first))  # numbered by their first graph, whatever they are called
    return Partition("groups", len(first), _digest(order[ids.reshape(-1)]), by)


def partition_by_split(parts: Tensor, by: str) -> Partition:
    """The mark of a split by the part of each graph."""
    return Partition("split", int((parts.unique() >= 0).sum()), _digest(parts.numpy()), by)


def _digest(numbers: np.ndarray) -> str:
    return hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class SingleSplit(Folds):
    """One split where folds are expected; ``assignment`` is 0 for the graphs that test and −1 for the others."""

    split: Split | None = None

    def paper(self, fold: int) -> Split:
        """Learns from all graphs that do not test."""
        split = self._split(fold)
        if split.validation is None:
            return split
        return Split(torch.cat((split.train, split.validation)).sort().values, None, split.test, split.name)

    def held_out(self, fold: int) -> Split:
        """The split as given, or with the draw of :func:`single_split`."""
        return self._split(fold)

    def _split(self, fold: int) -> Split:
        self._check_fold("SingleSplit", fold)
        assert self.split is not None
        return self.split


def single_split(
    split: Split, y: Tensor, seed: int, *, chooses: bool = True, class_names: Sequence[str] = ()
) -> tuple[SingleSplit, Partition]:
    """A split as folds, one of them, and its mark.

    Args:
        split (Split): Its parts.
        y (Tensor): Class of each graph, ``[G]``.
        seed (int): Of the draw.
        chooses (bool): Whether graphs to choose by are needed. Where the split has none, a tenth of every class of
            its training part is drawn. (default: ``True``)
        class_names (sequence): What the classes are called in messages. (default: their numbers)

    Raises:
        ArgumentError: If a graph stands in two parts or does not exist, a part is empty, or a class has a single
            graph to draw from.
    """
    parts = split_codes(split, y.numel())
    mark = partition_by_split(parts, split.name)
    if chooses and not (parts == 1).any():
        split = _with_draw(split, y, seed, class_names)
        assert split.validation is not None
        parts[split.validation] = 1
        mark = replace(mark, drawn=split.validation.numel())
    counts = [int((parts == number).sum()) for number in range(3)]
    drawn = (
        f" (a tenth, at least one graph, of every class of the training part; seed {seed})"
        if mark.drawn
        else ""
    )
    note = (
        f"One split ({split.name}): {counts[0]:,} graphs to learn from, {counts[1]:,} to choose by{drawn}, "
    )
    note += f"{counts[2]:,} to test on."
    tests = torch.where(parts == 2, 0, -1)
    sizes = tuple(torch.bincount(y.cpu().long()).tolist())
    return SingleSplit(tests, seed, 1, sizes, label_checksum(y), (note,), split), mark


def _with_draw(split: Split, y: Tensor, seed: int, class_names: Sequence[str]) -> Split:
    """A split whose training part is parted in two."""
    known = split.train.sort().values
    try:
        drawn = validation_split(y.cpu()[known], _SHARE, seed, class_names)
    except ArgumentError as error:
        fix = label_column_hint(y) or "Add graphs to choose the epoch by, or choose the protocol 'paper'."
        got = f"{error.got} ({split.name})"
        raise ArgumentError("cross_validate", "split", error.expected, got, fix) from error
    assert drawn.validation is not None
    return replace(split, train=known[drawn.train], validation=known[drawn.validation])
