"""Folds by groups and fixed splits, one or several, and the fingerprint by which records identify them.

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

from graphcaps.data.splits.class_counts import count_classes, require_classes
from graphcaps.data.splits.folds import Folds, Split, label_checksum, split_codes
from graphcaps.errors import ArgumentError, DataError
from graphcaps.training.holdout import MEND_SPLIT, label_column_hint, validation_split

__all__ = [
    "KINDS",
    "FixedSplits",
    "Partition",
    "describe_splits",
    "fixed_splits",
    "partition_by_groups",
    "partition_by_splits",
]

KINDS = ("groups", "split", "splits")
_COUNTED = {"groups": "groups", "split": "parts", "splits": "splits"}
_VALIDATION_SHARE = 0.1  # of every class of the training set, for a split without validation set


@dataclass(frozen=True)
class Partition:
    """Identifies folds by groups, or fixed splits.

    Args:
        kind (str): ``"groups"``: graphs of one group are in the same fold; ``"split"``: one split, no folds;
            ``"splits"``: several splits, such as random ones of different seeds, in the place of folds.
        count (int): Number of groups, of sets of the split, or of splits.
        sha256 (str): Checksum of the group, or set, of each graph; independent of the names of the groups.
        by (str): Origin of groups or split, in words.
        drawn (int): Validation graphs drawn from the training set because the split has no validation set; of several
            splits, those of the first. Not part of ``fingerprint``: the split and the seed of the folds determine the
            draw.
    """

    kind: str
    count: int
    sha256: str
    by: str = "given"
    drawn: int = 0

    @property
    def sentence(self) -> str:
        """The partition in one sentence, for reports."""
        if self.kind != "groups":
            drawn = f", {self.drawn:,} training graphs drawn for validation" if self.drawn else ""
            count = "One split" if self.kind == "split" else f"{self.count:,} splits"
            return f"{count} ({self.by}{drawn}) in place of folds."
        return f"Folds keep groups together: {self.count:,} groups ({self.by})."

    @property
    def fingerprint(self) -> str:
        """Equal for records that can be compared; independent of the origin."""
        return f"{self.count:,} {_COUNTED[self.kind]} {self.sha256[:16]}"

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


def partition_by_splits(codes: Sequence[Tensor], by: str) -> Partition:
    """The partition of one or several splits, from the set of each graph in each split."""
    if len(codes) == 1:
        return Partition("split", int((codes[0].unique() >= 0).sum()), _digest(codes[0].numpy()), by)
    return Partition("splits", len(codes), _digest(torch.stack(list(codes)).numpy()), by)


def describe_splits(splits: Sequence[Split]) -> str:
    """Where splits come from, such as ``by scaffold, seeds 0 to 9``."""
    seeds = [split.seed for split in splits]
    names = list(dict.fromkeys(split.name for split in splits))
    if len(splits) > 1 and len(names) == 1 and seeds[0] is not None:
        if seeds == list(range(seeds[0], seeds[0] + len(seeds))):
            return f"{names[0]}, seeds {seeds[0]} to {seeds[-1]}"
        return f"{names[0]}, seeds {', '.join(map(str, seeds))}"
    return "; ".join(dict.fromkeys(split.title for split in splits))


def _digest(numbers: np.ndarray) -> str:
    return hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class FixedSplits(Folds):
    """One or several splits with the interface of folds.

    Test sets of several splits may overlap: ``assignment`` is the first split with the graph in its test set, −1 if
    there is none.
    """

    splits: tuple[Split, ...] = ()

    def paper(self, fold: int) -> Split:
        """Trains on the training and the validation set."""
        split = self.held_out(fold)
        if split.validation is None:
            return split
        return replace(split, train=torch.cat((split.train, split.validation)).sort().values, validation=None)

    def held_out(self, fold: int) -> Split:
        """The split, with the validation set drawn by :func:`fixed_splits` if it had none."""
        self._check_fold("FixedSplits", fold)
        return self.splits[fold]


def fixed_splits(
    splits: Sequence[Split],
    y: Tensor,
    seed: int,
    *,
    with_validation: bool = True,
    class_names: Sequence[str] = (),
    may_lack_classes: bool = False,
) -> tuple[FixedSplits, Partition]:
    """Fixed splits in the place of folds, and their partition.

    Args:
        splits (sequence): Training, validation and test set of each split, at least one split.
        y (Tensor): Class of each graph, ``[G]``.
        seed (int): Seed of the draw.
        with_validation (bool): Whether a validation set is needed. If a split has none, a tenth of every class of its
            training set is drawn. (default: ``True``)
        class_names (sequence): Class names for messages. (default: their numbers)
        may_lack_classes (bool): Accept a set that lacks a class, as folds may. (default: ``False``)

    Raises:
        ArgumentError: If a graph is in two sets or does not exist, a set is empty or lacks one of the classes, or a
            class has only one graph to draw from.
    """
    if not len(splits):
        raise ArgumentError("cross_validate", "split", "be a split or several", "none")
    codes = [split_codes(split, y.numel()) for split in splits]
    partition = partition_by_splits(codes, describe_splits(splits))
    complete = []
    for split, sets in zip(splits, codes, strict=True):
        if not may_lack_classes:
            counts = count_classes(split, y, class_names)
            require_classes(counts, "cross_validate", "split", split.title, MEND_SPLIT)
        if with_validation and not (sets == 1).any():
            split = _draw_validation(split, y, seed, class_names)
            assert split.validation is not None
            sets[split.validation] = 1
            partition = replace(partition, drawn=partition.drawn or split.validation.numel())
        complete.append(split)
    sizes = torch.stack([torch.stack([(sets == part).sum() for part in range(3)]) for sets in codes])
    train, validation, test = (_range(sizes[:, part]) for part in range(3))
    drawn = (
        f" (a tenth, at least one graph, of every class of the training set; seed {seed})"
        if partition.drawn
        else ""
    )
    count = "One split" if len(splits) == 1 else f"{len(splits)} splits"
    note = f"{count} ({partition.by}): {train} training, {validation} validation{drawn}, {test} test graphs."
    assignment = torch.full((y.numel(),), -1)
    for number in reversed(range(len(splits))):
        assignment[codes[number] == 2] = number
    class_sizes = tuple(torch.bincount(y.cpu().long()).tolist())
    folds = FixedSplits(
        assignment, seed, len(splits), class_sizes, label_checksum(y), (note,), tuple(complete)
    )
    return folds, partition


def _range(numbers: Tensor) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _draw_validation(split: Split, y: Tensor, seed: int, class_names: Sequence[str]) -> Split:
    """The split with a part of its training set as validation set."""
    train = split.train.sort().values
    try:
        drawn = validation_split(y.cpu()[train], _VALIDATION_SHARE, seed, class_names)
    except ArgumentError as error:
        fix = label_column_hint(y, class_names) or "Add validation graphs, or use the protocol 'paper'."
        got = f"{error.got} ({split.title})"
        raise ArgumentError("cross_validate", "split", error.expected, got, fix) from error
    assert drawn.validation is not None
    return replace(split, train=train[drawn.train], validation=train[drawn.validation])
