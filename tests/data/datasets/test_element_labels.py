"""Names of labels in messages, drawings and reports."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.chemistry.featurizers import ELEMENT_SYMBOLS, FEATURIZERS
from graphcaps.data.datasets.element_labels import atom_names, describe_labels, name_node_labels
from graphcaps.data.readers.molecules import from_smiles
from tests.graphs import random_graphs


def test_labels_of_other_graphs_stay_numbers() -> None:
    store = random_graphs([2, 3], seed=2).as_store()
    assert describe_labels(store, 0, [16]) == "node label 16"
    assert describe_labels(store, 0, [1, 2, 3, 4], kind="edge") == "edge labels 1, 2, 3, …"


def test_labels_of_molecules_have_the_words_of_their_featurizer() -> None:
    store = replace(random_graphs([2, 3], seed=2).as_store(), featurizer="standard")
    columns = FEATURIZERS["standard"]
    assert describe_labels(store, 0, [5, 11]) == "element O, S"
    assert [describe_labels(store, index, [1]) for index in range(len(columns.atoms))] == [
        f"{column.name} {column.values[1]}" for column in columns.atoms
    ]
    assert describe_labels(store, 0, [3, 1], kind="edge") == "bond type aromatic, double"
    assert describe_labels(store, 3, [2], kind="edge") == "bond stereo Z"


def test_elements_have_their_symbols() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    numbers = list(range(len(ELEMENT_SYMBOLS)))
    assert atom_names(numbers) == [chem.GetPeriodicTable().GetElementSymbol(number) for number in numbers]
    assert atom_names([999]) == ["999"]


def test_atoms_are_named_by_element_and_charge() -> None:
    pytest.importorskip("rdkit")
    store = from_smiles(["C[NH3+]", "CC(=O)[O-].[Ca+2]", "N[Pt]N", "[Fe+3]"])
    names, index = name_node_labels(
        store.node_labels, featurizer=store.featurizer, elements=store.truth["element"]
    )
    named = [names[place] for place in index]
    assert named == ["C", "N+", "C", "C", "O", "O−", "Ca2+", "N", "Pt", "N", "Fe"]  # a charge of 3 is "other"
    without, index = name_node_labels(store.node_labels, featurizer="standard")
    assert [without[place] for place in index][-3:] == ["other", "N", "other"]
    plain = from_smiles(["C[NH3+]"], featurizer="elements")
    assert name_node_labels(plain.node_labels, featurizer="elements")[0] == ["C", "N"]


def names_of(rows: list[tuple[int, ...]], **options: object) -> list[str]:
    names, index = name_node_labels(torch.tensor(rows), **options)  # type: ignore[arg-type]
    return [names[place] for place in index]


def test_names_of_other_labels() -> None:
    assert names_of([(6,), (0,), (7,)], dataset="MUTAG") == ["Br", "C", "7"]
    assert names_of([(0,), (3,)], dataset="NCI1") == ["0", "3"]
    assert names_of([(0, 1)], dataset="MUTAG") == ["0/1"]
    assert names_of([(5, 1), (2, 3)], texts={5: "red", 3: "old"}) == ["red/1", "2/old"]
