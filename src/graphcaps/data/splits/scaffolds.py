"""Splits of molecules by scaffold, so that the test set has ring systems that are not in the training set.

The scaffold of Bemis and Murcko (1996) is the ring systems of a molecule and the linkers between them. Needs the extra
``chem``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphcaps._io.optional_imports import require
from graphcaps.data.readers.molecules import MAX_SMILES_LENGTH
from graphcaps.data.splits.folds import Split, split_from_names
from graphcaps.errors import ArgumentError

__all__ = ["murcko_scaffolds", "scaffold_split"]

_SETS = ("train", "valid", "test")
_PURPOSE = "Splitting by scaffold"


def murcko_scaffolds(smiles: Sequence[str]) -> tuple[str, ...]:
    """Canonical SMILES of each molecule's scaffold, without stereochemistry; "" for a molecule without rings.

    Raises:
        ArgumentError: If a SMILES is invalid.
        MissingExtraError: If RDKit is not installed.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
    log = require("rdkit.rdBase", extra="chem", purpose=_PURPOSE)
    murcko = require("rdkit.Chem.Scaffolds.MurckoScaffold", extra="chem", purpose=_PURPOSE)
    scaffolds = []
    with log.BlockLogs():
        for index, text in enumerate(smiles):
            # Longer texts can crash the process inside RDKit, see data/readers/molecules.py.
            molecule = chem.MolFromSmiles(text) if len(text) <= MAX_SMILES_LENGTH else None
            if molecule is None:
                got = f"{text if len(text) <= 60 else text[:60] + '…'!r} at {index}"
                raise ArgumentError("murcko_scaffolds", "smiles", "be valid SMILES", got)
            scaffolds.append(murcko.MurckoScaffoldSmiles(mol=molecule, includeChirality=False))
    return tuple(scaffolds)


def scaffold_split(
    smiles: Sequence[str],
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int | None = None,
    *,
    groups: Sequence[int] | np.ndarray | None = None,
) -> Split:
    """Training, validation and test set in which no scaffold is in two sets.

    Scaffolds are assigned in descending order of their number of molecules: to the training set while it has room,
    else to the validation set, else to the test set. Common scaffolds are therefore in the training set and rare ones
    in the test set. A molecule without rings is grouped only with those of the same SMILES.

    Args:
        smiles (sequence): SMILES of each molecule, in the order of the graphs.
        fractions (sequence): Fractions of the three sets, with sum 1. If the second is 0, the split has no validation
            set. (default: 0.8, 0.1, 0.1)
        seed (int, optional): Shuffles scaffolds with equal numbers of molecules. (default: in the order of their
            first molecule)
        groups (sequence, optional): Group of each molecule, used in place of its scaffold; see
            :func:`graphcaps.data.splits.groups.resolve_groups`.

    Raises:
        ArgumentError: If the fractions are invalid, or the training or test set would be empty.
    """
    owner = "scaffold_split"
    wrong = len(fractions) != 3 or min(fractions) < 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-6)
    if wrong or not fractions[0] or not fractions[2]:
        expected = "be three fractions that add up to 1, with those for training and test above 0"
        raise ArgumentError(owner, "fractions", expected, tuple(fractions))
    if seed is not None and (type(seed) is not int or seed < 0):
        raise ArgumentError(owner, "seed", "be a non-negative integer or None", repr(seed))
    if groups is not None and len(groups) != len(smiles):
        raise ArgumentError(owner, "groups", f"be one per molecule, {len(smiles)}", len(groups))
    members: dict[object, list[int]] = {}
    for index, group in enumerate(_scaffold_groups(smiles) if groups is None else groups):
        members.setdefault(group, []).append(index)
    names = _assign_sets(list(members.values()), len(smiles), fractions, seed)
    for name, words in (("train", "training"), ("test", "test")):
        if name not in names:
            largest = max(map(len, members.values()), default=0)
            got = f"{largest} of {len(smiles)} molecules with one scaffold"
            raise ArgumentError(owner, "smiles", f"have enough scaffolds to fill the {words} set", got)
    return split_from_names(names)


def _assign_sets(
    groups: list[list[int]], num_molecules: int, fractions: Sequence[float], seed: int | None
) -> list[str]:
    """Name of each molecule's set."""
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(groups))
        groups = [groups[index] for index in order]
    groups = sorted(groups, key=len, reverse=True)  # stable: groups of equal size keep their order
    remaining = {name: fraction * num_molecules for name, fraction in zip(_SETS, fractions, strict=True)}
    names = [""] * num_molecules
    for group in groups:
        fitting = (name for name in _SETS[:2] if len(group) <= remaining[name] + 1e-9)
        name = next(fitting, "test")
        remaining[name] -= len(group)
        for index in group:
            names[index] = name
    return names


def _scaffold_groups(smiles: Sequence[str]) -> list[str]:
    """Scaffold of each molecule or, without rings, its SMILES without stereochemistry."""
    scaffolds = murcko_scaffolds(smiles)
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
    return [
        scaffold or f"alone {chem.MolToSmiles(chem.MolFromSmiles(text), isomericSmiles=False)}"
        for text, scaffold in zip(smiles, scaffolds, strict=True)
    ]
