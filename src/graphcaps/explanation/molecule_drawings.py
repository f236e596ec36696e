"""Molecules drawn with RDKit, atoms coloured by capsule and by score. Needs the extra ``chem``."""

from __future__ import annotations

import base64
import importlib.util
import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.optional_imports import require
from graphcaps.chemistry.featurizers import BOND_TYPE, OTHER, find_featurizer
from graphcaps.chemistry.rdkit_pool import call_rdkit
from graphcaps.chemistry.rdkit_tasks import MAX_SMILES_LENGTH
from graphcaps.data.datasets.element_labels import EDGE_LABEL_BONDS, NODE_LABEL_ELEMENTS
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError, UsageError
from graphcaps.explanation.explanation_data import ExplanationData, StoreExplanationData
from graphcaps.explanation.graph_drawing import check_suffix, class_label, normalise_scores
from graphcaps.explanation.palette import WHITE, capsule_colour, score_colour

__all__ = [
    "PURPOSE",
    "build_molecule",
    "can_draw_molecule",
    "describe_molecules",
    "draw_explained_molecule",
    "draw_molecule",
    "molecule_binary",
    "molecule_from_elements",
    "molecule_from_smiles",
    "molecule_from_store",
    "molecules_from_smiles",
    "molecules_known",
]


PURPOSE = "Drawing molecules"

_SUFFIXES = (".svg", ".png")
_LEGEND_WIDTH = 196  # pixels
_ALIGN_START = 1  # RDKit's code for left-aligned text
_MAX_TITLE, _MAX_LEGEND_TEXT = 60, 21  # characters
# RDKit interprets tags in text (and aborts on a title that begins with one), and its font has only ASCII.
_REPLACEMENTS = {"<": "(", ">": ")", "μ": "u", "−": "-", "–": "-", "’": "'"}
_NO_ELEMENTS = "(label numbers; elements are unknown)"

Colours = dict[int, tuple[float, ...]]


def can_draw_molecule(explanation: ExplanationData, path: str | Path) -> bool:
    """Whether the graph was read from SMILES, RDKit can write the suffix, and RDKit is installed."""
    supported = Path(path).suffix.lower() in _SUFFIXES and explanation.elements is not None
    return supported and importlib.util.find_spec("rdkit") is not None


def molecules_known(explanations: StoreExplanationData, store: GraphStore | None) -> bool:
    """Whether the graphs are molecules with known elements: read from SMILES, or of a documented data set.

    Args:
        explanations (StoreExplanation): Explanations of the graphs.
        store (GraphStore, optional): The graphs.
    """
    if explanations.smiles is not None or explanations.elements is not None:
        return True
    has_labels = store is not None and store.node_labels is not None and store.node_labels.size(1) == 1
    known = store is not None and store.name in NODE_LABEL_ELEMENTS and store.name in EDGE_LABEL_BONDS
    return has_labels and known and explanations.nodes is None


def draw_explained_molecule(explanation: ExplanationData, path: str | Path, molecule: Any = None) -> None:
    """Draws the explanation of a molecule with :func:`draw_molecule`, with class and probability as its title.

    Args:
        explanation (Explanation): Explanation of one graph.
        path (str or Path): Picture to write.
        molecule (Mol, optional): The same molecule with more detail, such as hydrogens. (default: from the SMILES of
            the explanation, else from its elements and bonds)

    Raises:
        ArgumentError: If the graph was not read from SMILES and no ``molecule`` is given.
    """
    if molecule is None and explanation.smiles is not None:  # with charges, hydrogens and stereochemistry
        molecule = molecule_from_smiles(explanation.smiles)
    if molecule is None:
        numbers, labels = explanation.elements, explanation.node_labels
        if numbers is None:
            raise ArgumentError(
                "draw_explanation",
                "kind",
                "be another kind for a graph that was not read from SMILES",
                "'molecule'",
            )
        bonds = [-1] * explanation.edges.size(1) if explanation.bonds is None else explanation.bonds.tolist()
        molecule = molecule_from_elements(
            numbers, labels, zip(*explanation.edges.tolist(), bonds, strict=True), explanation.featurizer
        )
    name, probability = (
        class_label(explanation.class_names[explanation.predicted]),
        explanation.probabilities.max(),
    )
    draw_molecule(
        path,
        molecule,
        explanation.levels[0].capsule,
        groups=explanation.levels[0].groups,
        title=f"{_to_ascii(name, _MAX_TITLE - 6)}, {float(probability):.0%}",
        scores=explanation.node_scores,
        scored=class_label(explanation.class_names[explanation.target]),
        numbers=None if explanation.nodes is None else [node + 1 for node in explanation.nodes.tolist()],
        remark="nearly equal routing" if explanation.levels[0].is_nearly_uniform else "",
    )


