"""Molecules drawn by RDKit, their atoms coloured by capsule and by score. Needs the extra ``chem``."""

from __future__ import annotations

import importlib.util
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.optional_imports import require
from graphcaps.data.datasets.element_labels import EDGE_LABEL_BONDS, NODE_LABEL_ELEMENTS
from graphcaps.data.readers.molecules import ATOM_COLUMNS, BOND_LABELS, MAX_SMILES_LENGTH
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.explanation.drawings import (
    BLANK,
    capsule_colour,
    check_suffix,
    class_label,
    normalise_scores,
    score_colour,
)
from graphcaps.explanation.explanation import Explanation

__all__ = [
    "PURPOSE",
    "can_draw_molecule",
    "draw_explained_molecule",
    "draw_molecule",
    "molecule_from_elements",
    "molecule_from_smiles",
    "molecule_from_store",
]


PURPOSE = "Drawing molecules"


def molecule_from_smiles(smiles: str) -> Any:
    """An RDKit molecule with places, its atoms in the order of the text; hydrogens stay implied.

    Raises:
        ArgumentError: If RDKit cannot read the text, or it is longer than a SMILES may be.
        MissingExtraError: Without RDKit.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    log = require("rdkit.rdBase", extra="chem", purpose=PURPOSE)
    if len(smiles) > MAX_SMILES_LENGTH:
        expected = f"have at most {MAX_SMILES_LENGTH:,} characters"
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
    elements = NODE_LABEL_ELEMENTS.get(name, ())
    for label in labels[:, 0].tolist():
        known = 0 <= label < len(elements)
        atom = chem.Atom(elements[label] if known else 0)
        atom.SetNoImplicit(True)
        if not known:
            atom.SetProp("atomLabel", str(label))
        molecule.AddAtom(atom)
    return _with_bonds(chem, molecule, _bonds_once(own), EDGE_LABEL_BONDS.get(name, ()))


def molecule_from_elements(
    numbers: Tensor, labels: Tensor | None, bonds: Iterable[tuple[int, int, int]]
) -> Any:
    """A molecule from elements, labels of nodes and of edges as :mod:`graphcaps.data.readers.molecules` gives them."""
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


_ENDINGS = (".svg", ".png")
_LEGEND = 196  # width of the legend, in pixels
_START = 1  # RDKit's word for text that begins at its place
_WIDEST_TITLE, _WIDEST_WORDS = 60, 21  # letters
# RDKit reads tags in what it writes (and dies of a title that begins with one), and has no letters but these.
_LETTERS = {"<": "(", ">": ")", "μ": "u", "−": "-", "–": "-", "’": "'"}
_NO_ELEMENTS = "(label numbers: the data set names no elements)"

Colours = dict[int, tuple[float, ...]]


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
        molecule = molecule_from_elements(
            numbers, labels, zip(*explanation.edges.tolist(), bonds, strict=True)
        )
    name, share = class_label(explanation.class_names[explanation.predicted]), explanation.probabilities.max()
    draw_molecule(
        path,
        molecule,
        explanation.levels[0].capsule,
        title=f"{_told(name, _WIDEST_TITLE - 6)}, {float(share):.0%}",
        scores=explanation.node_scores,
        scored=class_label(explanation.class_names[explanation.target]),
        numbers=None if explanation.nodes is None else [node + 1 for node in explanation.nodes.tolist()],
    )


def draw_molecule(
    path: str | Path,
    molecule: Any,
    capsule: Tensor | np.ndarray | Sequence[int],
    *,
    title: str = "",
    scores: Tensor | np.ndarray | Sequence[float] | None = None,
    scored: str = "the class",
    size: tuple[int, int] | None = None,
    numbers: Sequence[int] | None = None,
) -> None:
    """Draws a molecule with its atoms coloured by capsule, and a legend, as SVG or PNG by the path's ending.

    With ``scores`` it is drawn once more below, its atoms orange where they speak for a class and blue where they
    speak against it.

    Beside each atom stands its element and number, such as O8, as ``graphcaps explain`` writes them.

    Args:
        path (str or Path): Picture to write.
        molecule (Mol): From :func:`molecule_from_smiles` or :func:`molecule_from_store`, or RDKit's own.
        capsule (Tensor or sequence): Capsule of each atom, from 0, ``[n]``; below zero is none. The first level of
            an explanation has it: ``explanation.levels[0].capsule``.
        title (str): A line under the molecule. RDKit writes ASCII: other letters are replaced.
        scores (Tensor or sequence, optional): How far each atom speaks for a class, ``[n]``; an explanation has
            them: ``explanation.node_scores``.
        scored (str): The class of the scores, for the legend.
        size (tuple): Width and height in pixels, the legend included. (default: 700 × 420; with scores 700 × 640)
        numbers (sequence, optional): What is written beside each atom. (default: counted from 1)

    Raises:
        ShapeError: If there is not one capsule, or score, per atom.
        ArgumentError: If the ending is neither ``.svg`` nor ``.png``.
        MissingExtraError: Without RDKit.
    """
    ending = check_suffix("draw_molecule", path, _ENDINGS)
    drawing = require("rdkit.Chem.Draw.rdMolDraw2D", extra="chem", purpose=PURPOSE)
    count = molecule.GetNumAtoms()
    capsules = [int(number) for number in np.asarray(capsule).reshape(-1)]
    written = list(range(1, count + 1)) if numbers is None else [int(number) for number in numbers]
    shares = None if scores is None else normalise_scores(scores)
    given = {"capsule": capsules, "numbers": written} | ({} if shares is None else {"scores": shares})
    for name, values in given.items():
        if len(values) != count:
            raise ShapeError("draw_molecule", name, f"be one per atom, {count}", len(values))
    maker = drawing.MolDraw2DSVG if ending == ".svg" else drawing.MolDraw2DCairo
    width, height = size or (700, 420 if shares is None else 640)
    panels = [_by_capsule(molecule, capsules)]
    panels += [] if shares is None else [_by_score(shares)]
    each = height // len(panels)
    drawer = maker(width, height, width - _LEGEND, each)
    _draw(drawer, molecule, panels, written, title)
    _legend(drawer, _words_of_capsules(capsules), width, 0, each)
    if shares is not None:
        words = [
            (_light(score_colour(1)), _told(f"for {scored}", _WIDEST_WORDS)),
            (_light(score_colour(-1)), "against it"),
            (_light(BLANK), f"full colour: {float(np.abs(np.asarray(scores, dtype=float)).max()):.2g}"),
        ]
        _legend(drawer, words, width, each, each)
    drawer.FinishDrawing()
    text = drawer.GetDrawingText()
    write_atomically(path, text)


def _by_capsule(molecule: Any, numbers: list[int]) -> tuple[Colours, Colours]:
    """Colours of atoms, and of bonds whose ends both belong to one capsule."""
    atoms = {atom: _rgb(number) for atom, number in enumerate(numbers) if number >= 0}
    bonds = {}
    for bond in molecule.GetBonds():
        a, b = numbers[bond.GetBeginAtomIdx()], numbers[bond.GetEndAtomIdx()]
        if a == b and a >= 0:
            bonds[bond.GetIdx()] = _rgb(a)
    return atoms, bonds


def _by_score(shares: np.ndarray) -> tuple[Colours, Colours]:
    return {atom: _light(score_colour(share)) for atom, share in enumerate(shares)}, {}


def _draw(
    drawer: Any, molecule: Any, panels: list[tuple[Colours, Colours]], written: list[int], title: str
) -> None:
    options = drawer.drawOptions()
    options.useBWAtomPalette()  # letters in black: colours are the capsules'
    options.fillHighlights = True
    options.highlightBondWidthMultiplier = 12
    options.circleAtoms = True
    options.legendFontSize = 17
    # Where no element is known there are no valences to check; what RDKit itself read is prepared as usual.
    options.prepareMolsBeforeDrawing = not molecule.NeedsUpdatePropertyCache()
    # The name by which the text output calls an atom; an element that is not known has none.
    marked = type(molecule)(molecule)
    note = _NO_ELEMENTS if any(atom.HasProp("atomLabel") for atom in molecule.GetAtoms()) else ""
    title = f"{_told(title, _WIDEST_TITLE - len(note))} {note}".strip()
    for atom, number in zip(marked.GetAtoms(), written, strict=True):
        atom.SetProp("atomNote", f"{atom.GetSymbol() if atom.GetAtomicNum() else ''}{number}")
    drawer.DrawMolecules(
        [marked] * len(panels),
        highlightAtoms=[list(atoms) for atoms, _ in panels],
        highlightAtomColors=[atoms for atoms, _ in panels],
        highlightBonds=[list(bonds) for _, bonds in panels],
        highlightBondColors=[bonds for _, bonds in panels],
        legends=[""] * (len(panels) - 1) + [title],
    )


def _told(text: str, widest: int) -> str:
    """What RDKit can write of a text that a user may have given, cut where it is too wide."""
    folded = "".join(_LETTERS.get(letter, letter) for letter in unicodedata.normalize("NFKD", text))
    known = (
        letter if " " <= letter <= "~" else "?" for letter in folded if not unicodedata.combining(letter)
    )
    shown = "".join(known)
    return shown if len(shown) <= widest else f"{shown[: widest - 3]}..."


def _words_of_capsules(numbers: list[int]) -> list[tuple[tuple[float, ...], str]]:
    """Each capsule that has atoms: its colour, its number and how many."""
    used = sorted({number for number in numbers if number >= 0})
    counts = ((number, numbers.count(number)) for number in used)
    return [
        (_rgb(number), f"capsule {number + 1} ({count} atom{'' if count == 1 else 's'})")
        for number, count in counts
    ]


def _legend(
    drawer: Any, words: list[tuple[tuple[float, ...], str]], width: int, above: int, height: int
) -> None:
    """A disc and words, one below the other, beside the panel that begins at ``above``."""
    point = require("rdkit.Geometry.rdGeometry", extra="chem", purpose=PURPOSE).Point2D
    step = min(30.0, (height - 40) / max(1, len(words) + 1))
    left, top = width - _LEGEND + 14.0, above + 30.0
    drawer.SetFontSize(14)
    for row, (colour, told) in enumerate(words):
        y = top + row * step
        drawer.SetFillPolys(True)
        drawer.SetColour(colour)
        drawer.DrawEllipse(point(left, y - 8), point(left + 16, y + 8), True)
        drawer.SetColour((0.1, 0.1, 0.1))
        drawer.DrawString(told, point(left + 24, y), _START, True)


def _rgb(number: int) -> tuple[float, ...]:
    """The capsule's colour, lightened so that letters on it stay readable."""
    return _light(capsule_colour(number))


def _light(colour: str) -> tuple[float, ...]:
    return tuple(0.45 + 0.55 * int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
