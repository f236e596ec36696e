"""Molecules written as SMILES, read as graphs. Needs the extra ``chem``.

What is done to each, in this order: it is parsed and sanitised by RDKit (valences checked, aromatic rings found,
however they are written); explicit hydrogens are removed; of several parts set apart by a dot the largest is kept
where that is asked for; the atoms are put in the order of the canonical SMILES, so that a molecule gives the same
arrays however it is written. Charges, tautomers and isotopes stay as written; the arrangement in space is not
part of a graph.

Labels are fixed by the tables below and never depend on the file, so that a model reads new molecules the same
way.

* Node labels: the atomic number (6 is carbon). With ``atoms="full"`` three more columns: formal charge,
  1 in an aromatic ring and else 0, hydrogens.
* Edge labels: 1 single, 2 double, 3 triple, 4 aromatic, 5 any other bond.
* ``store.truth["element"]``: the atomic number once more. It tells whoever draws that labels are elements; no
  model reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from graphcaps._io.optional_imports import require
from graphcaps.data.convert.graph_arrays import GraphArrays, store_from_graphs
from graphcaps.data.readers.row_info import BadRow
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, DataError

__all__ = ["ATOM_COLUMNS", "BOND_LABELS", "LONGEST_SMILES", "MoleculeSet", "from_smiles", "read_smiles"]

ATOM_COLUMNS = {"elements": ("element",), "full": ("element", "charge", "aromatic", "hydrogens")}
"""What each column of the node labels is, by the choice of ``atoms``."""
BOND_LABELS = {1: "single", 2: "double", 3: "triple", 4: "aromatic", 5: "other"}
"""What an edge label stands for."""
LONGEST_SMILES = 5_000
"""Characters of a SMILES that is tried. RDKit walks along bonds by recursion and ends the whole process where the
stack is full: with the usual 8 MiB at a chain of between 16,000 and 20,000 atoms."""

_PURPOSE = "Reading SMILES"
_LONGEST = 80  # characters of a SMILES that a message shows


@dataclass(frozen=True)
class MoleculeSet:
    """Molecules as a store, and what became of each text.

    Args:
        store (GraphStore): A graph for every text that is a molecule.
        smiles (tuple): Their canonical SMILES; atom i of it is node i of the graph.
        kept (tuple): Place of each graph among the texts, from 0.
        skipped (tuple): The others, with their line and the reason.
    """

    store: GraphStore
    smiles: tuple[str, ...]
    kept: tuple[int, ...]
    skipped: tuple[BadRow, ...]


def from_smiles(smiles: Sequence[str], y: Sequence[int | str] | None = None, **choices: Any) -> GraphStore:
    """A store from a list of SMILES, with the class of each; ``choices`` are those of :func:`read_smiles`.

    Example:
        ``store = from_smiles(["CCO", "c1ccccc1"], ["no", "yes"])``
    """
    return read_smiles(smiles, y, **choices).store


def read_smiles(
    smiles: Sequence[str],
    y: Sequence[int | str] | None = None,
    *,
    atoms: Literal["elements", "full"] = "elements",
    fragments: Literal["all", "largest"] = "all",
    bad: Literal["refuse", "skip"] = "refuse",
    class_names: Sequence[str] | None = None,
    name: str = "molecules",
    where: str = "SMILES",
    lines: Sequence[int] | None = None,
) -> MoleculeSet:
    """Reads SMILES as this module says, with what became of each.

    Args:
        smiles (sequence): One text per molecule.
        y (sequence, optional): Class of each, text or whole numbers.
        atoms (str): ``"elements"`` gives nodes the atomic number, ``"full"`` also charge, aromaticity and
            hydrogens. (default: ``"elements"``)
        fragments (str): ``"largest"`` keeps the part with the most atoms (salts lose their counter-ion; of equal
            ones the first in canonical order), ``"all"`` keeps every part. (default: ``"all"``)
        bad (str): ``"refuse"`` raises at the first text that is no molecule, ``"skip"`` leaves it out and lists
            it in ``skipped``. (default: ``"refuse"``)
        class_names (sequence, optional): Names of the classes, where they are known beforehand.
        name (str): Name of the store.
        where (str): What messages call the source. (default: ``"SMILES"``)
        lines (sequence, optional): Line of each text in its file. (default: 1, 2, …)

    Raises:
        DataError: At a text that is no molecule, with its line, the text and the reason.
        MissingExtraError: Without RDKit.
    """
    _check(smiles, y, atoms, fragments, bad)
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
    log = require("rdkit.rdBase", extra="chem", purpose=_PURPOSE)
    graphs, texts, kept, skipped = [], [], [], []
    with log.BlockLogs():  # the reason is said once, by us
        for place, text in enumerate(smiles):
            line = place + 1 if lines is None else lines[place]
            try:
                molecule, written = _parse(chem, text, fragments)
            except _NoMolecule as error:
                if bad == "refuse":
                    found = f"{_shown(text)}: {error}"
                    fix = "Mend the row, or leave such rows out with bad='skip' (--bad skip)."
                    raise DataError(where, "a molecule in SMILES", found, line=line, fix=fix) from error
                skipped.append(BadRow(line, "" if text is None else str(text), str(error)))
                continue
            graphs.append(_arrays(molecule, atoms, None if y is None else y[place]))
            texts.append(written)
            kept.append(place)
    if not graphs:
        first = f" (line {skipped[0].line}: {skipped[0].reason})" if skipped else ""
        raise DataError(where, "at least one molecule in SMILES", f"none{first}")
    store = store_from_graphs(graphs, name, class_names=class_names, owner="from_smiles")
    return MoleculeSet(store, tuple(texts), tuple(kept), tuple(skipped))


def _check(smiles: Sequence[str], y: Sequence[Any] | None, atoms: str, fragments: str, bad: str) -> None:
    owner = "from_smiles"
    if isinstance(smiles, str):
        raise ArgumentError(owner, "smiles", "be a list of texts", "one text", "Put it in a list.")
    if y is not None and len(y) != len(smiles):
        raise ArgumentError(owner, "y", f"give one class per molecule, {len(smiles)}", len(y))
    choices = {"atoms": (atoms, tuple(ATOM_COLUMNS)), "fragments": (fragments, ("all", "largest"))}
    for name, (value, known) in (choices | {"bad": (bad, ("refuse", "skip"))}).items():
        if value not in known:
            raise ArgumentError(owner, name, f"be {' or '.join(map(repr, known))}", repr(value))


class _NoMolecule(Exception):
    """Why a text is no molecule."""


def _parse(chem: Any, text: object, fragments: str) -> tuple[Any, str]:
    """The molecule and its canonical SMILES, atoms in the order of that text."""
    if not isinstance(text, str) or not text.strip():
        raise _NoMolecule("nothing is written there")
    if len(text.split()) > 1:
        raise _NoMolecule("there is a blank in it")
    if len(text.strip()) > LONGEST_SMILES:
        raise _NoMolecule(f"it has {len(text.strip()):,} characters, and {LONGEST_SMILES:,} is the most")
    raw = chem.MolFromSmiles(text.strip(), sanitize=False)
    if raw is None:
        raise _NoMolecule("it does not follow the rules of SMILES")
    problems = chem.DetectChemistryProblems(raw)
    if problems:
        raise _NoMolecule(" ".join(problems[0].Message().split()).rstrip("."))
    molecule = chem.MolFromSmiles(text.strip())  # sanitised, without explicit hydrogens
    if molecule is None or not molecule.GetNumAtoms():
        raise _NoMolecule("there is no atom in it")
    if any(atom.GetAtomicNum() == 0 for atom in molecule.GetAtoms()):
        raise _NoMolecule("an atom in it is written *, which names no element")
    if fragments == "largest":
        parts = chem.GetMolFrags(molecule, asMols=True)
        molecule = min(parts, key=lambda part: (-part.GetNumHeavyAtoms(), chem.MolToSmiles(part)))
    written = chem.MolToSmiles(molecule)
    again = chem.MolFromSmiles(written)
    if again is None:
        raise _NoMolecule("its canonical form cannot be read back")
    return again, written


def _arrays(molecule: Any, atoms: str, y: int | str | None) -> GraphArrays:
    rows = [
        [atom.GetAtomicNum()]
        if atoms == "elements"
        else [atom.GetAtomicNum(), atom.GetFormalCharge(), int(atom.GetIsAromatic()), atom.GetTotalNumHs()]
        for atom in molecule.GetAtoms()
    ]
    ends, labels = [], []
    for bond in molecule.GetBonds():
        a, b, label = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), _bond_label(bond)
        ends += [(a, b), (b, a)]
        labels += [[label], [label]]
    return GraphArrays(
        len(rows),
        torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T,
        y,
        node_labels=torch.tensor(rows, dtype=torch.long),
        edge_labels=torch.tensor(labels, dtype=torch.long).reshape(-1, 1),
        truth={"element": torch.tensor([row[0] for row in rows], dtype=torch.long)},
    )


def _bond_label(bond: Any) -> int:
    if bond.GetIsAromatic():
        return 4
    order = float(bond.GetBondTypeAsDouble())
    plain = str(bond.GetBondType()) in ("SINGLE", "DOUBLE", "TRIPLE")
    return int(order) if plain else 5


def _shown(text: object) -> str:
    written = str(text)
    return repr(written if len(written) <= _LONGEST else written[:_LONGEST] + "…")
