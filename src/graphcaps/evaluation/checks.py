"""What a cross-validation asks of its graphs and variants before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import Tensor

from graphcaps.data.grouping import Grouping, find_groups
from graphcaps.data.splits import Folds, Split, stratified_folds
from graphcaps.data.store import GraphStore
from graphcaps.engine.config import RunConfig
from graphcaps.errors import ArgumentError
from graphcaps.evaluation.choosing import label_doubt
from graphcaps.evaluation.partition import Partition, mark_groups, one_split

__all__ = ["FOLDS_SEED", "Groups", "check_siblings", "folds_of"]

FOLDS_SEED = 12345  # of the published figures
Groups = Sequence[int | str] | np.ndarray | Tensor | Grouping | str | Path


def check_siblings(config: RunConfig, name: str, siblings: Mapping[str, RunConfig]) -> None:
    """Refuses variants that compute something else: they would be trained as ``config``."""
    if siblings and config.model_arguments.get("factor_squash", "joined") != "joined":
        raise ArgumentError("cross_validate", "siblings", "come with joined factors", "separate ones")
    own = {**config.model_arguments, "num_factors": None}
    for sibling, other in siblings.items():
        arguments = {**other.model_arguments, "num_factors": None}
        same = replace(other, model_arguments=config.model_arguments) == config and arguments == own
        if sibling == name or not same:
            expected = f"differ from '{name}' in its name and in 'num_factors' alone"
            raise ArgumentError("cross_validate", "siblings", expected, f"'{sibling}'")


def folds_of(
    store: GraphStore,
    folds: int,
    groups: Groups | None = None,
    split: Split | None = None,
    *,
    chooses: bool = True,
) -> tuple[Folds, Partition | None]:
    """The folds of a store and the mark of those that are not plain, or a sentence that names the store.

    Args:
        store (GraphStore): Graphs with classes.
        folds (int): Number of folds.
        groups (sequence, Grouping or str, optional): Group of each graph, or what
            :func:`graphcaps.data.grouping.find_groups` finds by that name.
        split (Split, optional): In place of folds.
        chooses (bool): Whether graphs choose the epoch, as in the protocol held-out. (default: ``True``)
    """
    if store.y is None:
        got = f"'{store.name}' without"
        raise ArgumentError("cross_validate", "store", "have a class for every graph", got, "Add labels.")
    if split is not None:
        if groups is not None:
            raise ArgumentError("cross_validate", "groups", "be left out beside a split", "both")
        return one_split(split, store.y, FOLDS_SEED, chooses=chooses, class_names=store.class_names)
    if chooses and type(folds) is int and folds < 3:
        expected = "be at least 3, since one fold tests and one chooses the epoch"
        raise ArgumentError("cross_validate", "folds", expected, folds)
    found = None if groups is None else _groups(store, groups)
    ids = None if found is None else found.ids
    try:
        plain = stratified_folds(store.y, folds, FOLDS_SEED, class_names=store.class_names, groups=ids)
    except ArgumentError as error:
        name = {"y": "store", "num_folds": "folds"}.get(error.name, error.name)
        where = f"{error.got} in '{store.name}'"
        few = (
            "Add graphs, or lower the number of folds (--folds)."
            if "for as many folds" in error.expected
            else ""
        )
        fix = " ".join(part for part in (label_doubt(store.y), few or error.fix) if part)
        raise ArgumentError("cross_validate", name, error.expected, where, fix) from error
    return plain, None if found is None else mark_groups(found.ids, found.by)


def _groups(store: GraphStore, groups: Groups) -> Grouping:
    """The group of each graph."""
    if isinstance(groups, Grouping):
        return groups
    if isinstance(groups, str | Path):
        return find_groups(groups, store)
    names = groups.tolist() if isinstance(groups, np.ndarray | Tensor) else list(groups)
    return Grouping(np.unique(np.array(names, dtype=str), return_inverse=True)[1].reshape(-1), "given")
