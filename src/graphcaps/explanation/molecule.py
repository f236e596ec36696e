"""Graphs as molecules of RDKit, atoms in the order of nodes. Needs the extra ``chem``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor

from graphcaps.data.molecules import ATOM_COLUMNS, BOND_LABELS, LONGEST_SMILES
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.explanation.molecule_labels import BONDS, ELEMENTS
from graphcaps.imports import require

__all__ = ["PURPOSE", "molecule_from_elements", "molecule_from_smiles", "molecule_from_store"]

PURPOSE = "Drawing molecules"


def molecule_from_smiles(smiles: str) -> Any:
    """An RDKit molecule with places, its atoms in the order of the text; hydrogens stay implied.

    Raises:
        ArgumentError: If RDKit cannot read the text, or it is longer than a SMILES may be.
        MissingExtraError: Without RDKit.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    log = require("rdkit.rdBase", extra="chem", purpose=PURPOSE)
    if len(smiles) > LONGEST_SMILES:
        expected = f"have at most {LONGEST_SMILES:,} characters"
        raise ArgumentError("molecule_from_smiles", "smiles", expected, f"{len(smiles):,}")
    with log.BlockLogs():  # the reason is said once, below
        molecule = chem.MolFromSmiles(smiles)
    if molecule is None or not molecule.GetNumAtoms():
        raise ArgumentError("molecule_from_smiles", "smiles", "be a molecule in SMILES", repr(smiles))
    require("rdkit.Chem.rdDepictor", extra="chem", purpose=PURPOSE).Compute2DCoords(molecule)
    return molecule


def molecule_from_store(store: GraphStore, graph: int, *, dataset: str | None = None) -> Any:
    """A graph of a store as an RDKit molecule with places, atoms in the order of its nodes.

    Elements and bonds are known where the graphs were read from SMILES (``store.truth["element"]``), and where the
    data set's README says what its labels stand for (MUTAG, PTC_MR). Elsewhere (NCI1, NCI109) an atom is written as
    the number of its label, and every bond is single. Charges and hydrogens are drawn where the labels have them
    (``atoms="full"``) and are not added elsewhere, so that nothing is checked for valence.

    Args:
        store (GraphStore): Graphs read from SMILES, or with one node label per node.
        graph (int): Number of the graph, from 0.
        dataset (str, optional): Whose labels they are. (default: those of SMILES where the store was read from
            them, else of the data set with the name of the store)

    Raises:
        ArgumentError: If nodes have no label, or not one each.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    own = store[graph]
    labels = own.node_labels
    numbers = own.truth.get("element") if dataset is None else None
    if numbers is not None:
        return molecule_from_elements(numbers, labels, _bonds_once(own))
    molecule = chem.RWMol()
    if labels is None or labels.size(-1) != 1:
        got = "none" if labels is None else f"{labels.size(-1)} columns"
        raise ArgumentError("molecule_from_store", "store", "have one label per node", got)
    name = store.name if dataset is None else dataset
    elements = ELEMENTS.get(name, ())
    for label in labels[:, 0].tolist():
        known = 0 <= label < len(elements)
        atom = chem.Atom(elements[label] if known else 0)
        atom.SetNoImplicit(True)
        if not known:
            atom.SetProp("atomLabel", str(label))
        molecule.AddAtom(atom)
    return _with_bonds(chem, molecule, _bonds_once(own), BONDS.get(name, ()))


def molecule_from_elements(
    numbers: Tensor, labels: Tensor | None, bonds: Iterable[tuple[int, int, int]]
) -> Any:
    """A molecule from elements, labels of nodes and of edges as :mod:`graphcaps.data.molecules` gives them."""
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    molecule = chem.RWMol()
    full = labels is not None and labels.size(-1) == len(ATOM_COLUMNS["full"])
    for row, number in enumerate(numbers.tolist()):
        atom = chem.Atom(number)
        if full and labels is not None:
            _, charge, _, hydrogens = labels[row].tolist()
            atom.SetFormalCharge(charge)
            atom.SetNumExplicitHs(hydrogens)
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    return _with_bonds(chem, molecule, bonds, ("single", *BOND_LABELS.values()))


def _bonds_once(own: GraphStore) -> Iterator[tuple[int, int, int]]:
    """Both ends of each edge, smaller first, and its label; −1 where there is none."""
    ends = own.edge_ptr.tolist()
    for node in range(own.num_nodes):
        for entry in range(ends[node], ends[node + 1]):
            other = int(own.neighbours[entry])
            if other > node:
                yield node, other, -1 if own.edge_labels is None else int(own.edge_labels[entry, 0])


def _with_bonds(chem: Any, molecule: Any, bonds: Iterable[tuple[int, int, int]], names: Sequence[str]) -> Any:
    kinds = {
        "single": chem.BondType.SINGLE,
        "double": chem.BondType.DOUBLE,
        "triple": chem.BondType.TRIPLE,
        "aromatic": chem.BondType.AROMATIC,
        "other": chem.BondType.UNSPECIFIED,
    }
    for node, other, label in bonds:
        kind = names[label] if 0 <= label < len(names) else "single"
        molecule.AddBond(node, other, kinds[kind])
        if kind == "aromatic":
            molecule.GetBondBetweenAtoms(node, other).SetIsAromatic(True)
            for atom in (node, other):
                molecule.GetAtomWithIdx(atom).SetIsAromatic(True)
    whole = molecule.GetMol()
    chem.FastFindRings(whole)
    require("rdkit.Chem.rdDepictor", extra="chem", purpose=PURPOSE).Compute2DCoords(whole)
    return whole
