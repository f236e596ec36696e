"""Molecules drawn by RDKit, their atoms coloured by capsule. Needs the extra ``chem``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphcaps.data.molecules import ATOM_COLUMNS, BOND_LABELS, LONGEST_SMILES
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation.drawings_base import check_ending, colour_of
from graphcaps.explanation.molecule_labels import BONDS, ELEMENTS
from graphcaps.files import write_atomically
from graphcaps.imports import require

__all__ = ["draw_molecule", "molecule_from_smiles", "molecule_from_store"]

_LEGEND = 130  # width of the legend, in pixels
_START = 1  # RDKit's word for text that begins at its place
_NO_ELEMENTS = "(label numbers: the data set names no elements)"
_PURPOSE = "Drawing molecules"


def molecule_from_smiles(smiles: str) -> Any:
    """An RDKit molecule with places, its atoms in the order of the text; hydrogens stay implied.

    Raises:
        ArgumentError: If RDKit cannot read the text, or it is longer than a SMILES may be.
        MissingExtraError: Without RDKit.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
    log = require("rdkit.rdBase", extra="chem", purpose=_PURPOSE)
    if len(smiles) > LONGEST_SMILES:
        expected = f"have at most {LONGEST_SMILES:,} characters"
        raise ArgumentError("molecule_from_smiles", "smiles", expected, f"{len(smiles):,}")
    with log.BlockLogs():  # the reason is said once, below
        molecule = chem.MolFromSmiles(smiles)
    if molecule is None or not molecule.GetNumAtoms():
        raise ArgumentError("molecule_from_smiles", "smiles", "be a molecule in SMILES", repr(smiles))
    require("rdkit.Chem.rdDepictor", extra="chem", purpose=_PURPOSE).Compute2DCoords(molecule)
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
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
    own = store[graph]
    labels = own.node_labels
    numbers = own.truth.get("element") if dataset is None else None
    molecule = chem.RWMol()
    if numbers is not None:
        full = labels is not None and labels.size(-1) == len(ATOM_COLUMNS["full"])
        for row, number in enumerate(numbers.tolist()):
            atom = chem.Atom(number)
            if full and labels is not None:
                _, charge, _, hydrogens = labels[row].tolist()
                atom.SetFormalCharge(charge)
                atom.SetNumExplicitHs(hydrogens)
            atom.SetNoImplicit(True)
            molecule.AddAtom(atom)
        _add_bonds(chem, molecule, own, ("single", *BOND_LABELS.values()))
    else:
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
        _add_bonds(chem, molecule, own, BONDS.get(name, ()))
    whole = molecule.GetMol()
    chem.FastFindRings(whole)
    require("rdkit.Chem.rdDepictor", extra="chem", purpose=_PURPOSE).Compute2DCoords(whole)
    return whole


def _add_bonds(chem: Any, molecule: Any, own: GraphStore, names: Sequence[str]) -> None:
    kinds = {
        "single": chem.BondType.SINGLE,
        "double": chem.BondType.DOUBLE,
        "triple": chem.BondType.TRIPLE,
        "aromatic": chem.BondType.AROMATIC,
        "other": chem.BondType.UNSPECIFIED,
    }
    ends = own.edge_ptr.tolist()
    for node in range(own.num_nodes):
        for entry in range(ends[node], ends[node + 1]):
            other = int(own.neighbours[entry])
            if other <= node:
                continue
            label = -1 if own.edge_labels is None else int(own.edge_labels[entry, 0])
            kind = names[label] if 0 <= label < len(names) else "single"
            molecule.AddBond(node, other, kinds[kind])
            if kind == "aromatic":
                molecule.GetBondBetweenAtoms(node, other).SetIsAromatic(True)
                for atom in (node, other):
                    molecule.GetAtomWithIdx(atom).SetIsAromatic(True)


