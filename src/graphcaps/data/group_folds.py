"""Folds that keep graphs of one group together, such as copies of one graph, or molecules of one scaffold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.splits import Folds, stratified_folds
from graphcaps.errors import ArgumentError

__all__ = ["group_folds"]


def group_folds(
    y: Tensor | None,
    groups: Sequence[int | str] | np.ndarray | Tensor,
    num_folds: int = 10,
    seed: int = 12345,
    *,
    class_names: Sequence[str] = (),
) -> Folds:
    """Folds with the classes in parts as equal as the groups allow; no group stands in two folds.

    Groups of two and more are dealt out first, the largest first, each to the fold that has the fewest graphs of
    its classes so far; the other graphs then fill the folds up, class by class. The seed shuffles groups of equal
    size, and the graphs that stand alone. Where no group has two members, the folds are those of
    :func:`graphcaps.data.stratified_folds`.

    Args:
        y (Tensor): Class of each graph from 0 on, ``[G]``.
        groups (sequence): Group of each graph, ``[G]``, such as ``find_duplicates(store).group_ids()``.
        num_folds (int): Number of folds, at least 2. (default: 10)
        seed (int): Seed of the shuffle. (default: 12345)
        class_names (sequence): What the classes are called in messages.

    Raises:
        ArgumentError: If the groups are not one per graph, or too few or too large to fill the folds.
    """
    owner = "group_folds"
    plain = stratified_folds(y, num_folds, seed, class_names=class_names)  # with its checks and its notes
    names = groups.tolist() if isinstance(groups, Tensor | np.ndarray) else list(groups)
    if len(names) != len(plain):
        raise ArgumentError(owner, "groups", f"give one group per graph, {len(plain)}", len(names))
    # Known by their first graph: folds do not depend on what the groups are called.
    first: dict[str, int] = {}
    numbers = [str(first.setdefault(str(name), len(first))) for name in names]
    ids = np.unique(np.array(numbers), return_inverse=True)[1].reshape(-1)
    counts = np.bincount(ids)
    if counts.max() == 1:
        return plain
    if len(counts) < num_folds:
        raise ArgumentError(owner, "groups", f"be at least {num_folds}, one per fold", len(counts))

    assert y is not None
    classes = torch.as_tensor(y).cpu().long().reshape(-1).numpy()
    assignment = _deal(classes, ids, num_folds, np.random.default_rng(seed))
    sizes = np.bincount(assignment, minlength=num_folds)
    if sizes.min() == 0:
        found = f"{len(counts)} groups, the largest with {counts.max()} of {len(plain)} graphs"
        raise ArgumentError(owner, "groups", f"be small enough to fill {num_folds} folds", found)
    shared, members = int((counts > 1).sum()), int(counts[counts > 1].sum())
    note = (
        f"Folds keep groups together: {len(counts):,} groups, {shared:,} of them with several graphs "
        f"({members:,} in all); folds have {sizes.min():,} to {sizes.max():,} graphs."
    )
    return Folds(
        torch.from_numpy(assignment),
        seed,
        num_folds,
        plain.class_counts,
        plain.checksum,
        (*plain.notes, note),
    )


def _deal(
    classes: NDArray[np.int64], ids: NDArray[np.int64], num_folds: int, draw: np.random.Generator
) -> NDArray[np.int64]:
    """Fold of each graph."""
    num_classes = int(classes.max()) + 1
    total = np.maximum(np.bincount(classes, minlength=num_classes), 1)
    counts = np.zeros((num_folds, num_classes), np.int64)  # graphs of each class in each fold so far
    assignment = np.full(len(classes), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)
    several = [group for group in groups if len(group) > 1]
    several = [several[place] for place in draw.permutation(len(several))]
    for group in sorted(several, key=len, reverse=True):
        own = np.bincount(classes[group], minlength=num_classes)
        share = own / total**2
        best = np.lexsort((counts.sum(1), counts @ share))[0]  # of equal ones the smaller fold
        assignment[group] = best
        counts[best] += own
    alone = np.concatenate([group for group in groups if len(group) == 1] or [np.zeros(0, np.int64)])
    for graph in draw.permutation(alone):
        of = classes[graph]
        best = np.lexsort((counts.sum(1), counts[:, of]))[0]
        assignment[graph] = best
        counts[best, of] += 1
    return assignment
