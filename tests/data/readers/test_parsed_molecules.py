"""SMILES become the same small arrays in one step, in several and from the cache."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("rdkit", reason="needs the extra 'chem'")

from rdkit import Chem

from graphcaps.chemistry.featurizers import find_featurizer
from graphcaps.chemistry.rdkit_pool import Answer
from graphcaps.data.datasets.cache import cache_contents
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.readers import parsed_molecules as module
from graphcaps.data.readers.molecules import read_smiles
from graphcaps.data.readers.parsed_molecules import parse_molecules
from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import clean_edges
from tests.graphs import assert_same_stores

SMILES = [
    "C[C@H](N)C(=O)O",
    "[Na+].[Cl-]",
    "C",
    "C(C",
    "c1ccc2c(c1)cccc2C/C=C/Cl",
    "",
    "O=S(=O)(N)c1ccccc1",
    "[Fe]",
]
STANDARD = find_featurizer("standard")


def num_bytes(store: GraphStore) -> int:
    tensors = [getattr(store, entry.name) for entry in fields(GraphStore)]
    listed = [value for value in (*tensors, *store.truth.values()) if isinstance(value, Tensor)]
    return sum(value.numel() * value.element_size() for value in listed) + sum(map(len, store.smiles or ()))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCAPS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short lists are cached as well."""
    monkeypatch.setattr(module, "MIN_CACHED", 3)


def without_rdkit(*arguments: object, **options: object) -> list[Answer]:
    raise AssertionError("RDKit is called")


def test_bonds_become_clean_edges() -> None:
    store = parse_molecules(SMILES, STANDARD, "all", name="m").store
    pairs, labels = [], []
    for first, smiles in zip(store.node_ptr.tolist(), store.smiles or (), strict=False):
        for bond in Chem.MolFromSmiles(
            smiles
        ).GetBonds():  # whose atoms have the order of the canonical SMILES
            pairs.append([first + bond.GetBeginAtomIdx(), first + bond.GetEndAtomIdx()])
            kinds = [Chem.BondType.SINGLE, Chem.BondType.DOUBLE, Chem.BondType.TRIPLE, Chem.BondType.AROMATIC]
            labels.append([kinds.index(bond.GetBondType())])
    source, target = torch.tensor(pairs).T
    clean = clean_edges(source, target, store.num_nodes, labels=torch.tensor(labels))
    expected = GraphStore.from_clean_edges("m", store.node_ptr, clean)
    assert store.edge_labels is not None
    assert clean.labels is not None
    assert torch.equal(store.edge_ptr, expected.edge_ptr)
    assert torch.equal(store.neighbours, expected.neighbours)
    assert torch.equal(store.edge_labels[:, :1].long(), clean.labels)
    assert store.report.edges == len(pairs)


def test_steps_do_not_change_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = parse_molecules(SMILES, STANDARD, "all", name="m")
    assert at_once.problems == {3: "invalid SMILES syntax", 5: "the entry is empty"}
    assert at_once.fragmented == 1
    monkeypatch.setattr(module, "_STEP", 2)
    in_steps = parse_molecules(SMILES, STANDARD, "all", name="m")
    assert_same_stores(at_once.store, in_steps.store)
    assert in_steps.fragmented == 1


def test_bonds_are_those_of_rdkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEP", 2)
    store = parse_molecules(SMILES, STANDARD, "all", name="m").store
    assert store.smiles is not None
    for graph, text in enumerate(store.smiles):
        own, molecule = store[graph], Chem.MolFromSmiles(text)
        for node in range(own.num_nodes):
            entries = slice(int(own.edge_ptr[node]), int(own.edge_ptr[node + 1]))
            atom = molecule.GetAtomWithIdx(node)
            assert own.neighbours[entries].tolist() == sorted(other.GetIdx() for other in atom.GetNeighbors())
            assert int(own.truth["element"][node]) == atom.GetAtomicNum()