def draw_molecule(
    path: str | Path,
    molecule: Any,
    capsule: Tensor | np.ndarray | Sequence[int],
    *,
    title: str = "",
    size: tuple[int, int] = (640, 420),
) -> None:
    """Draws a molecule with its atoms coloured by capsule, and a legend, as SVG or PNG by the path's ending.

    Args:
        path (str or Path): Picture to write.
        molecule (Mol): From :func:`molecule_from_smiles` or :func:`molecule_from_store`, or RDKit's own.
        capsule (Tensor or sequence): Capsule of each atom, from 0, ``[n]``; below zero is none. The first level of
            an explanation has it: ``explanation.levels[0].capsule``.
        title (str): A line under the molecule.
        size (tuple): Width and height in pixels, the legend included. (default: 640 × 420)

    Raises:
        ShapeError: If there is not one capsule per atom.
        ArgumentError: If the ending is neither ``.svg`` nor ``.png``.
        MissingExtraError: Without RDKit.
    """
    ending = check_ending("draw_molecule", path, (".svg", ".png"))
    drawing = require("rdkit.Chem.Draw.rdMolDraw2D", extra="chem", purpose=_PURPOSE)
    numbers = [int(number) for number in np.asarray(capsule).reshape(-1)]
    if len(numbers) != molecule.GetNumAtoms():
        raise ShapeError(
            "draw_molecule", "capsule", f"be one per atom, {molecule.GetNumAtoms()}", len(numbers)
        )
    maker = drawing.MolDraw2DSVG if ending == ".svg" else drawing.MolDraw2DCairo
    width, height = size
    drawer = maker(width, height, width - _LEGEND, height)
    _draw(drawing, drawer, molecule, numbers, title)
    _legend(drawer, numbers, width, height)
    drawer.FinishDrawing()
    text = drawer.GetDrawingText()
    write_atomically(path, text)


def _draw(drawing: Any, drawer: Any, molecule: Any, numbers: list[int], title: str) -> None:
    options = drawer.drawOptions()
    options.useBWAtomPalette()  # letters in black: colours are the capsules'
    options.fillHighlights = True
    options.highlightBondWidthMultiplier = 12
    options.circleAtoms = True
    options.legendFontSize = 17
    # Where no element is known there are no valences to check; what RDKit itself read is prepared as usual.
    options.prepareMolsBeforeDrawing = not molecule.NeedsUpdatePropertyCache()
    chosen = [atom for atom, number in enumerate(numbers) if number >= 0]
    colours = {atom: _rgb(numbers[atom]) for atom in chosen}
    # A bond takes the colour of its ends where both belong to one capsule.
    bonds: dict[int, tuple[float, ...]] = {}
    for bond in molecule.GetBonds():
        a, b = numbers[bond.GetBeginAtomIdx()], numbers[bond.GetEndAtomIdx()]
        if a == b and a >= 0:
            bonds[bond.GetIdx()] = _rgb(a)
    # Numbers make it readable without colour.
    marked = type(molecule)(molecule)
    if any(atom.HasProp("atomLabel") for atom in molecule.GetAtoms()):
        title = f"{title} {_NO_ELEMENTS}".strip()
    for atom in chosen:
        marked.GetAtomWithIdx(atom).SetProp("atomNote", str(numbers[atom] + 1))
    drawer.DrawMolecule(
        marked,
        highlightAtoms=chosen,
        highlightAtomColors=colours,
        highlightBonds=list(bonds),
        highlightBondColors=bonds,
        legend=title,
    )


def _legend(drawer: Any, numbers: list[int], width: int, height: int) -> None:
    """A disc per capsule that has atoms, with its number and how many."""
    point = require("rdkit.Geometry.rdGeometry", extra="chem", purpose=_PURPOSE).Point2D
    used = sorted({number for number in numbers if number >= 0})
    step = min(30.0, (height - 40) / max(1, len(used) + 1))
    left, top = width - _LEGEND + 14.0, 30.0
    drawer.SetFontSize(14)
    drawer.SetColour((0.1, 0.1, 0.1))
    drawer.DrawString("capsule: atoms", point(left, top), _START, True)
    for row, number in enumerate(used, start=1):
        y = top + row * step
        drawer.SetFillPolys(True)
        drawer.SetColour(_rgb(number))
        drawer.DrawEllipse(point(left, y - 8), point(left + 16, y + 8), True)
        drawer.SetColour((0.1, 0.1, 0.1))
        drawer.DrawString(f"{number + 1}: {numbers.count(number)}", point(left + 26, y), _START, True)


def _rgb(number: int) -> tuple[float, ...]:
    """The capsule's colour, lightened so that letters on it stay readable."""
    colour = colour_of(number)
    return tuple(0.45 + 0.55 * int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