def draw_molecule(
    path: str | Path,
    molecule: Any,
    capsule: Tensor | np.ndarray | Sequence[int],
    *,
    groups: Tensor | np.ndarray | Sequence[int] | None = None,
    title: str = "",
    scores: Tensor | np.ndarray | Sequence[float] | None = None,
    scored: str = "the class",
    size: tuple[int, int] | None = None,
    numbers: Sequence[int] | None = None,
    remark: str = "",
) -> None:
    """Draws a molecule with atoms coloured by capsule and a legend, as SVG or PNG by the suffix of the path.

    With ``scores`` a second panel below shows the atoms coloured by score: orange for the class, blue against it.
    Atoms are labelled with element and number, such as O8, as in the output of ``graphcaps explain``.

    Args:
        path (str or Path): Picture to write.
        molecule (Mol): From :func:`molecule_from_smiles` or :func:`molecule_from_store`, or RDKit's own.
        capsule (Tensor or sequence): Capsule of each atom, ``[n]``, such as ``explanation.levels[0].capsule``;
            negative numbers mean none.
        groups (Tensor or sequence, optional): Group of each atom, ``[n]``, such as ``explanation.levels[0].groups``.
            Bonds between groups have no colour, so that neighbours with the same capsule can be told apart. (default:
            atoms of a capsule are a group)
        title (str): A line under the molecule; characters outside ASCII are replaced.
        scores (Tensor or sequence, optional): Score of each atom for a class, ``[n]``, such as
            ``explanation.node_scores``.
        scored (str): Name of that class, for the legend.
        size (tuple): Width and height in pixels, the legend included. (default: 700 × 420; with scores 700 × 640)
        numbers (sequence, optional): Number of each atom. (default: 1, 2, …)
        remark (str): A last line of the legend of capsules.

    Raises:
        ShapeError: If there is not one capsule, group or score per atom.
        ArgumentError: If the suffix is neither ``.svg`` nor ``.png``.
        MissingExtraError: Without RDKit.
    """
    suffix = check_suffix("draw_molecule", path, _SUFFIXES)
    drawing = require("rdkit.Chem.Draw.rdMolDraw2D", extra="chem", purpose=PURPOSE)
    count = molecule.GetNumAtoms()
    capsules = [int(number) for number in np.asarray(capsule).reshape(-1)]
    group_numbers = capsules if groups is None else [int(number) for number in np.asarray(groups).reshape(-1)]
    atom_numbers = list(range(1, count + 1)) if numbers is None else [int(number) for number in numbers]
    normalised = None if scores is None else normalise_scores(scores)
    per_atom = {"capsule": capsules, "groups": group_numbers, "numbers": atom_numbers} | (
        {} if normalised is None else {"scores": normalised}
    )
    for name, values in per_atom.items():
        if len(values) != count:
            raise ShapeError("draw_molecule", name, f"be one per atom, {count}", len(values))
    drawer_class = drawing.MolDraw2DSVG if suffix == ".svg" else drawing.MolDraw2DCairo
    width, height = size or (700, 420 if normalised is None else 640)
    panels = [_by_capsule(molecule, capsules, group_numbers)]
    panels += [] if normalised is None else [_by_score(normalised)]
    panel_height = height // len(panels)
    drawer = drawer_class(width, height, width - _LEGEND_WIDTH, panel_height)
    _draw(drawer, molecule, panels, atom_numbers, title)
    remarks = [(_light(WHITE), _to_ascii(remark, _MAX_LEGEND_TEXT))] if remark else []
    _draw_legend(drawer, _capsule_legend(capsules) + remarks, width, 0, panel_height)
    if normalised is not None:
        entries = [
            (_light(score_colour(1)), _to_ascii(f"for {scored}", _MAX_LEGEND_TEXT)),
            (_light(score_colour(-1)), "against it"),
            (_light(WHITE), f"full colour: {float(np.abs(np.asarray(scores, dtype=float)).max()):.2g}"),
        ]
        _draw_legend(drawer, entries, width, panel_height, panel_height)
    drawer.FinishDrawing()
    write_atomically(path, drawer.GetDrawingText())