def test_a_molecule_of_26_atoms_takes_less_than_1200_bytes() -> None:
    smiles = "CC(C)Cc1ccc(cc1)C(C)C(=O)NCc1ccc(cc1)S(N)(=O)=O"
    store = parse_molecules([smiles] * 50, STANDARD, "all", name="m").store
    assert store.num_nodes == 50 * 26
    assert num_bytes(store) < 50 * 1200


def test_a_charge_beyond_16_bits_is_another_charge() -> None:
    read = parse_molecules(["[Fe+40000]", "[Fe+7]"], STANDARD, "all", name="m")
    assert not read.problems
    column = STANDARD.atom_column("charge")
    assert read.store.node_labels is not None
    assert set(read.store.node_labels[:, column].tolist()) == {STANDARD.atoms[column or 0].other}


# ---------------------------------------------------------------------- cache
@pytest.mark.usefixtures("small_cache")
def test_the_second_reading_needs_no_rdkit(monkeypatch: pytest.MonkeyPatch) -> None:
    first = parse_molecules(SMILES, STANDARD, "all", name="m", cache=True)
    assert not first.from_cache
    assert cache_contents().files == 1
    monkeypatch.setattr(module, "call_rdkit", without_rdkit)
    again = parse_molecules(SMILES, STANDARD, "all", name="m", cache=True)
    assert again.from_cache
    assert (again.problems, again.fragmented) == (first.problems, first.fragmented)
    assert_same_stores(first.store, again.store)
    for smiles, featurizer, fragments in (
        (SMILES, STANDARD, "largest"),
        (SMILES, find_featurizer("elements"), "all"),
        (SMILES[::-1], STANDARD, "all"),
    ):
        with pytest.raises(AssertionError, match="RDKit is called"):
            parse_molecules(smiles, featurizer, fragments, name="m", cache=True)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small_cache")
def test_rows_without_a_molecule_are_the_same_from_the_cache() -> None:
    kept, cached = (read_smiles(SMILES, bad="keep", cache=True) for _ in range(2))
    assert cached.from_cache
    assert (cached.store.sizes == 0).nonzero().flatten().tolist() == [3, 5]
    assert cached.unreadable == kept.unreadable
    assert_same_stores(kept.store, cached.store)


@pytest.mark.usefixtures("small_cache")
def test_labels_may_change_without_reading_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "m.csv"
    table.write_text("smiles,a,b\nCC,0,x\nCO,1,y\nCN,0,y\n", "utf-8")
    assert not open_dataset(table, label="a").from_cache
    monkeypatch.setattr(module, "call_rdkit", without_rdkit)
    other = open_dataset(table, label="b")
    assert other.from_cache
    assert other.store.class_names == ("x", "y")
    with pytest.raises(AssertionError, match="RDKit is called"):
        open_dataset(table, label="b", cache=False)


@pytest.mark.usefixtures("small_cache")
def test_another_version_of_rdkit_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parse_molecules(SMILES, STANDARD, "all", name="m", cache=True)
    monkeypatch.setattr(module, "_rdkit_version", lambda: "1999.09.1")
    assert not parse_molecules(SMILES, STANDARD, "all", name="m", cache=True).from_cache
    monkeypatch.setattr(module, "_rdkit_version", lambda: None)  # a machine without RDKit
    assert parse_molecules(SMILES, STANDARD, "all", name="m", cache=True).from_cache


@pytest.mark.usefixtures("small_cache")
def test_molecules_over_a_limit_are_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.call_rdkit
    late = Answer([], problem="RDKit needs more than 10 s for it", is_final=False)
    monkeypatch.setattr(module, "call_rdkit", lambda *a, **o: [*real(*a, **o)[:-1], late])
    parse_molecules(SMILES, STANDARD, "all", name="m", cache=True)
    assert cache_contents().files == 0


def test_short_lists_are_not_cached() -> None:
    parse_molecules(SMILES, STANDARD, "all", name="m", cache=True)
    assert cache_contents().files == 0
