"""Folds by groups and fixed splits, and the fingerprint by which records identify them.

Plain stratified folds have no :class:`Partition`.
"""

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
_VALIDATION_SHARE = 0.1  # of every class of the training set, for a split without validation set


@dataclass(frozen=True)
class Partition:
    """Identifies folds by groups, or a fixed split.

    Args:
        kind (str): ``"groups"``: graphs of one group are in the same fold; ``"split"``: a fixed split, no folds.
        count (int): Number of groups, or of sets of the split.
        sha256 (str): Checksum of the group, or set, of each graph; independent of the names of the groups.
        by (str): Origin of groups or split, in words.
        drawn (int): Validation graphs drawn from the training set because the split has no validation set. Not part
            of ``fingerprint``: the split and the seed of the folds determine the draw.
    """

    kind: str
    count: int
    sha256: str
    by: str = "given"
    drawn: int = 0

    @property
    def sentence(self) -> str:
        """The partition in one sentence, for reports."""
        if self.kind == "split":
            drawn = f", {self.drawn:,} training graphs drawn for validation" if self.drawn else ""
            return f"One split ({self.by}{drawn}) in place of folds."
        return f"Folds keep groups together: {self.count:,} groups ({self.by})."

    @property
    def fingerprint(self) -> str:
        """Equal for records that can be compared; independent of the origin."""
        return f"{self.count:,} {'parts' if self.kind == 'split' else 'groups'} {self.sha256[:16]}"

    @classmethod
    def from_dict(cls, values: Any, where: str) -> Partition:
        """Reads ``vars()`` of a partition.

        Raises:
            DataError: If an entry is missing or of the wrong type.
        """
        entries = values if isinstance(values, Mapping) else {}
        texts = [entries.get(name) for name in ("kind", "sha256", "by")]
        counts = [entries.get("count"), entries.get("drawn")]
        integers = all(type(count) is int for count in counts)
        if not (integers and all(isinstance(text, str) for text in texts) and texts[0] in KINDS):
            raise DataError(where, "kind, count, sha256, by and drawn under 'partition'", repr(values)[:60])
        return cls(*(entries[name] for name in ("kind", "count", "sha256", "by", "drawn")))


def partition_by_groups(groups: np.ndarray, by: str) -> Partition | None:
    """The partition by these groups; ``None`` if every graph is a group of its own, which gives plain folds."""
    _, first, ids = np.unique(groups.astype(str), return_index=True, return_inverse=True)
    if len(first) == len(groups):
        return None
    order = np.argsort(np.argsort(first))  # numbered by first occurrence, independent of names
    return Partition("groups", len(first), _digest(order[ids.reshape(-1)]), by)


def partition_by_split(codes: Tensor, by: str) -> Partition:
    """The partition of a split, from the set of each graph."""
    return Partition("split", int((codes.unique() >= 0).sum()), _digest(codes.numpy()), by)


def _digest(numbers: np.ndarray) -> str:
    return hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class SingleSplit(Folds):
    """A fixed split with the interface of folds; ``assignment`` is 0 for test graphs and −1 for all others."""

    split: Split | None = None

    def paper(self, fold: int) -> Split:
        """Trains on the training and the validation set."""
        split = self._split(fold)
        if split.validation is None:
            return split
        return Split(torch.cat((split.train, split.validation)).sort().values, None, split.test, split.name)

    def held_out(self, fold: int) -> Split:
        """The split, with the validation set drawn by :func:`single_split` if it had none."""
        return self._split(fold)

    def _split(self, fold: int) -> Split:
        self._check_fold("SingleSplit", fold)
        assert self.split is not None
        return self.split


def single_split(
    split: Split, y: Tensor, seed: int, *, with_validation: bool = True, class_names: Sequence[str] = ()
) -> tuple[SingleSplit, Partition]:
    """A fixed split as a single fold, and its partition.

    Args:
        split (Split): Training, validation and test set.
        y (Tensor): Class of each graph, ``[G]``.
        seed (int): Seed of the draw.
        with_validation (bool): Whether a validation set is needed. If the split has none, a tenth of every class of
            its training set is drawn. (default: ``True``)
        class_names (sequence): Class names for messages. (default: their numbers)

    Raises:
        ArgumentError: If a graph is in two sets or does not exist, a set is empty, or a class has only one graph to
            draw from.
    """
    codes = split_codes(split, y.numel())
    partition = partition_by_split(codes, split.name)
    if with_validation and not (codes == 1).any():
        split = _draw_validation(split, y, seed, class_names)
        assert split.validation is not None
        codes[split.validation] = 1
        partition = replace(partition, drawn=split.validation.numel())
    train, validation, test = (int((codes == code).sum()) for code in range(3))
    drawn = (
        f" (a tenth, at least one graph, of every class of the training set; seed {seed})"
        if partition.drawn
        else ""
    )
    note = f"One split ({split.name}): {train:,} training, {validation:,} validation{drawn}, {test:,} test graphs."
    assignment = torch.where(codes == 2, 0, -1)
    sizes = tuple(torch.bincount(y.cpu().long()).tolist())
    return SingleSplit(assignment, seed, 1, sizes, label_checksum(y), (note,), split), partition


def _draw_validation(split: Split, y: Tensor, seed: int, class_names: Sequence[str]) -> Split:
    """The split with a part of its training set as validation set."""
    train = split.train.sort().values
    try:
        drawn = validation_split(y.cpu()[train], _VALIDATION_SHARE, seed, class_names)
    except ArgumentError as error:
        fix = label_column_hint(y) or "Add validation graphs, or use the protocol 'paper'."
        got = f"{error.got} ({split.name})"
        raise ArgumentError("cross_validate", "split", error.expected, got, fix) from error
    assert drawn.validation is not None
    return replace(split, train=train[drawn.train], validation=train[drawn.validation])
