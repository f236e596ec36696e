"""Seeded splits into training, validation and test set: of single graphs, or of groups that stay whole."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.splits.class_counts import class_indices, count_classes, require_classes
from graphcaps.data.splits.folds import Split
from graphcaps.errors import ArgumentError

__all__ = ["FRACTIONS", "check_fractions", "grouped_split", "random_split"]

FRACTIONS = (0.8, 0.1, 0.1)
"""Fractions of training, validation and test set unless others are given."""

_EPS = 1e-9  # below any difference of counts, above rounding


def random_split(
    y: Tensor | NDArray[np.int64] | Sequence[int | str],
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
    *,
    class_names: Sequence[str] = (),
) -> Split:
    """A random split in which every part has the class proportions of the whole set.

    Args:
        y (Tensor or sequence): Class of each graph, ``[G]``.
        fractions (sequence): Fractions of training, validation and test set, with sum 1. If the second is 0, the split
            has no validation set. (default: 0.8, 0.1, 0.1)
        seed (int): Seed of the shuffle. (default: 0)
        class_names (sequence): Class names for messages. (default: the values of ``y``)

    Raises:
        ArgumentError: If an argument is invalid, or a part would lack one of the classes.
    """
    if y is None or isinstance(y, str) or np.ndim(y) != 1:
        raise ArgumentError("random_split", "y", "hold the class of each graph", repr(y)[:60])
    groups = np.arange(len(y))
    return grouped_split(
        groups, y, fractions, seed, name="random", owner="random_split", class_names=class_names
    )


def grouped_split(
    groups: Sequence[int] | NDArray[np.int64],
    y: Tensor | NDArray[np.int64] | Sequence[int | str] | None = None,
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
    *,
    class_names: Sequence[str] = (),
    name: str = "by groups",
    owner: str = "grouped_split",
) -> Split:
    r"""A split in which no group is in two parts, balanced by class as far as the groups allow.

    Part p is to receive a fraction :math:`f_p` of every class, at least one graph of it. Groups are dealt in random
    order, each to a part that still has room for its graphs of every class. Among these parts one is drawn with a
    probability proportional to the graphs of these classes that it still lacks:

    .. math:: P(p \mid g) \propto \sum_c \frac{n_{gc}}{n_c} \, (f_p n_c - m_{pc})

    with :math:`n_{gc}` graphs of class c in group g, :math:`n_c` in all and :math:`m_{pc}` in part p so far. Groups of
    several graphs come before single graphs, which then fill the parts up to their class counts. Apart from very large
    groups, a group of any size is therefore as likely to be in the test set as a single graph. A group larger than half
    of the validation or test set is dealt first, to the training set while it has room. A group that fits nowhere goes
    where it exceeds the counts least.

    The result depends on the numbering of the groups and on the seed, not on the order of the graphs.

    Args:
        groups (sequence): Group of each graph, integers from 0, ``[G]``.
        y (Tensor or sequence, optional): Class of each graph, ``[G]``. (default: only sizes are balanced)
        fractions (sequence): Fractions of training, validation and test set, with sum 1. If the second is 0, the split
            has no validation set. (default: 0.8, 0.1, 0.1)
        seed (int): Seed of the order and of the draws. (default: 0)
        class_names (sequence): Class names for messages. (default: the values of ``y``)
        name (str): Name of the split. (default: "by groups")
        owner (str): Owner that messages name.

    Raises:
        ArgumentError: If an argument is invalid, the groups are too large to fill a part, or a part would lack one of
            the classes.
    """
    check_fractions(owner, fractions)
    if type(seed) is not int or seed < 0:
        raise ArgumentError(owner, "seed", "be a non-negative integer", repr(seed))
    ids = np.asarray(groups, dtype=np.int64).reshape(-1)
    if y is not None and len(y) != len(ids):
        raise ArgumentError(owner, "y", f"hold one class per graph, {len(ids)}", len(y))
    classes, names = class_indices(np.zeros(len(ids), np.int64) if y is None else y, class_names)
    parts = _deal(classes, ids, np.array(fractions, dtype=float), np.random.default_rng(seed))
    members = [torch.from_numpy(np.flatnonzero(parts == part)) for part in range(3)]
    for part, fraction in ((0, "training"), (1, "validation"), (2, "test")):
        if fractions[part] and not members[part].numel():
            largest = int(np.bincount(ids).max(initial=0))
            got = f"{largest:,} of {len(ids):,} graphs in one group"
            fix = "Choose other fractions (--fractions) or plain folds."
            raise ArgumentError(owner, "groups", f"be small enough to fill the {fraction} set", got, fix)
    split = Split(members[0], members[1] if fractions[1] else None, members[2], name, seed)
    if y is not None:
        require_classes(count_classes(split, torch.from_numpy(classes), names), owner, "split", split.title)
    return split


def check_fractions(owner: str, fractions: Sequence[float], argument: str = "fractions") -> None:
    """Rejects fractions other than three that add up to 1, with those for training and test above 0.

    Raises:
        ArgumentError: If they are invalid.
    """
    is_wrong = len(fractions) != 3 or not all(math.isfinite(each) and each >= 0 for each in fractions)
    if is_wrong or not math.isclose(sum(fractions), 1, abs_tol=1e-6) or not fractions[0] or not fractions[2]:
        expected = "be three fractions that add up to 1, with those for training and test above 0"
        raise ArgumentError(owner, argument, expected, tuple(fractions))


def _deal(
    classes: NDArray[np.int64],
    ids: NDArray[np.int64],
    fractions: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Part of each graph, ``[G]``; see :func:`grouped_split`."""
    num_groups, num_classes = int(ids.max(initial=-1)) + 1, int(classes.max(initial=0)) + 1
    counts = np.zeros((num_groups, num_classes))
    np.add.at(counts, (ids, classes), 1)
    sizes, total = counts.sum(1), counts.sum(0)
    targets = _targets(fractions, total)
    missing = targets.copy()  # graphs of each class that each part still lacks, [3, C]
    smallest = fractions[1:][fractions[1:] > 0].min() * len(ids)
    stage = np.where(sizes > smallest / 2, 0, np.where(sizes > 1, 1, 2))
    order = rng.permutation(num_groups)
    order = order[np.argsort(stage[order], kind="stable")]
    parts = np.zeros(num_groups, np.int64)
    for group, draw in zip(order, rng.random(num_groups), strict=True):
        own = counts[group]
        if stage[group] == 0 and missing[0].sum() >= sizes[group]:
            part = 0
        else:
            fits = (missing >= own - _EPS)[:, own > 0].all(1) & (fractions > 0)
            weights = np.where(fits, missing.clip(0) @ (own / total.clip(1)), 0)
            if weights.any():
                part = int(np.searchsorted(weights.cumsum(), draw * weights.sum(), side="right"))
            else:
                excess = ((own**2 - 2 * own * missing) / targets.clip(_EPS)).sum(1)
                part = int(np.where(fractions > 0, excess, np.inf).argmin())
        parts[group] = part
        missing[part] -= own
    return parts[ids]


def _targets(fractions: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.float64]:
    """Graphs of each class that each part is to receive, ``[3, C]``: its fraction, at least one if there are enough."""
    targets = fractions[:, None] * total
    enough = total >= (fractions > 0).sum()
    targets = np.where(enough & (fractions[:, None] > 0), targets.clip(1), targets)
    targets[0] = total - targets[1:].sum(0)
    return targets
