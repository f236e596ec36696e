"""Names of groups of atoms, from the functional groups that RDKit lists.

RDKit has two lists: the top level of its hierarchy of functional groups (``rdkit.Chem.FunctionalGroups``), which is
asked first, and the fragments that it counts as descriptors (``rdkit.Chem.Fragments``). Both are read from RDKit at run
time. Call this through :mod:`graphcaps.chemistry.rdkit_pool`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from graphcaps._io.optional_imports import require

__all__ = ["group_smarts", "name_group"]

_PURPOSE = "Naming groups of atoms"
_MIN_COVERED = 0.5  # share of the atoms of a group that its name stands for, at least
_MAX_NAMES = 3
# Entries of the fragment list that count sites of a reaction, special cases of other entries, or any nitrogen with as
# many hydrogens.
_NO_GROUP = re.compile(
    r"sites|excluding (?:COOH|diaryl|ortho|tert)|substituents|XCCNR|Bicyclic|tert-|Ctert|attached|ary amines"
)
_END = re.compile(r"(?: \(| -|,|  ?of at least| excluding| with no ).*$")
_KIND = re.compile(r" (?:groups?|rings?)$")


class _Pattern(NamedTuple):
    """A functional group: its name, RDKit's query, and whether it is a mere chain of carbons."""

    name: str
    query: Any
    is_chain: bool


def group_smarts(molecule: Any, atoms: Sequence[int]) -> str:
    """SMARTS of the atoms with the bonds between them.

    Args:
        molecule (Mol): RDKit's molecule.
        atoms (sequence): Indices of atoms.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
    return str(chem.MolFragmentToSmarts(molecule, [int(atom) for atom in atoms]))


def name_group(molecule: Any, atoms: Sequence[int]) -> str:
    """Name of a group of atoms: the functional groups that lie in it, or "" if they are less than half of it.

    Functional groups are taken one after another, that with most atoms first, if none of their atoms is taken yet.

    Args:
        molecule (Mol): RDKit's molecule with rings and hydrogens perceived.
        atoms (sequence): Indices of atoms.
    """
    free = {int(atom) for atom in atoms}
    total, found = len(free), []
    for rank, pattern in enumerate(_patterns()):
        for match in molecule.GetSubstructMatches(pattern.query):
            if free.issuperset(match):
                found.append((pattern.is_chain, -len(match), rank, match))
    names: list[str] = []
    for _, _, rank, match in sorted(found):
        if free.issuperset(match):
            free -= set(match)
            names.append(_patterns()[rank].name)
    if total - len(free) < _MIN_COVERED * total:
        return ""
    distinct = list(dict.fromkeys(names))
    return " + ".join(distinct[:_MAX_NAMES]) + (" + …" if len(distinct) > _MAX_NAMES else "")


@cache
def _patterns() -> tuple[_Pattern, ...]:
    """All functional groups, those of the hierarchy first."""
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
    hierarchy = require("rdkit.Chem.FunctionalGroups", extra="chem", purpose=_PURPOSE)
    fragments = require("rdkit.Chem.Fragments", extra="chem", purpose=_PURPOSE)
    patterns = [
        _Pattern(group.name.lower(), group.pattern, False) for group in hierarchy.BuildFuncGroupHierarchy()
    ]
    with open(fragments.defaultPatternFileName, encoding="utf-8") as file:
        for row in csv.reader(file, delimiter="\t"):
            if len(row) < 3 or not row[0].startswith("fr_") or _NO_GROUP.search(row[1]):
                continue
            query = chem.MolFromSmarts(row[2])
            if query is not None:
                patterns.append(_Pattern(_plain_name(row[1]), query, "alkane" in row[1]))
    return tuple(patterns)


def _plain_name(description: str) -> str:
    """``"benzene"`` of ``"Number of benzene rings"``."""
    text = _KIND.sub("", _END.sub("", description.removeprefix("Number of ")).strip())
    lowered = text if text[:1].isupper() and text[1:2].isupper() else text[:1].lower() + text[1:]
    return lowered[:-1] if lowered.endswith("s") and not lowered.endswith("ss") else lowered
