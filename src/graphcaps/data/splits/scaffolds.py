"""Splits of molecules by scaffold, so that the test set has ring systems that are not in the training set.

The scaffold of Bemis and Murcko (1996) is the ring systems of a molecule and the linkers between them. Needs the extra
``chem``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.chemistry.rdkit_pool import call_rdkit
from graphcaps.data.splits.folds import Split
from graphcaps.data.splits.seeded_splits import FRACTIONS, grouped_split
from graphcaps.errors import ArgumentError

__all__ = ["murcko_scaffolds", "scaffold_groups", "scaffold_split"]

_PURPOSE = "Splitting by scaffold"


def murcko_scaffolds(smiles: Sequence[str]) -> tuple[str, ...]:
    """Canonical SMILES of each molecule's scaffold, without stereochemistry; "" for a molecule without rings.

    Raises:
        ArgumentError: If a SMILES is invalid.
        MissingExtraError: If RDKit is not installed.
    """
    return tuple(scaffold for scaffold, _ in _scaffolds_and_skeletons(smiles, "murcko_scaffolds"))


def scaffold_groups(smiles: Sequence[str]) -> NDArray[np.int64]:
    """Group of each molecule, ``[G]``: molecules of one scaffold, joined with those of the same skeleton.

    A skeleton is elements and bonds without charge, hydrogens, isotope and stereochemistry: a molecule stays with its
    salts and stereoisomers, also where the charge changes the scaffold. A molecule without rings has no scaffold and is
    grouped by its skeleton alone.

    Groups are numbered in the order of the smallest SMILES in each, so that the numbers do not depend on the order of
    the molecules.

    Raises:
        ArgumentError: If a SMILES is invalid.
        MissingExtraError: If RDKit is not installed.
    """
    parent: dict[str, str] = {}  # of scaffolds and skeletons: a forest whose trees are the groups

    def root(key: str) -> str:
        while parent.setdefault(key, key) != key:
            parent[key] = key = parent[parent[key]]
        return key

    skeletons = []
    for scaffold, skeleton in _scaffolds_and_skeletons(smiles, "scaffold_groups"):
        skeletons.append(f"skeleton {skeleton}")
        if scaffold:
            parent[root(skeletons[-1])] = root(f"scaffold {scaffold}")
    first: dict[str, str] = {}  # smallest SMILES of each group
    roots = [root(skeleton) for skeleton in skeletons]
    for key, text in zip(roots, smiles, strict=True):
        first[key] = min(first.get(key, text), text)
    number = {key: index for index, key in enumerate(sorted(first, key=lambda key: first[key]))}
    return np.array([number[key] for key in roots], dtype=np.int64)


def scaffold_split(
    smiles: Sequence[str],
    y: Tensor | NDArray[np.int64] | Sequence[int | str] | None = None,
    fractions: Sequence[float] = FRACTIONS,
    seed: int = 0,
    *,
    groups: Sequence[int] | NDArray[np.int64] | None = None,
    class_names: Sequence[str] = (),
) -> Split:
    """Training, validation and test set in which no scaffold is in two sets.

    Scaffolds are dealt in seeded random order and balanced by class as far as they allow; see
    :func:`graphcaps.data.splits.seeded_splits.grouped_split`. The split depends on the molecules and the seed, not on
    their order. One split says little: repeat it over several seeds.

    Args:
        smiles (sequence): SMILES of each molecule, in the order of the graphs.
        y (Tensor or sequence, optional): Class of each molecule. (default: only sizes are balanced)
        fractions (sequence): Fractions of the three sets, with sum 1. If the second is 0, the split has no validation
            set. (default: 0.8, 0.1, 0.1)
        seed (int): Seed of the order. (default: 0)
        groups (sequence, optional): :func:`scaffold_groups` of the molecules, for several splits of the same ones.
        class_names (sequence): Class names for messages. (default: the values of ``y``)

    Raises:
        ArgumentError: If an argument is invalid, the scaffolds are too large to fill a set, or a set would lack one of
            the classes.

    Example:
        ``splits = [scaffold_split(store.smiles, store.y, seed=seed) for seed in range(10)]``
    """
    owner = "scaffold_split"
    if groups is None:
        groups = scaffold_groups(smiles)
    elif len(groups) != len(smiles):
        raise ArgumentError(owner, "groups", f"be one per molecule, {len(smiles)}", len(groups))
    return grouped_split(groups, y, fractions, seed, class_names=class_names, name="by scaffold", owner=owner)


def _scaffolds_and_skeletons(smiles: Sequence[str], owner: str) -> Iterator[tuple[str, str]]:
    """Canonical texts of the scaffold and of elements and bonds of each molecule."""
    answers = call_rdkit("scaffold", smiles, purpose=_PURPOSE, until_problem=True)
    for index, answer in enumerate(answers):
        if answer.problem:
            text = smiles[index]
            got = f"{text if len(text) <= 60 else text[:60] + '…'!r} at {index}: {answer.problem}"
            raise ArgumentError(owner, "smiles", "be valid SMILES", got)
        scaffold, skeleton = answer.texts
        yield scaffold, skeleton
