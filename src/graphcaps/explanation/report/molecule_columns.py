"""Molecules as chemists draw them, for the page: positions of atoms, bond orders, wedges and atom symbols.

RDKit computes the drawing. Of a graph read from SMILES everything is known, of other stores elements and bonds where
the labels of the data set are documented (MUTAG, PTC_MR). The page lays out any other graph itself.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcaps.data.store import GraphStore
from graphcaps.errors import UsageError
from graphcaps.explanation.explanation_data import StoreExplanationData
from graphcaps.explanation.molecule_drawings import (
    molecule_from_elements,
    molecule_from_store,
    molecules_from_smiles,
    molecules_known,
)
from graphcaps.explanation.report.report_data import Columns, smallest_type

__all__ = ["molecule_columns"]

_ORDERS = {"SINGLE": 1, "DOUBLE": 2, "TRIPLE": 3, "AROMATIC": 4}  # any other bond is 5
_UNITS = 256  # steps of a coordinate per unit of RDKit; a bond is about 1.5 units long


def molecule_columns(
    explanations: StoreExplanationData, store: GraphStore | None, graphs: np.ndarray
) -> tuple[Columns, dict[str, Any]]:
    """Columns of molecules, and the names that they refer to; both empty if the graphs are not molecules.

    Args:
        explanations (StoreExplanation): Explanations of all graphs.
        store (GraphStore, optional): The graphs, if they are not a single explanation.
        graphs (ndarray): Indices of the graphs to include, ascending.

    Returns:
        tuple: ``atom_x``, ``atom_y`` (all 0 for a graph that is not drawn as a molecule) and ``atom`` per node, the
        index of its symbol in ``atoms``; ``bond`` per edge: 1 to 3 for the order, 4 aromatic, 5 other; ``wedge`` per
        edge: 1 for a solid and −1 for a hashed wedge from its first to its second node, 2 and −2 the other way round.
    """
    if importlib.util.find_spec("rdkit") is None or not molecules_known(explanations, store):
        return {}, {}
    symbols: dict[str, int] = {}
    tables: dict[str, list[np.ndarray]] = {name: [] for name in ("atom_x", "atom_y", "atom", "bond", "wedge")}
    drawn = _drawn_from_smiles(explanations, graphs.tolist())
    for graph in graphs.tolist():
        nodes = slice(*explanations.node_ptr[graph : graph + 2].tolist())
        edges = explanations.edges[:, slice(*explanations.edge_ptr[graph : graph + 2].tolist())].numpy()
        molecule = drawn[graph] if graph in drawn else _molecule(explanations, store, graph)
        n = nodes.stop - nodes.start
        if molecule is None or molecule.GetNumAtoms() != n:
            for name in tables:
                size = edges.shape[1] if name in ("bond", "wedge") else n
                tables[name].append(np.full(size, name == "bond", dtype=np.int64))
            symbols.setdefault("", len(symbols))
            tables["atom"][-1][:] = symbols[""]
            continue
        positions = molecule.GetConformer().GetPositions()[:, :2]
        tables["atom_x"].append(np.round(_UNITS * positions[:, 0]).astype(np.int64))
        tables["atom_y"].append(np.round(-_UNITS * positions[:, 1]).astype(np.int64))
        texts = [_symbol(atom) for atom in molecule.GetAtoms()]
        tables["atom"].append(np.array([symbols.setdefault(text, len(symbols)) for text in texts]))
        orders, wedges = zip(*_bonds(molecule, edges), strict=True) if edges.size else ((), ())
        tables["bond"].append(np.array(orders, dtype=np.int64))
        tables["wedge"].append(np.array(wedges, dtype=np.int64))
    types: dict[str, Any] = {"atom_x": np.int16, "atom_y": np.int16, "bond": np.uint8, "wedge": np.int8}
    types["atom"] = smallest_type(len(symbols))
    limit = np.iinfo(np.int16)
    columns = {
        name: np.concatenate([np.zeros(0, np.int64), *rows]).clip(limit.min, limit.max).astype(types[name])
        for name, rows in tables.items()
    }
    if not columns["wedge"].any():
        del columns["wedge"]
    return columns, {"atoms": list(symbols)}


def _drawn_from_smiles(explanations: StoreExplanationData, graphs: list[int]) -> dict[int, Any]:
    """RDKit molecules of the graphs with SMILES, ``None`` for one that cannot be drawn; all at once, on all cores."""
    smiles = {} if explanations.smiles is None else {graph: explanations.smiles[graph] for graph in graphs}
    written = {graph: text for graph, text in smiles.items() if text is not None}
    return dict(zip(written, molecules_from_smiles(list(written.values()), kekulize=True), strict=True))


def _molecule(explanations: StoreExplanationData, store: GraphStore | None, graph: int) -> Any:
    """The RDKit molecule of a graph without SMILES, with 2D coordinates; ``None`` if RDKit cannot place its atoms."""
    try:
        return _build_molecule(explanations, store, graph)
    except UsageError:
        return None


def _build_molecule(explanations: StoreExplanationData, store: GraphStore | None, graph: int) -> Any:
    if explanations.elements is not None:
        nodes = slice(*explanations.node_ptr[graph : graph + 2].tolist())
        edges = slice(*explanations.edge_ptr[graph : graph + 2].tolist())
        ends = explanations.edges[:, edges].tolist()
        bonds = [0] * len(ends[0]) if explanations.bonds is None else explanations.bonds[edges].tolist()
        labels = None if explanations.node_labels is None else explanations.node_labels[nodes]
        listed = list(zip(*ends, bonds, strict=True))
        return molecule_from_elements(explanations.elements[nodes], labels, listed, explanations.featurizer)
    assert store is not None
    return molecule_from_store(store, graph)


def _symbol(atom: Any) -> str:
    """Element with hydrogens and charge, such as NH2 or O−; "" for a carbon of a skeleton."""
    charge = atom.GetFormalCharge()
    # Of atoms that are built from labels, hydrogens are known only if the labels contain them.
    hydrogens = atom.GetNumExplicitHs() if atom.NeedsUpdatePropertyCache() else atom.GetTotalNumHs()
    if atom.GetAtomicNum() == 6 and not charge and atom.GetDegree() and not atom.GetIsotope():
        return ""
    if not atom.GetAtomicNum():
        return str(atom.GetProp("atomLabel")) if atom.HasProp("atomLabel") else "*"
    sign = "" if not charge else f"{abs(charge) if abs(charge) > 1 else ''}{'+' if charge > 0 else '−'}"
    hydrogen = "" if not hydrogens else f"H{hydrogens if hydrogens > 1 else ''}"
    return f"{atom.GetSymbol()}{hydrogen}{sign}"


def _bonds(molecule: Any, edges: np.ndarray) -> Iterator[tuple[int, int]]:
    """Order and wedge of each edge."""
    for a, b in edges.T.tolist():
        bond = molecule.GetBondBetweenAtoms(a, b)
        direction = str(bond.GetBondDir())
        wedge = {"BEGINWEDGE": 1, "BEGINDASH": -1}.get(direction, 0)
        yield _ORDERS.get(str(bond.GetBondType()), 5), wedge if bond.GetBeginAtomIdx() == a else 2 * wedge
