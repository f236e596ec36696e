"""Drawings of molecules by capsule and by score, and messages for what cannot be drawn."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphcaps import HGCNClassifier
from graphcaps.data.datasets.element_labels import EDGE_LABEL_BONDS, NODE_LABEL_ELEMENTS
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.readers.molecules import from_smiles, read_smiles
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, MissingExtraError, ShapeError
from graphcaps.explanation import explain_store, molecule_drawings
from graphcaps.explanation.molecule_drawings import (
    can_draw_molecule,
    draw_explained_molecule,
    draw_molecule,
    molecule_from_smiles,
    molecule_from_store,
)
from tests.explanation.synthetic import make_explanations, make_store


@pytest.fixture
def chem() -> Any:
    return pytest.importorskip("rdkit.Chem", reason="rdkit is not installed: pip install 'graphcaps[chem]'")


def nitrogen_chain(name: str, edge_labels: bool = True) -> GraphStore:
    """C–N=O in MUTAG's labels: 0 1 2, bonds single (1) and double (2)."""
    return GraphStore(
        name,
        torch.tensor([0, 3]),
        torch.tensor([0, 1, 3, 4]),
        torch.tensor([1, 0, 2, 1], dtype=torch.int32),
        node_labels=torch.tensor([[0], [1], [2]]),
        edge_labels=torch.tensor([[1], [1], [2], [2]]) if edge_labels else None,
    )


def bonds_of(molecule: Any) -> list[tuple[int, int, str]]:
    return [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), str(b.GetBondType())) for b in molecule.GetBonds()]


def test_elements_and_bonds_come_from_documented_labels(chem: Any) -> None:
    molecule = molecule_from_store(nitrogen_chain("MUTAG"), 0)
    assert [atom.GetSymbol() for atom in molecule.GetAtoms()] == ["C", "N", "O"]
    assert bonds_of(molecule) == [(0, 1, "SINGLE"), (1, 2, "DOUBLE")]
    molecule = molecule_from_store(nitrogen_chain("any"), 0, dataset="PTC_MR")
    assert [atom.GetSymbol() for atom in molecule.GetAtoms()] == ["In", "P", "O"]
    assert bonds_of(molecule) == [(0, 1, "DOUBLE"), (1, 2, "SINGLE")]


def test_labels_without_elements_stay_numbers(chem: Any, tmp_path: Path) -> None:
    molecule = molecule_from_store(nitrogen_chain("NCI1", edge_labels=False), 0)
    assert [atom.GetProp("atomLabel") for atom in molecule.GetAtoms()] == ["0", "1", "2"]
    assert bonds_of(molecule) == [(0, 1, "SINGLE"), (1, 2, "SINGLE")]
    draw_molecule(tmp_path / "m.svg", molecule, [0, 1, 1])
    plain = molecule_from_store(nitrogen_chain("MUTAG"), 0)
    draw_molecule(tmp_path / "p.svg", plain, [0, 1, 1])
    # The sentence that says so is drawn under it, letter by letter.
    count = [(tmp_path / name).read_text("utf-8").count("<path") for name in ("m.svg", "p.svg")]
    assert count[0] > count[1] + 20


def test_bonds_between_groups_have_no_colour(chem: Any) -> None:
    molecule = molecule_from_smiles("CCOC")
    _, together = molecule_drawings._by_capsule(molecule, [2, 2, 2, 2], [0, 0, 0, 0])
    _, apart = molecule_drawings._by_capsule(molecule, [2, 2, 2, 2], [0, 0, 2, 2])
    assert (sorted(together), sorted(apart)) == ([0, 1, 2], [0, 2])
    with pytest.raises(ShapeError, match="'groups' must be one per atom, 4, got 2"):
        draw_molecule("m.svg", molecule, [2, 2, 2, 2], groups=[0, 0])


def sorted_bonds(molecule: Any) -> list[tuple[int, int, str]]:
    return sorted((min(a, b), max(a, b), kind) for a, b, kind in bonds_of(molecule))


