"""The division of graphs into folds: stratified, by groups, or fixed splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from graphcaps.data.splits.class_counts import count_fold_classes, require_classes
from graphcaps.data.splits.folds import Folds, Split, stratified_folds
from graphcaps.data.splits.groups import Grouping, resolve_groups
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.partition import Partition, fixed_splits, partition_by_groups
from graphcaps.training.holdout import label_column_hint

__all__ = ["FOLDS_SEED", "Groups", "build_folds", "check_divisions", "group_graphs"]

FOLDS_SEED = 12345  # the same folds for every model, seed and published result; plus the number of a division
_MAX_DIVISIONS = 1_000
Groups = Sequence[int | str] | np.ndarray | Tensor | Grouping | str | Path


def check_divisions(owner: str, divisions: int, beside: str | None) -> None:
    """Rejects a wrong number of divisions into folds.

    Args:
        owner (str): For the message.
        divisions (int): The number.
        beside (str, optional): What stands in the place of folds.

    Raises:
        ArgumentError: If it is no whole number from 1 to 1,000, or there are no folds to divide.
    """
    if type(divisions) is not int or not 1 <= divisions <= _MAX_DIVISIONS:
        raise ArgumentError(owner, "divisions", f"be a whole number from 1 to {_MAX_DIVISIONS:,}", divisions)
    if beside is not None and divisions > 1:
        raise ArgumentError(owner, "divisions", f"be left out beside {beside}, which has no folds", divisions)


def build_folds(
    store: GraphStore,
    folds: int,
    groups: Groups | None = None,
    split: Split | Sequence[Split] | None = None,
    *,
    with_validation: bool = True,
    division: int = 0,
    may_lack_classes: bool = False,
) -> tuple[Folds, Partition | None]:
    """Stratified folds of a store; with groups or a fixed split, also the partition that records describe.

    Args:
        store (GraphStore): Graphs with class labels.
        folds (int): Number of folds.
        groups (sequence, Grouping or str, optional): Group of each graph, or a name or file for
            :func:`graphcaps.data.splits.groups.resolve_groups`.
        split (Split or sequence, optional): Fixed split, or several, in place of folds.
        with_validation (bool): Whether a validation set is needed, as in the protocol held-out. (default: ``True``)
        division (int): Number of the division into folds; splits have only 0. (default: 0)
        may_lack_classes (bool): Accept splits of which a set lacks a class. (default: ``False``)

    Raises:
        ArgumentError: If labels are missing, the graphs cannot be split, or a part lacks one of the classes; the
            message names the store.
    """
    if store.y is None:
        got = f"'{store.name}' without"
        raise ArgumentError("cross_validate", "store", "have a class for every graph", got, "Add labels.")
    if split is not None:
        if groups is not None:
            raise ArgumentError("cross_validate", "groups", "be left out beside a split", "both")
        splits = (split,) if isinstance(split, Split) else tuple(split)
        return fixed_splits(
            splits,
            store.y,
            FOLDS_SEED,
            with_validation=with_validation,
            class_names=store.class_names,
            may_lack_classes=may_lack_classes,
        )
    if with_validation and type(folds) is int and folds < 3:
        expected = "be at least 3: one fold for testing and one for validation"
        raise ArgumentError("cross_validate", "folds", expected, folds)
    grouping = None if groups is None else group_graphs(store, groups)
    ids = None if grouping is None else grouping.ids
    try:
        seed = FOLDS_SEED + division
        stratified = stratified_folds(store.y, folds, seed, class_names=store.class_names, groups=ids)
    except ArgumentError as error:
        name = {"y": "store", "num_folds": "folds"}.get(error.name, error.name)
        got = f"{error.got} in '{store.name}'"
        fewer_folds = (
            "Add graphs, or lower the number of folds (--folds)."
            if "for as many folds" in error.expected
            else ""
        )
        hints = (label_column_hint(store.y, store.class_names), fewer_folds or error.fix)
        fix = " ".join(hint for hint in hints if hint)
        raise ArgumentError("cross_validate", name, error.expected, got, fix) from error
    if grouping is None:
        return stratified, None
    partition = partition_by_groups(grouping.ids, grouping.by)
    if partition is not None:  # otherwise plain folds, which state a class that they lack in their notes
        counts = count_fold_classes(stratified, store.y, store.class_names)
        fix = "Use fewer folds, other groups, or plain folds."
        require_classes(counts, "cross_validate", "groups", f"{grouping.by} of '{store.name}'", fix)
    return stratified, partition


def group_graphs(store: GraphStore, groups: Groups) -> Grouping:
    """The group of each graph, from what :func:`cross_validate` takes as ``groups``."""
    if isinstance(groups, Grouping):
        return groups
    if isinstance(groups, str | Path):
        return resolve_groups(groups, store)
    names = groups.tolist() if isinstance(groups, np.ndarray | Tensor) else list(groups)
    return Grouping(np.unique(np.array(names, dtype=str), return_inverse=True)[1].reshape(-1), "given")
