"""Every column on molecules picked by hand, and the same columns however a SMILES is written."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphcaps.chemistry.featurizers import (
    BOND_TYPE,
    DEFAULT_FEATURIZER,
    ELEMENT,
    FEATURIZERS,
    OTHER,
    find_featurizer,
)
from graphcaps.data.quality.duplicates import find_duplicates
from graphcaps.data.readers.molecules import from_smiles, read_smiles
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

chem = pytest.importorskip("rdkit.Chem")

MOLECULES = (
    "CC(=O)Oc1ccccc1C(=O)O",
    "CN1CCC[C@H]1c1cccnc1",
    "C[C@@H](O)[C@H](N)C(=O)O",
    "C/C=C/C(=O)/N=C\\c1ccc(Cl)cc1",
    "[Na+].[O-]S(=O)(=O)c1ccc2cc[nH]c2c1",
    "O=[N+]([O-])c1ccc2c(c1)C1CC2C=C1",
    "N[Pt](N)(Cl)Cl",
    "[H][H].[2H]OC",
    "FS(F)(F)(F)(F)c1ccccc1",
    "C1CCCCCCCCC1C#CC1CC1",
    "CC12CCC3C(CCC4CC(O)CCC34C)C1CCC2=O",
    "OB(O)c1ccc(Br)s1",
    "C[Si](C)(C)C#N",
    "[NH3]->[Fe]",
)


def columns_of(text: str, featurizer: str = "standard") -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """The values of each atom and of each bond of a molecule in words; bonds in both directions."""
    store = from_smiles([text], featurizer=featurizer)
    features = FEATURIZERS[featurizer]
    tables = []
    for columns, labels in ((features.atoms, store.node_labels), (features.bonds, store.edge_labels)):
        rows = [] if labels is None else labels.tolist()
        tables.append(
            [{c.name: c.values[code] for c, code in zip(columns, row, strict=True)} for row in rows]
        )
    return tables[0], tables[1]


def atom(text: str, index: int = 0) -> dict[str, str]:
    return columns_of(text)[0][index]


def bonds(text: str, column: str) -> set[str]:
    return {bond[column] for bond in columns_of(text)[1]}


def same_arrays(one: GraphStore, other: GraphStore) -> bool:
    names = ("node_labels", "neighbours", "edge_labels", "edge_ptr", "node_ptr")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return all(a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in pairs)


# ---------------------------------------------------------------------- columns
def test_every_column_of_an_atom() -> None:
    assert atom("C[NH3+]", 1) == {
        "element": "N",
        "charge": "+1",
        "hydrogens": "3",
        "aromatic": "no",
        "ring": "none",
        "hybridisation": "sp3",
        "chirality": "none",
    }
    pyridine, _ = columns_of("c1ccncc1")
    assert {(a["aromatic"], a["ring"], a["hybridisation"]) for a in pyridine} == {("yes", "6", "sp2")}
    assert sorted(a["hydrogens"] for a in pyridine) == ["0", "1", "1", "1", "1", "1"]


@pytest.mark.parametrize(
    ("text", "column", "value"),
    [
        ("[OH-]", "charge", "-1"),
        ("[Ca+2]", "charge", "+2"),
        ("[Fe+3]", "charge", OTHER),
        ("C", "hydrogens", "4"),
        ("[BH4-]", "hydrogens", "4"),
        ("C1CC1", "ring", "3"),
        ("C1CCCCCCC1", "ring", "8"),
        ("C1CCCCCCCC1", "ring", OTHER),
        ("C1CC2CC12", "ring", "4"),
        ("C#C", "hybridisation", "sp"),
        ("C=C", "hybridisation", "sp2"),
        ("[Na+]", "hybridisation", "s"),
        ("ClP(Cl)(Cl)(Cl)Cl", "hybridisation", "sp3"),
        ("[Pt]", "element", OTHER),
        ("[Cu]", "element", OTHER),
        ("[Se]", "element", "Se"),
        ("[H][H]", "element", "H"),
    ],
)
def test_values_of_atom_columns(text: str, column: str, value: str) -> None:
    assert atom(text)[column] == value


def test_the_ring_column_has_the_smallest_ring() -> None:
    assert sorted(a["ring"] for a in columns_of("C1CCC2CCC2C1")[0]) == ["4"] * 4 + ["6"] * 4


def test_hypervalent_centres() -> None:
    assert "sp3d" in {a["hybridisation"] for a in columns_of("ClP(Cl)(Cl)(Cl)Cl")[0]}
    assert "sp3d2" in {a["hybridisation"] for a in columns_of("FS(F)(F)(F)(F)F")[0]}


def test_chirality_distinguishes_enantiomers() -> None:
    left, right = "C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"
    assert sorted({a["chirality"] for a in columns_of(left)[0]}) == ["S", "none"]  # L-alanine
    assert sorted({a["chirality"] for a in columns_of(right)[0]}) == ["R", "none"]
    assert {a["chirality"] for a in columns_of("CC(N)C(=O)O")[0]} == {"none"}
    store = from_smiles([left, right, "NC(C)C(O)=O", "OC(=O)[C@H](C)N"])
    assert [group.tolist() for group in find_duplicates(store).groups] == [[0, 3]]
    plain = from_smiles([left, right], featurizer="elements")
    assert torch.equal(plain[0].node_labels, plain[1].node_labels)


def test_every_column_of_a_bond() -> None:
    assert bonds("C/C=C/C", "stereo") == {"none", "E"}
    assert bonds("C/C=C\\C", "stereo") == {"none", "Z"}
    assert bonds("CC=CC", "stereo") == {"none"}
    assert bonds("C=CC#N", "type") == {"double", "single", "triple"}
    assert bonds("c1ccccc1", "type") == bonds("C1=CC=CC=C1", "type") == {"aromatic"}
    assert bonds("[NH3]->[Fe]", "type") == {OTHER}
    assert bonds("CC", "conjugated") == {"no"}
    assert bonds("C=CC=C", "conjugated") == {"yes"}
    assert bonds("CC1CC1", "ring") == {"no", "yes"}


def test_molecules_that_elements_confuse_differ() -> None:
    aniline, cyclohexylamine = (from_smiles([text]) for text in ("Nc1ccccc1", "NC1CCCCC1"))
    assert not torch.equal(aniline.node_labels, cyclohexylamine.node_labels)
    one, other = (from_smiles([text], featurizer="elements") for text in ("Nc1ccccc1", "NC1CCCCC1"))
    assert sorted(one.node_labels.flatten().tolist()) == sorted(other.node_labels.flatten().tolist())


def test_a_salt_keeps_both_ions() -> None:
    atoms, _ = columns_of("CC(=O)[O-].[Na+]")
    assert [(a["element"], a["charge"]) for a in atoms][-2:] == [("O", "-1"), ("Na", "+1")]


# ---------------------------------------------------------------------- the same arrays
@pytest.mark.parametrize("featurizer", FEATURIZERS)
def test_arrays_do_not_depend_on_how_the_smiles_is_written(featurizer: str) -> None:
    generator = random.Random(0)
    for text in MOLECULES:
        expected = from_smiles([text], featurizer=featurizer)
        molecule = chem.MolFromSmiles(text)
        for _ in range(12):
            written = chem.MolToSmiles(molecule, doRandom=True, kekuleSmiles=generator.random() < 0.3)
            assert same_arrays(from_smiles([written], featurizer=featurizer), expected), written


def test_one_parse_gives_the_columns_of_the_canonical_smiles() -> None:
    """Slow reference: the canonical SMILES is parsed again, and its atoms are read in their own order."""
    read = read_smiles(MOLECULES)
    for graph, text in enumerate(read.store.smiles):
        molecule = chem.MolFromSmiles(text)
        own = read.store[graph]
        for column, feature in enumerate(FEATURIZERS["standard"].atoms):
            expected = feature.codes(feature.read(molecule, list(molecule.GetAtoms())))
            assert own.node_labels[:, column].tolist() == expected.tolist(), feature.name
        bond_codes = _bond_codes(molecule)
        source = torch.arange(own.num_nodes).repeat_interleave(own.degree).tolist()
        ends = zip(source, own.neighbours.tolist(), strict=True)
        labels = [] if own.edge_labels is None else own.edge_labels.tolist()
        assert {frozenset(pair): tuple(row) for pair, row in zip(ends, labels, strict=True)} == bond_codes


def _bond_codes(molecule: Any) -> dict[frozenset[int], tuple[int, ...]]:
    listed = list(molecule.GetBonds())
    columns = [feature.codes(feature.read(molecule, listed)) for feature in FEATURIZERS["standard"].bonds]
    ends = [frozenset((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx())) for bond in listed]
    return {pair: tuple(int(codes[row]) for codes in columns) for row, pair in enumerate(ends)}


# ---------------------------------------------------------------------- vocabularies
def test_vocabularies_are_fixed() -> None:
    assert list(FEATURIZERS) == ["standard", "elements"]
    assert DEFAULT_FEATURIZER == "standard"
    for featurizer in FEATURIZERS.values():
        assert featurizer.atoms[0] is ELEMENT
        assert featurizer.bonds[0] is BOND_TYPE
        for column in (*featurizer.atoms, *featurizer.bonds):
            assert len(set(column.values)) == len(column.values)
            assert OTHER not in column.values[:-1]
            assert len(column.numbers) == len(column.values) - (column.other is not None)
            assert column.codes(column.numbers).tolist() == list(range(len(column.numbers)))


def test_numbers_outside_a_vocabulary() -> None:
    assert ELEMENT.codes([78, 6, 0]).tolist() == [ELEMENT.other, ELEMENT.values.index("C"), ELEMENT.other]
    stereo = FEATURIZERS["standard"].bonds[-1]
    assert stereo.other is None
    assert [stereo.values[code] for code in stereo.codes(np.array([1, 2, 3, 9]))] == [
        "none",
        "Z",
        "E",
        "none",
    ]
    assert ELEMENT.word(99) == "99"


def test_an_unknown_name_is_refused_with_the_names() -> None:
    expected = r"from_smiles: 'featurizer' must be one of 'standard', 'elements', got 'full'\."
    with pytest.raises(ArgumentError, match=expected):
        from_smiles(["C"], featurizer="full")
    with pytest.raises(ArgumentError, match=r"train: '--atoms' must be one of"):
        find_featurizer("x", "train", "--atoms")


def test_the_store_has_the_name_of_the_featurizer() -> None:
    assert from_smiles(["C"]).featurizer == "standard"
    assert from_smiles(["C"], featurizer="elements").featurizer == "elements"
    lone = from_smiles(["C", "[Na+]"])
    assert (lone.node_labels.shape, lone.edge_labels) == ((2, 7), None)


@pytest.mark.parametrize("kind", ["atoms", "bonds"])
def test_the_page_lists_every_column_and_value(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "featurizers.md").read_text("utf-8")
    table = page.partition(f"| {kind} | values in graphcaps |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    listed = {name.strip("`"): values for name, values, _ in rows if name.startswith("`")}
    columns = FEATURIZERS["standard"].columns("node" if kind == "atoms" else "edge")
    assert listed == {column.name: ", ".join(column.values) for column in columns}