@pytest.mark.parametrize("featurizer", ["elements", "standard"])
def test_a_store_from_smiles_is_drawn_with_its_elements_and_bonds(
    chem: Any, tmp_path: Path, featurizer: str
) -> None:
    texts = ["CC(=O)Oc1ccccc1C(=O)O", "C[NH3+].[Cl-]", "N#CC=C", "Brc1cc2[nH]ccc2s1"]
    # The name of a data set with other labels does not mislead.
    read = read_smiles(texts, featurizer=featurizer, name="MUTAG")
    for graph, text in enumerate(read.store.smiles):
        molecule, right = molecule_from_store(read.store, graph), chem.MolFromSmiles(text)
        assert [atom.GetSymbol() for atom in molecule.GetAtoms()] == [
            atom.GetSymbol() for atom in right.GetAtoms()
        ]
        assert sorted_bonds(molecule) == sorted_bonds(right)
        assert not any(atom.HasProp("atomLabel") for atom in molecule.GetAtoms())
        if featurizer == "standard":
            for one, other in zip(molecule.GetAtoms(), right.GetAtoms(), strict=True):
                assert one.GetFormalCharge() == other.GetFormalCharge()
                assert one.GetNumExplicitHs() == other.GetTotalNumHs()
        draw_molecule(tmp_path / "m.svg", molecule, [0] * molecule.GetNumAtoms())
    assert bonds_of(molecule_from_store(from_smiles(["[NH3]->[Fe]"]), 0))[0][2] == "UNSPECIFIED"


def test_the_classifier_explains_and_draws_smiles(chem: Any, tmp_path: Path) -> None:
    texts = ["CCO", "CC(=O)O", "CCCO", "c1ccccc1", "c1ccccc1O", "Cc1ccccc1N"] * 2
    model = HGCNClassifier(
        capsule_dim=8, num_capsules=3, num_factors=2, epochs=2, device="cpu", random_state=0
    )
    model.fit(texts, ["yes" if "c" in text else "no" for text in texts])
    read = read_smiles(["OC(=O)c1ccccc1"])
    explanation = model.explain(read.store)
    assert explanation.elements.tolist() == read.store.truth["element"].tolist()
    assert explanation.featurizer == "standard"
    molecule = molecule_from_store(read.store, 0)
    edges = {tuple(edge) for edge in explanation.edges.T.tolist()}
    assert edges == {bond[:2] for bond in sorted_bonds(molecule)}
    draw_molecule(tmp_path / "m.svg", molecule, explanation.levels[0].capsule)
    assert (
        model.explain(["OC(=O)c1ccccc1"]).levels[0].capsule.tolist() == explanation.levels[0].capsule.tolist()
    )
    # The explanation itself knows its SMILES.
    assert explanation.smiles == read.store.smiles[0]
    drawn = molecule_from_smiles(read.store.smiles[0])
    for ending in (".svg", ".png"):
        explanation.draw(tmp_path / f"default{ending}")
        draw_explained_molecule(explanation, tmp_path / f"same{ending}", drawn)
        assert (tmp_path / f"default{ending}").read_bytes() == (tmp_path / f"same{ending}").read_bytes()
    explanation.draw(tmp_path / "parts.svg", kind="parts")
    assert "matplotlib" in (tmp_path / "parts.svg").read_text("utf-8").lower()
    explanation.draw(tmp_path / "default.pdf")  # RDKit writes no PDF
    both = explain_store(model.model_, from_smiles(["CCO", "OC(=O)c1ccccc1"]))
    both[1].draw(tmp_path / "second.svg", kind="molecule")
    for name in ("default.svg", "second.svg"):
        assert "class='atom-8'" in (tmp_path / name).read_text("utf-8")
    assert both.bonds is not None
    assert both.elements is not None
    assert both.bonds[2:].tolist() == explanation.bonds.tolist()
    assert both.elements[:3].tolist() == [6, 6, 8]