def _by_capsule(molecule: Any, capsules: list[int], groups: list[int]) -> tuple[Colours, Colours]:
    """Colours of atoms, and of bonds between two atoms of the same capsule and group."""
    atoms = {atom: _rgb(number) for atom, number in enumerate(capsules) if number >= 0}
    bonds = {}
    for bond in molecule.GetBonds():
        a, b = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if (capsules[a], groups[a]) == (capsules[b], groups[b]) and capsules[a] >= 0:
            bonds[bond.GetIdx()] = _rgb(capsules[a])
    return atoms, bonds


def _by_score(scores: np.ndarray) -> tuple[Colours, Colours]:
    return {atom: _light(score_colour(score)) for atom, score in enumerate(scores)}, {}


def _draw(
    drawer: Any, molecule: Any, panels: list[tuple[Colours, Colours]], atom_numbers: list[int], title: str
) -> None:
    options = drawer.drawOptions()
    options.useBWAtomPalette()  # atom symbols in black: colours show capsules
    options.fillHighlights = True
    options.highlightBondWidthMultiplier = 12
    options.circleAtoms = True
    options.legendFontSize = 17
    # Molecules built from labels have no valences to check; those that RDKit parsed are prepared as usual.
    options.prepareMolsBeforeDrawing = not molecule.NeedsUpdatePropertyCache()
    # The atom name of the text output; an atom without a known element has only its number.
    marked = type(molecule)(molecule)
    note = _NO_ELEMENTS if any(atom.HasProp("atomLabel") for atom in molecule.GetAtoms()) else ""
    title = f"{_to_ascii(title, _MAX_TITLE - len(note))} {note}".strip()
    for atom, number in zip(marked.GetAtoms(), atom_numbers, strict=True):
        atom.SetProp("atomNote", f"{atom.GetSymbol() if atom.GetAtomicNum() else ''}{number}")
    drawer.DrawMolecules(
        [marked] * len(panels),
        highlightAtoms=[list(atoms) for atoms, _ in panels],
        highlightAtomColors=[atoms for atoms, _ in panels],
        highlightBonds=[list(bonds) for _, bonds in panels],
        highlightBondColors=[bonds for _, bonds in panels],
        legends=[""] * (len(panels) - 1) + [title],
    )


def _to_ascii(text: str, max_length: int) -> str:
    """Text that RDKit can write: ASCII without angle brackets, truncated if too long."""
    folded = "".join(_REPLACEMENTS.get(letter, letter) for letter in unicodedata.normalize("NFKD", text))
    characters = (
        letter if " " <= letter <= "~" else "?" for letter in folded if not unicodedata.combining(letter)
    )
    ascii_text = "".join(characters)
    return ascii_text if len(ascii_text) <= max_length else f"{ascii_text[: max_length - 3]}..."


def _capsule_legend(numbers: list[int]) -> list[tuple[tuple[float, ...], str]]:
    """Colour and text of each capsule that has atoms."""
    used = sorted({number for number in numbers if number >= 0})
    counts = ((number, numbers.count(number)) for number in used)
    return [
        (_rgb(number), f"capsule {number + 1} ({count} atom{'' if count == 1 else 's'})")
        for number, count in counts
    ]


def _draw_legend(
    drawer: Any, entries: list[tuple[tuple[float, ...], str]], width: int, above: int, height: int
) -> None:
    """Discs with texts, one below the other, beside the panel whose upper edge is at ``above``."""
    point = require("rdkit.Geometry.rdGeometry", extra="chem", purpose=PURPOSE).Point2D
    step = min(30.0, (height - 40) / max(1, len(entries) + 1))
    left, top = width - _LEGEND_WIDTH + 14.0, above + 30.0
    drawer.SetFontSize(14)
    for row, (colour, text) in enumerate(entries):
        y = top + row * step
        drawer.SetFillPolys(True)
        drawer.SetColour(colour)
        drawer.DrawEllipse(point(left, y - 8), point(left + 16, y + 8), True)
        drawer.SetColour((0.1, 0.1, 0.1))
        drawer.DrawString(text, point(left + 24, y), _ALIGN_START, True)


