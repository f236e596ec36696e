"""Molecule tasks: classes and deciding atoms recomputed from SMILES, and numbers that carry no information."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from graphcaps.data.datasets.kind_names import kind_names
from graphcaps.data.datasets.molecule_blocks import BLOCKS, ELEMENTS, count_atoms, join_blocks
from graphcaps.data.datasets.molecule_tasks import (
    MOLECULE_KINDS,
    MOLECULE_TASKS,
    deciding_groups,
    molecule_task,
)
from graphcaps.data.datasets.portable_random import PortableRandom
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

chem = pytest.importorskip("rdkit.Chem")
NUM_GRAPHS = 120
# Positive and negative molecules, and the groups of atoms that decide, all written by hand.
KNOWN = {
    "benzene": {
        "Cc1ccccc1": [{1, 2, 3, 4, 5, 6}],
        "c1ccc(-c2ccccc2)cc1": [{0, 1, 2, 3, 10, 11}, {4, 5, 6, 7, 8, 9}],
        "c1ccncc1": [],
        "C1CCCCC1": [],
        "c1ccc2ccccc2c1": [{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}],  # naphthalene: two rings that share atoms
    },
    "fluoride-carbonyl": {
        "CC(=O)CF": [{1, 2}, {3, 4}],
        "O=C(F)C": [{0, 1, 2}],
        "FC(F)(F)CC=O": [{0, 1, 2, 3}, {5, 6}],
        "CC(=O)C": [],
        "COCF": [],
        "CC(=O)CS(=O)(=O)F": [],
        "FCCS(C)(=O)=O": [],
    },
    "nitro-or-amine": {
        "C[N+](=O)[O-]": [{0, 1, 2, 3}],
        "CCN": [{1, 2}],
        "NCC[N+](=O)[O-]": [{0, 1}, {2, 3, 4, 5}],
        "Nc1ccccc1": [{0, 1}],
        "CO[N+](=O)[O-]": [],
        "CC(N)=O": [],
        "CNC": [],
        "CS(N)(=O)=O": [],
        "C[n+]1ccccc1": [],
    },
}


@pytest.fixture(scope="module", params=list(MOLECULE_TASKS))
def store(request) -> GraphStore:
    return molecule_task(request.param, num_graphs=NUM_GRAPHS)


def numbers(molecule) -> Counter:
    counts = Counter(atom.GetSymbol() for atom in molecule.GetAtoms())
    counts["aromatic"] = sum(atom.GetIsAromatic() for atom in molecule.GetAtoms())
    counts["charged"] = sum(atom.GetFormalCharge() != 0 for atom in molecule.GetAtoms())
    counts["rings"] = molecule.GetRingInfo().NumRings()
    return counts


@pytest.mark.parametrize(
    ("name", "smiles", "groups"), [(name, *row) for name, rows in KNOWN.items() for row in rows.items()]
)
def test_deciding_groups_of_known_molecules(name, smiles, groups):
    assert deciding_groups(MOLECULE_TASKS[name], chem.MolFromSmiles(smiles)) == groups


def test_classes_and_truth_are_those_of_the_smiles(store):
    task = MOLECULE_TASKS[store.name]
    assert store.class_names == task.classes
    assert store.y.bincount().tolist() == [NUM_GRAPHS // 2] * 2
    assert len(set(store.smiles)) == NUM_GRAPHS
    queries = [chem.MolFromSmarts(pattern) for pattern in task.patterns]
    for graph, smiles in enumerate(store.smiles):
        molecule, one = chem.MolFromSmiles(smiles), store[graph]
        assert 10 <= molecule.GetNumAtoms() == one.num_nodes <= 30
        assert [atom.GetAtomicNum() for atom in molecule.GetAtoms()] == one.truth["element"].tolist()
        found = [molecule.GetSubstructMatches(query) for query in queries]
        positive = any(found) if task.rule == "any" else all(found)
        assert store.class_names[int(store.y[graph])] == task.classes[positive]
        atoms = {atom for matches in found for match in matches for atom in match} if positive else set()
        reason = one.truth["reason"]
        assert set((reason >= 0).nonzero().flatten().tolist()) == atoms
        assert reason[reason >= 0].unique().tolist() == list(range(int(reason.max()) + 1))


def test_parts_are_the_blocks(store):
    assert kind_names(store) == MOLECULE_KINDS
    shapes = {name: chem.MolFromSmiles(block.smiles) for name, block in BLOCKS.items()}
    for graph, smiles in enumerate(store.smiles):
        molecule, one = chem.MolFromSmiles(smiles), store[graph]
        for part in one.truth["part"].unique().tolist():
            atoms = (one.truth["part"] == part).nonzero().flatten().tolist()
            (kind,) = set(one.truth["kind"][atoms].tolist())
            shape = shapes[MOLECULE_KINDS[kind]]
            elements = Counter(molecule.GetAtomWithIdx(atom).GetSymbol() for atom in atoms)
            assert elements == Counter(atom.GetSymbol() for atom in shape.GetAtoms())
            bonds = chem.PathToSubmol(
                molecule,
                [
                    b.GetIdx()
                    for b in molecule.GetBonds()
                    if {b.GetBeginAtomIdx(), b.GetEndAtomIdx()} <= set(atoms)
                ],
            )
            assert bonds.GetNumBonds() == shape.GetNumBonds()


def test_the_molecules_of_a_pair_have_equal_numbers(store):
    molecules = [chem.MolFromSmiles(smiles) for smiles in store.smiles]
    for first in range(0, NUM_GRAPHS, 2):
        assert sorted(store.y[first : first + 2].tolist()) == [0, 1]
        assert numbers(molecules[first]) == numbers(molecules[first + 1])
    positions = store.y.reshape(-1, 2)[:, 0].double().mean()
    assert 0.25 < float(positions) < 0.75  # the order within a pair is random


def test_deciding_elements_occur_in_negative_molecules_too(store):
    negative = (store.y == 0)[store.node_graph]
    deciding = store.truth["reason"] >= 0
    needed = store.truth["element"][deciding].unique()
    share = [
        float((store.truth["element"][negative] == element).double().mean()) for element in needed.tolist()
    ]
    overall = [float((store.truth["element"] == element).double().mean()) for element in needed.tolist()]
    assert np.allclose(share, overall)


def test_seeds_and_numbers_of_graphs():
    store, small = molecule_task("benzene", num_graphs=40), molecule_task("benzene", num_graphs=20)
    assert small.smiles == store.smiles[:20]
    assert torch.equal(small.truth["part"], store[list(range(20))].truth["part"])
    other = molecule_task("benzene", seed=1, num_graphs=20)
    assert len(set(small.smiles) & set(other.smiles)) < 5


def test_invalid_arguments_are_rejected():
    with pytest.raises(ArgumentError, match=r"'name' must be one of benzene, .*, got 'toluene'"):
        molecule_task("toluene")
    with pytest.raises(ArgumentError, match="'seed' must be 0 or more, got -1"):
        molecule_task("benzene", seed=-1)
    for wrong in (0, 7):
        with pytest.raises(ArgumentError, match=f"'num_graphs' must be 2, 4, 6 .*, got {wrong}"):
            molecule_task("benzene", num_graphs=wrong)


def test_joined_blocks_have_the_atoms_of_the_blocks():
    random = PortableRandom(0)
    names = ["benzene", "amide", "nitro", "amino", "pyridine N-oxide"]
    joined = join_blocks(names, random)
    found = numbers(joined.molecule)
    counted = [found[key] for key in (*ELEMENTS, "aromatic", "charged", "rings")]
    assert counted == np.sum([count_atoms(name) for name in names], axis=0).tolist()
    assert sum(counted[: len(ELEMENTS)]) == joined.molecule.GetNumAtoms()
    assert Counter(joined.block_of) == {0: 6, 1: 3, 2: 3, 3: 1, 4: 7}
    assert len(chem.GetMolFrags(joined.molecule)) == 1
    for bond in joined.molecule.GetBonds():
        begin, end = bond.GetBeginAtom(), bond.GetEndAtom()
        if joined.block_of[begin.GetIdx()] != joined.block_of[end.GetIdx()]:
            assert bond.GetBondType() == chem.BondType.SINGLE
            assert 6 in (begin.GetAtomicNum(), end.GetAtomicNum())


def test_blocks_that_do_not_fit_give_no_molecule():
    assert join_blocks(["ether", "hydroxy"], PortableRandom(0)) is None  # no bond between two oxygens
    assert join_blocks(["vinylene", "methyl", "methyl", "methyl"], PortableRandom(0)) is None  # two sites


def test_sites_of_blocks_have_hydrogens():
    for block in BLOCKS.values():
        molecule = chem.MolFromSmiles(block.smiles)
        for site, bonds in Counter(block.sites).items():
            atom = molecule.GetAtomWithIdx(site)
            if block.role != "group":  # groups may have a charged atom or sulfur, without hydrogens
                assert atom.GetTotalNumHs() >= bonds, block.name
        assert (len(block.sites) == 1) == (block.role == "group")
        assert {atom.GetSymbol() for atom in molecule.GetAtoms()} <= set(ELEMENTS)


def test_molecule_graphs_are_connected(store):
    for first, end in pairwise(store.node_ptr.tolist()):
        seen, ring = {0}, {0}
        while ring:
            ring = {
                int(other)
                for node in ring
                for other in store.neighbours[store.edge_ptr[first + node] : store.edge_ptr[first + node + 1]]
            } - seen
            seen |= ring
        assert len(seen) == end - first
