"""Options about folds and fixed splits, shared by ``evaluate`` and ``compare``, and their checks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from graphcaps.cli.data_options import open_with_splits
from graphcaps.cli.output import option
from graphcaps.errors import ArgumentError

if TYPE_CHECKING:
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.splits.folds import Split
    from graphcaps.data.splits.groups import Grouping

__all__ = [
    "FOLDS",
    "MAX_SEEDS",
    "FirstSplitSeed",
    "Folds",
    "GroupsBy",
    "Repeat",
    "RepeatFolds",
    "Seeds",
    "check_folds",
    "check_seeded",
    "check_seeds",
    "load_with_splits",
    "named_groups",
]

FOLDS = 10
"""Default number of folds."""
MAX_SEEDS = 1000

Seeds = Annotated[int, option("--seeds", metavar="N", help="Number of seeds: 0, 1, 2, …")]
Folds = Annotated[
    int, option("--folds", metavar="N", help="Number of folds; held-out trains on N − 2 of them.")
]
GroupsBy = Annotated[
    str | None,
    option(
        "--groups",
        metavar="FILE",
        help="Keep groups in one fold: a FILE of 'data check --groups', or copies, or scaffolds.",
    ),
]
Repeat = Annotated[
    int | None,
    option(
        "--repeat",
        metavar="N",
        min=1,
        help="Splits of --split scaffold or random, under N seeds; trained together. Default: 1.",
    ),
]
RepeatFolds = Annotated[
    int | None,
    option(
        "--repeat",
        metavar="N",
        min=1,
        help="Number of divisions into folds, or of splits of --split scaffold or random, each under another seed. "
        "Default: 1.",
    ),
]
FirstSplitSeed = Annotated[
    int | None,
    option("--seed", metavar="N", min=0, help="First seed of --split scaffold or random. Default: 0."),
]


def check_seeds(owner: str, seeds: int) -> None:
    """Rejects a number of seeds that is too large."""
    if seeds > MAX_SEEDS:
        raise ArgumentError(owner, "--seeds", f"be at most {MAX_SEEDS}", seeds)


def check_folds(
    owner: str, names: Sequence[str], folds: int, groups: str | None, split: str | None, protocol: str
) -> None:
    """Rejects options about folds that contradict each other.

    Args:
        owner (str): The verb, for messages.
        names (sequence): Data sets.
        folds (int): Number of folds.
        groups, split (str, optional): Values of ``--groups`` and ``--split``.
        protocol (str): Value of ``--protocol``.
    """
    from graphcaps.data.splits.groups import BY_DUPLICATES, BY_SCAFFOLD, is_table_path

    if folds < 3 and protocol in ("held-out", "both"):
        expected = "be at least 3: one fold for testing and one for validation"
        raise ArgumentError(owner, "--folds", expected, folds, "Or choose --protocol paper.")
    if split is not None and groups is not None:
        raise ArgumentError(owner, "--groups", "be left out with --split", "both")
    if split is not None and folds != FOLDS:
        raise ArgumentError(owner, "--folds", "be left out with --split, which has no folds", folds)
    files = {
        "--groups": groups not in (None, BY_DUPLICATES, *BY_SCAFFOLD),
        "--split": split is not None and is_table_path(split),
    }
    for name, is_file in files.items():
        if is_file and len(names) > 1:
            raise ArgumentError(
                owner, name, "name a file for one data set at a time", f"{len(names)} data sets"
            )


def check_seeded(
    owner: str, split: str | None, repeat: int | None, seed: int | None, *, repeats_folds: bool = False
) -> None:
    """Rejects options of seeded splits beside other splits, and beside folds.

    Args:
        owner (str): The verb, for messages.
        split (str, optional): Value of ``--split``.
        repeat, seed (int, optional): Values of ``--repeat`` and ``--seed``.
        repeats_folds (bool): Whether ``--repeat`` beside folds is a number of divisions. (default: ``False``)
    """
    from graphcaps.data.splits.groups import is_seeded

    for name, value in {"--repeat": repeat, "--seed": seed}.items():
        if split is None and name == "--repeat" and repeats_folds:
            continue
        if value is not None and (split is None or not is_seeded(split)):
            got = f"{value} with " + ("folds" if split is None else f"--split {split}")
            raise ArgumentError(owner, name, "come with --split scaffold or --split random", got)
    if (repeat or 0) > MAX_SEEDS:
        raise ArgumentError(owner, "--repeat", f"be at most {MAX_SEEDS}", repeat)


def load_with_splits(
    owner: str,
    names: Sequence[str],
    root: Path | None,
    options: dict[str, Any],
    split: str | None,
    repeat: int | None,
    seed: int | None,
    fractions: str | None,
) -> list[tuple[LoadedDataset, tuple[Split, ...]]]:
    """Reads data sets with their splits; none for folds.

    Raises:
        GraphcapsError: If a data set cannot be read or split, or two have the same name.
    """
    seeds = range(seed or 0, (seed or 0) + (repeat or 1))
    loaded = [
        open_with_splits(name, root, options, split, owner, seeds=seeds, fractions=fractions)
        for name in names
    ]
    store_names = [dataset.store.name for dataset, _ in loaded]
    for name in store_names:
        if store_names.count(name) > 1:
            raise ArgumentError(owner, "NAME", "be given once each", f"'{name}' twice")
    return loaded


def named_groups(name: str | None, loaded: LoadedDataset) -> Grouping | None:
    """The groups that ``--groups`` names; ``None`` without it."""
    from graphcaps.data.splits.groups import resolve_groups

    return None if name is None else resolve_groups(name, loaded.store)
