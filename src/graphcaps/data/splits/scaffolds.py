"""A split of molecules by their scaffold, so that the test part holds ring systems that were not trained on.

The scaffold of Bemis and Murcko (1996) is the rings of a molecule and what joins them. Needs the extra ``chem``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphcaps._io.optional_imports import require
from graphcaps.data.readers.graph_metadata import split_from_names
from graphcaps.data.readers.molecules import MAX_SMILES_LENGTH
from graphcaps.data.splits.folds import Split
from graphcaps.errors import ArgumentError

__all__ = ["murcko_scaffolds", "scaffold_split"]

_PARTS = ("train", "valid", "test")


def murcko_scaffolds(smiles: Sequence[str]) -> tuple[str, ...]:
    """Canonical SMILES of each molecule's scaffold, without regard to its arrangement in space; "" without rings.

    Raises:
        ArgumentError: At a text that is no molecule.
        MissingExtraError: Without RDKit.
    """
    purpose = "Splitting by scaffold"
    chem = require("rdkit.Chem", extra="chem", purpose=purpose)
    log = require("rdkit.rdBase", extra="chem", purpose=purpose)
    murcko = require("rdkit.Chem.Scaffolds.MurckoScaffold", extra="chem", purpose=purpose)
    found = []
    with log.BlockLogs():
        for place, text in enumerate(smiles):
            # Longer texts can end the whole process inside RDKit, see data/molecules.py.
            molecule = chem.MolFromSmiles(text) if len(text) <= MAX_SMILES_LENGTH else None
            if molecule is None:
                got = f"{text if len(text) <= 60 else text[:60] + '…'!r} at {place}"
                raise ArgumentError("murcko_scaffolds", "smiles", "be molecules in SMILES", got)
            found.append(murcko.MurckoScaffoldSmiles(mol=molecule, includeChirality=False))
    return tuple(found)


def scaffold_split(
    smiles: Sequence[str],
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int | None = None,
    *,
    groups: Sequence[int] | np.ndarray | None = None,
) -> Split:
    """Molecules to learn from, to choose by and to test on; no scaffold is in two of the parts.

    Scaffolds are dealt out from the one with the most molecules to those with the fewest: each goes to the training
    part where that has room left, else to the validation part, else to the test part. So common scaffolds train
    and rare ones test. A molecule without rings is a scaffold of its own, together with those of the same SMILES.

    Args:
        smiles (sequence): One text per molecule, in the order of the graphs.
        fractions (sequence): Of the three parts, adding up to 1; without a validation part it is ``None``.
            (default: 0.8, 0.1, 0.1)
        seed (int, optional): Shuffles scaffolds of equal number among each other. (default: in the order of their
            first molecule)
        groups (sequence, optional): Molecules to keep together, in place of those of one scaffold; see
            :func:`graphcaps.data.splits.groups.resolve_groups`.

    Raises:
        ArgumentError: If the fractions are no fractions, or the training or test part would be empty.
    """
    owner = "scaffold_split"
    wrong = len(fractions) != 3 or min(fractions) < 0 or not math.isclose(sum(fractions), 1, abs_tol=1e-6)
    if wrong or not fractions[0] or not fractions[2]:
        expected = "be three fractions that add up to 1, those to train and to test above 0"
        raise ArgumentError(owner, "fractions", expected, tuple(fractions))
    if seed is not None and (type(seed) is not int or seed < 0):
        raise ArgumentError(owner, "seed", "be a whole number from 0 on, or none", repr(seed))
    if groups is not None and len(groups) != len(smiles):
        raise ArgumentError(owner, "groups", f"be one per molecule, {len(smiles)}", len(groups))
    members: dict[object, list[int]] = {}
    for place, group in enumerate(_own_scaffolds(smiles) if groups is None else groups):
        members.setdefault(group, []).append(place)
    names = _deal(list(members.values()), len(smiles), fractions, seed)
    for part in ("train", "test"):
        if part not in names:
            largest = (
                f"{max(map(len, members.values()), default=0)} of {len(smiles)} molecules share a scaffold"
            )
            raise ArgumentError(owner, "smiles", f"have scaffolds enough to fill the part to {part}", largest)
    return split_from_names(names)


def _deal(groups: list[list[int]], molecules: int, fractions: Sequence[float], seed: int | None) -> list[str]:
    """The part of each molecule."""
    if seed is not None:
        order = np.random.default_rng(seed).permutation(len(groups))
        groups = [groups[place] for place in order]
    groups = sorted(groups, key=len, reverse=True)  # stable: equal ones keep their order
    room = {part: share * molecules for part, share in zip(_PARTS, fractions, strict=True)}
    names = [""] * molecules
    for group in groups:
        fits = (part for part in _PARTS[:2] if len(group) <= room[part] + 1e-9)
        part = next(fits, "test")
        room[part] -= len(group)
        for place in group:
            names[place] = part
    return names


def _own_scaffolds(smiles: Sequence[str]) -> list[str]:
    """The scaffold of each molecule; where it has no rings, the molecule, as it is in the plane."""
    known = murcko_scaffolds(smiles)
    chem = require("rdkit.Chem", extra="chem", purpose="Splitting by scaffold")
    return [
        scaffold or f"alone {chem.MolToSmiles(chem.MolFromSmiles(text), isomericSmiles=False)}"
        for text, scaffold in zip(smiles, known, strict=True)
    ]