def test_without_rdkit_or_elements_the_parts_are_drawn(
    chem: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(2, name="MUTAG")
    plain = make_explanations(store)[0]
    assert not can_draw_molecule(plain, "m.svg")
    with pytest.raises(ArgumentError, match="be another kind for a graph that was not read from SMILES"):
        plain.draw(tmp_path / "m.svg", kind="molecule")
    with_elements = replace(plain, elements=torch.full((plain.num_nodes,), 6))
    assert can_draw_molecule(with_elements, "m.svg")
    assert not can_draw_molecule(with_elements, "m.pdf")
    with_elements.draw(tmp_path / "m.svg", kind="molecule")  # bonds without a type are single
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not can_draw_molecule(with_elements, "m.svg")


@pytest.fixture
def written(chem: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What RDKit is asked to write into an SVG: notes beside atoms, titles, and words of the legend."""
    from rdkit.Chem.Draw import rdMolDraw2D

    seen: dict[str, list[str]] = {"notes": [], "titles": [], "words": []}
    drawer: Any = rdMolDraw2D.MolDraw2DSVG

    class Spy(drawer):
        def DrawMolecules(self, molecules: Any, **settings: Any) -> None:
            seen["notes"] = [atom.GetProp("atomNote") for each in molecules for atom in each.GetAtoms()]
            seen["titles"], seen["words"] = settings["legends"], []
            super().DrawMolecules(molecules, **settings)

        def DrawString(self, text: str, *settings: Any) -> None:
            seen["words"].append(text)
            super().DrawString(text, *settings)

    monkeypatch.setattr(rdMolDraw2D, "MolDraw2DSVG", Spy)
    return seen


def test_atoms_are_numbered_as_in_the_text(written: dict[str, list[str]], tmp_path: Path) -> None:
    draw_molecule(tmp_path / "m.svg", molecule_from_smiles("CCO"), [3, 3, 0])
    assert written["notes"] == ["C1", "C2", "O3"]
    assert written["words"] == ["capsule 1 (1 atom)", "capsule 4 (2 atoms)"]
    draw_molecule(tmp_path / "m.svg", molecule_from_smiles("CO"), [-1, 0], numbers=[4, 9])
    assert written["notes"] == ["C4", "O9"]
    assert written["words"] == ["capsule 1 (1 atom)"]
    draw_molecule(
        tmp_path / "m.svg", molecule_from_store(nitrogen_chain("NCI1"), 0), [0, 0, 0], title="x" * 99
    )
    assert written["notes"] == ["1", "2", "3"]
    assert written["titles"] == ["x" * 20 + "... (label numbers; elements are unknown)"]
    draw_molecule(tmp_path / "m.svg", molecule_from_smiles("CO"), [0, 0], scores=[1, -2], scored="ether")
    assert written["notes"] == ["C1", "O2", "C1", "O2"]
    assert written["words"] == ["capsule 1 (2 atoms)", "for ether", "against it", "full colour: 2"]
    with pytest.raises(ShapeError, match="'numbers' must be one per atom, 2, got 1"):
        draw_molecule(tmp_path / "m.svg", molecule_from_smiles("CO"), [0, 0], numbers=[1])


@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_a_molecule_from_smiles(chem: Any, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"aspirin{ending}"
    molecule = molecule_from_smiles("CC(=O)Oc1ccccc1C(=O)O")
    draw_molecule(path, molecule, torch.tensor([0] * 4 + [1] * 6 + [-1] * 3), title="aspirin")
    data = path.read_bytes()
    assert data.startswith(b"<?xml" if ending == ".svg" else b"\x89PNG")
    if ending == ".svg":
        text = data.decode()
        # The first two colours of capsules, lightened; no third colour for atoms without a capsule.
        assert "#72C9B2" in text
        assert "#F6F097" in text
        assert "#D08EB4" not in text
        # A bond inside a capsule has its colour, one between two capsules has none.
        inside, between = (
            set(re.findall(rf"<path class='bond-{bond} [^>]*(#[0-9A-F]{{6}})", text)) for bond in (0, 3)
        )
        assert inside == {"#72C9B2", "#000000"}
        assert between == {"#000000"}
    again = tmp_path / f"again{ending}"
    draw_molecule(again, molecule, [0] * 4 + [1] * 6 + [-1] * 3, title="aspirin")
    assert again.read_bytes() == data  # the molecule was not changed by drawing it


def test_atoms_below_have_the_colour_of_their_score(chem: Any, tmp_path: Path) -> None:
    def colours(*scores: float) -> list[list[str]]:
        """Of each atom, in the picture by capsule and in the one by score."""
        path = tmp_path / "m.svg"
        draw_molecule(path, molecule_from_smiles("CCO"), [8, 8, 8], scores=list(scores))
        text = path.read_text("utf-8")
        numbers = [
            re.findall(rf"<ellipse [^>]*class='atom-{atom}'[^>]*fill:(#[0-9A-F]{{6}})", text)
            for atom in range(3)
        ]
        return numbers

    # Half of the largest score, half way from white; a grey capsule above.
    above, below = "#9D9D9D", ("#E7A672", "#FFFFFF", "#B9D7E9")
    assert colours(2.0, 0.0, -1.0) == [[above, each] for each in below]
    assert colours(0.0, 0.0, 0.0) == [[above, "#FFFFFF"]] * 3


@pytest.mark.parametrize(
    ("name", "class_text"),
    [
        ("<sub>x</sub>", "(sub)x(/sub)"),  # as it is, a title that RDKit dies of
        ("10 µM, größer", "10 uM, gro?er"),
        ("a\nb", "a?b"),
        (
            "inactive against the hERG channel at all doses that were tried",
            "inactive against the hERG channel at all doses that were ...",
        ),
    ],
)
def test_names_that_rdkit_cannot_write(
    written: dict[str, list[str]], tmp_path: Path, name: str, class_text: str
) -> None:
    molecule = molecule_from_smiles("CO")
    draw_molecule(tmp_path / "m.svg", molecule, [0, 0], title=name, scores=[1, 2], scored=name)
    assert written["titles"] == ["", class_text]
    words = f"for {class_text}"
    assert written["words"][1] == (words if len(words) <= 21 else f"{words[:18]}...")


def test_every_documented_molecule_can_be_drawn(chem: Any, shared_data: Path, tmp_path: Path) -> None:
    for name in ("MUTAG", "PTC_MR", "NCI1", "NCI109"):
        store = load_dataset(name, shared_data)
        for graph in (0, len(store) // 3, len(store) - 1, int(store.sizes.argmax())):
            molecule = molecule_from_store(store, graph)
            assert molecule.GetNumAtoms() == int(store.sizes[graph])
            draw_molecule(tmp_path / "m.svg", molecule, torch.arange(molecule.GetNumAtoms()) % 5)


def test_documented_labels_are_those_of_the_readme(shared_data: Path) -> None:
    import zipfile

    for name, elements in NODE_LABEL_ELEMENTS.items():
        text = zipfile.ZipFile(shared_data / f"{name}.zip").read(f"{name}/README.txt").decode()
        nodes, bonds = text.partition("Node labels:")[2].split("Edge labels:")
        listed = [line.split() for line in nodes.splitlines() if line.strip()]
        assert [entry[1] for entry in listed] == list(elements)
        listed = [line.split() for line in bonds.partition("===")[0].splitlines() if line.strip()]
        assert [entry[1] for entry in listed] == list(EDGE_LABEL_BONDS[name])


def test_wrong_arguments(chem: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"molecule_from_smiles: 'smiles' must be a valid SMILES, got 'C1CC'"
    ):
        molecule_from_smiles("C1CC")
    with pytest.raises(ArgumentError, match=r"'smiles' must have at most 5,000 characters, got 60,000\."):
        molecule_from_smiles("C" * 60_000)
    molecule = molecule_from_smiles("CCO")
    with pytest.raises(ShapeError, match=r"'capsule' must be one per atom, 3, got 2\."):
        draw_molecule(tmp_path / "m.svg", molecule, [0, 1])
    with pytest.raises(ShapeError, match=r"'scores' must be one per atom, 3, got 4\."):
        draw_molecule(tmp_path / "m.svg", molecule, [0, 1, 0], scores=[1, 2, 3, 4])
    with pytest.raises(ArgumentError, match=r"'path' must end in \.svg or \.png"):
        draw_molecule(tmp_path / "m.pdf", molecule, [0, 1, 0])
    store = nitrogen_chain("MUTAG")
    bare = GraphStore("bare", store.node_ptr, store.edge_ptr, store.neighbours)
    with pytest.raises(ArgumentError, match="'store' must have one label per node, got none"):
        molecule_from_store(bare, 0)
    assert list(tmp_path.iterdir()) == []


def test_without_rdkit_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "rdkit"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(
        MissingExtraError, match=r"needs rdkit: install it with: pip install 'graphcaps\[chem\]'"
    ):
        molecule_from_smiles("CCO")