def _rgb(number: int) -> tuple[float, ...]:
    """The colour of a capsule, lightened so that text on it is readable."""
    return _light(capsule_colour(number))


def _light(colour: str) -> tuple[float, ...]:
    return tuple(0.45 + 0.55 * int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


def molecule_from_smiles(smiles: str) -> Any:
    """An RDKit molecule with 2D coordinates from SMILES; atoms in the order of the text, hydrogens implicit.

    Raises:
        ArgumentError: If RDKit cannot read the text, or it is too long.
        MissingExtraError: Without RDKit.
    """
    if len(smiles) > MAX_SMILES_LENGTH:
        expected = f"have at most {MAX_SMILES_LENGTH:,} characters"
        raise ArgumentError("molecule_from_smiles", "smiles", expected, f"{len(smiles):,}")
    (molecule,) = molecules_from_smiles([smiles])
    if molecule is None:
        raise ArgumentError("molecule_from_smiles", "smiles", "be a valid SMILES", repr(smiles[:80]))
    return molecule


def molecules_from_smiles(smiles: Sequence[str], *, kekulize: bool = False) -> list[Any]:
    """As :func:`molecule_from_smiles`, of many molecules; ``None`` for one that RDKit cannot read or place.

    Args:
        smiles (sequence): One SMILES per molecule.
        kekulize (bool): With alternating instead of aromatic bonds, and with wedges. (default: ``False``)
    """
    answers = call_rdkit("draw-smiles", smiles, {"kekulize": kekulize}, purpose=PURPOSE)
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    return [None if answer.problem else chem.Mol(answer.content) for answer in answers]


def molecule_from_store(store: GraphStore, graph: int, *, dataset: str | None = None) -> Any:
    """A graph of a store as an RDKit molecule with 2D coordinates, atoms in the order of its nodes.

    Elements and bonds are known if the graphs were read from SMILES (``store.truth["element"]``) or if the README of
    the data set documents its labels (MUTAG, PTC_MR). Otherwise (NCI1, NCI109) an atom is shown as its label number,
    and every bond is single. Charges and hydrogens are drawn if the featurizer of the molecules has such columns. They
    are never added, so valences are not checked.

    Args:
        store (GraphStore): Graphs read from SMILES, or with one node label per node.
        graph (int): Index of the graph.
        dataset (str, optional): Data set whose label meanings apply. (default: SMILES if the store was read from it,
            else the data set with the name of the store)

    Raises:
        ArgumentError: If the nodes do not have exactly one label each.
    """
    own = store[graph]
    numbers = own.truth.get("element") if dataset is None else None
    if numbers is not None:
        return molecule_from_elements(numbers, own.node_labels, _bonds_once(own), own.featurizer)
    return _place(build_molecule(own, store.name if dataset is None else dataset))


def build_molecule(own: GraphStore, dataset: str) -> Any:
    """A graph with node labels as an RDKit molecule without coordinates, see :func:`molecule_from_store`.

    Args:
        own (GraphStore): A store of one graph.
        dataset (str): Data set whose label meanings apply.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    molecule, labels = chem.RWMol(), own.node_labels
    if labels is None or labels.size(-1) != 1:
        got = "none" if labels is None else f"{labels.size(-1)} columns"
        raise ArgumentError("molecule_from_store", "store", "have one label per node", got)
    elements = NODE_LABEL_ELEMENTS.get(dataset, ())
    for label in labels[:, 0].tolist():
        known = 0 <= label < len(elements)
        atom = chem.Atom(elements[label] if known else 0)
        atom.SetNoImplicit(True)
        if not known:
            atom.SetProp("atomLabel", str(label))
        molecule.AddAtom(atom)
    return _with_bonds(chem, molecule, _bonds_once(own), EDGE_LABEL_BONDS.get(dataset, ()))


def describe_molecules(store: GraphStore, dataset: str) -> list[str]:
    """The graphs of a store as the task ``"check-valences"`` of :mod:`graphcaps.chemistry.rdkit_tasks` reads them.

    Args:
        store (GraphStore): Graphs with one label per node and one per edge, on the CPU.
        dataset (str): Data set whose label meanings apply.
    """
    assert store.node_labels is not None
    assert store.edge_labels is not None
    elements = _names(store.node_labels[:, 0].tolist(), NODE_LABEL_ELEMENTS[dataset], "*")
    source = np.repeat(np.arange(store.num_nodes), np.diff(store.edge_ptr.numpy()))
    first = store.node_ptr.numpy()[:-1].repeat(np.diff(store.host_entry_ptr.numpy()))
    source, target = source - first, store.neighbours.numpy()
    once = np.flatnonzero(source < target)
    kinds = _names(store.edge_labels[:, 0].numpy()[once].tolist(), EDGE_LABEL_BONDS[dataset], "single")
    bonds = list(zip(source[once].tolist(), target[once].tolist(), kinds, strict=True))
    ends = np.searchsorted(once, store.host_entry_ptr.numpy())  # bonds before each graph
    pairs = zip(pairwise(store.node_ptr.tolist()), pairwise(ends.tolist()), strict=True)
    return [
        json.dumps({"elements": elements[node:stop], "bonds": bonds[bond:end]})
        for (node, stop), (bond, end) in pairs
    ]


def _names(labels: Iterable[int], names: Sequence[str], other: str) -> list[str]:
    return [names[label] if 0 <= label < len(names) else other for label in labels]


def molecule_from_elements(
    numbers: Tensor,
    labels: Tensor | None,
    bonds: Iterable[tuple[int, int, int]],
    featurizer: str | None = None,
) -> Any:
    """A molecule from atomic numbers, node labels and bonds, as in :mod:`graphcaps.data.readers.molecules`.

    Args:
        numbers (Tensor): Atomic number of each atom, ``[n]``.
        labels (Tensor, optional): Node labels, ``[n, L]``.
        bonds (Iterable): Two atoms and the code of the bond type of each bond.
        featurizer (str, optional): Featurizer of the labels; with ``"standard"`` they hold charge and hydrogens.
    """
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    molecule = chem.RWMol()
    charges, hydrogens = (_counts(labels, featurizer, column) for column in ("charge", "hydrogens"))
    for row, number in enumerate(numbers.tolist()):
        atom = chem.Atom(number)
        if charges is not None:
            atom.SetFormalCharge(charges[row])
        if hydrogens is not None:
            atom.SetNumExplicitHs(hydrogens[row])
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    return _place(_with_bonds(chem, molecule, bonds, BOND_TYPE.values))


def _counts(labels: Tensor | None, featurizer: str | None, name: str) -> list[int] | None:
    """The numbers of an atom column, 0 for "other"; ``None`` if the labels have no such column."""
    if labels is None or featurizer is None:
        return None
    columns = find_featurizer(featurizer)
    index = columns.atom_column(name)
    if index is None:
        return None
    words = [columns.atoms[index].word(code) for code in labels[:, index].tolist()]
    return [0 if word == OTHER else int(word) for word in words]


def _bonds_once(own: GraphStore) -> Iterator[tuple[int, int, int]]:
    """Each edge once as (smaller node, larger node, edge label); label −1 if there are none."""
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
    return molecule.GetMol()


def molecule_binary(molecule: Any) -> str:
    """RDKit's binary form of a molecule, in base 64, as tasks of :mod:`graphcaps.chemistry.rdkit_tasks` read it."""
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    return base64.b64encode(molecule.ToBinary(chem.PropertyPickleOptions.AllProps)).decode()


def _place(molecule: Any) -> Any:
    """The molecule with 2D coordinates."""
    chem = require("rdkit.Chem", extra="chem", purpose=PURPOSE)
    binary = molecule_binary(molecule)
    (answer,) = call_rdkit("draw-graph", [binary], purpose=PURPOSE)
    if answer.problem:
        raise UsageError(f"The molecule cannot be drawn: {answer.problem}.")
    return chem.Mol(answer.content)
