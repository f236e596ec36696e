"""Molecules drawn by RDKit, their atoms coloured by capsule. Needs the extra ``chem``."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphcaps.data.molecules import ATOM_COLUMNS, BOND_LABELS, LONGEST_SMILES
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation.drawings_base import check_ending, colour_of
from graphcaps.explanation.molecule_labels import BONDS, ELEMENTS
from graphcaps.explanation.types import Explanation
from graphcaps.files import write_atomically
from graphcaps.imports import require

__all__ = [
    "can_draw_molecule",
    "draw_explained_molecule",
    "draw_molecule",
    "molecule_from_smiles",
    "molecule_from_store",
]

_ENDINGS = (".svg", ".png")
_LEGEND = 196  # width of the legend, in pixels
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
    if numbers is not None:
        return _molecule_of(numbers, labels, _bonds_once(own))
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


def _molecule_of(numbers: Tensor, labels: Tensor | None, bonds: Iterable[tuple[int, int, int]]) -> Any:
    """A molecule from elements, labels of nodes and of edges as :mod:`graphcaps.data.molecules` gives them."""
    chem = require("rdkit.Chem", extra="chem", purpose=_PURPOSE)
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
    require("rdkit.Chem.rdDepictor", extra="chem", purpose=_PURPOSE).Compute2DCoords(whole)
    return whole


def can_draw_molecule(explanation: Explanation, path: str | Path) -> bool:
    """Whether the graph was read from SMILES, the path's ending is one that RDKit draws, and RDKit is there."""
    drawn = Path(path).suffix.lower() in _ENDINGS and explanation.elements is not None
    return drawn and importlib.util.find_spec("rdkit") is not None


def draw_explained_molecule(explanation: Explanation, path: str | Path, molecule: Any = None) -> None:
    """Draws an explanation of a molecule by :func:`draw_molecule`, with class and probability under it.

    Args:
        explanation (Explanation): Of one graph.
        path (str or Path): Picture to write.
        molecule (Mol, optional): The same molecule, where more is known of it, such as its hydrogens. (default: from
            the elements and bonds that the explanation keeps)

    Raises:
        ArgumentError: If it was not read from SMILES and no ``molecule`` is given.
    """
    if molecule is None:
        numbers, labels = explanation.elements, explanation.node_labels
        if numbers is None:
            raise ArgumentError(
                "draw_explanation",
                "kind",
                "be another for a graph that was not read from SMILES",
                "'molecule'",
            )
        bonds = [-1] * explanation.edges.size(1) if explanation.bonds is None else explanation.bonds.tolist()
        molecule = _molecule_of(numbers, labels, zip(*explanation.edges.tolist(), bonds, strict=True))
    name, share = explanation.class_names[explanation.predicted], explanation.probabilities.max()
    draw_molecule(
        path,
        molecule,
        explanation.levels[0].capsule,
        title=f"{name}, {float(share):.0%}",
        numbers=None if explanation.nodes is None else [node + 1 for node in explanation.nodes.tolist()],
    )


def draw_molecule(
    path: str | Path,
    molecule: Any,
    capsule: Tensor | np.ndarray | Sequence[int],
    *,
    title: str = "",
    size: tuple[int, int] = (700, 420),
    numbers: Sequence[int] | None = None,
) -> None:
    """Draws a molecule with its atoms coloured by capsule, and a legend, as SVG or PNG by the path's ending.

    Beside each atom stands its element and number, such as O8, as ``graphcaps explain`` writes them.

    Args:
        path (str or Path): Picture to write.
        molecule (Mol): From :func:`molecule_from_smiles` or :func:`molecule_from_store`, or RDKit's own.
        capsule (Tensor or sequence): Capsule of each atom, from 0, ``[n]``; below zero is none. The first level of
            an explanation has it: ``explanation.levels[0].capsule``.
        title (str): A line under the molecule.
        size (tuple): Width and height in pixels, the legend included. (default: 700 × 420)
        numbers (sequence, optional): What is written beside each atom. (default: counted from 1)

    Raises:
        ShapeError: If there is not one capsule per atom.
        ArgumentError: If the ending is neither ``.svg`` nor ``.png``.
        MissingExtraError: Without RDKit.
    """
    ending = check_ending("draw_molecule", path, _ENDINGS)
    drawing = require("rdkit.Chem.Draw.rdMolDraw2D", extra="chem", purpose=_PURPOSE)
    count = molecule.GetNumAtoms()
    capsules = [int(number) for number in np.asarray(capsule).reshape(-1)]
    written = list(range(1, count + 1)) if numbers is None else [int(number) for number in numbers]
    for name, values in (("capsule", capsules), ("numbers", written)):
        if len(values) != count:
            raise ShapeError("draw_molecule", name, f"be one per atom, {count}", len(values))
    maker = drawing.MolDraw2DSVG if ending == ".svg" else drawing.MolDraw2DCairo
    width, height = size
    drawer = maker(width, height, width - _LEGEND, height)
    _draw(drawing, drawer, molecule, capsules, written, title)
    _legend(drawer, capsules, width, height)
    drawer.FinishDrawing()
    text = drawer.GetDrawingText()
    write_atomically(path, text)


def _draw(
    drawing: Any, drawer: Any, molecule: Any, numbers: list[int], written: list[int], title: str
) -> None:
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
    # The name by which the text output calls an atom; an element that is not known has none.
    marked = type(molecule)(molecule)
    if any(atom.HasProp("atomLabel") for atom in molecule.GetAtoms()):
        title = f"{title} {_NO_ELEMENTS}".strip()
    for atom, number in zip(marked.GetAtoms(), written, strict=True):
        atom.SetProp("atomNote", f"{atom.GetSymbol() if atom.GetAtomicNum() else ''}{number}")
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
    for row, number in enumerate(used):
        y = top + row * step
        drawer.SetFillPolys(True)
        drawer.SetColour(_rgb(number))
        drawer.DrawEllipse(point(left, y - 8), point(left + 16, y + 8), True)
        drawer.SetColour((0.1, 0.1, 0.1))
        count = numbers.count(number)
        told = f"capsule {number + 1} ({count} atom{'' if count == 1 else 's'})"
        drawer.DrawString(told, point(left + 24, y), _START, True)


def _rgb(number: int) -> tuple[float, ...]:
    """The capsule's colour, lightened so that letters on it stay readable."""
    colour = colour_of(number)
    return tuple(0.45 + 0.55 * int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
