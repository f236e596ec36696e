"""Names of labels in messages."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphcaps.data import FeatureRecipe
from graphcaps.data.datasets.element_labels import ELEMENT_SYMBOLS, describe_labels
from graphcaps.data.features.compatibility import check_graphs
from graphcaps.data.readers.molecules import ATOM_COLUMNS, BOND_LABELS, from_smiles
from graphcaps.errors import ArgumentError
from tests.graphs import random_graphs


def test_labels_of_other_graphs_stay_numbers() -> None:
    store = random_graphs([2, 3], seed=2).as_store()
    assert describe_labels(store, 0, [16]) == "node label 16"
    assert describe_labels(store, 0, [1, 2, 3, 4], kind="edge") == "edge labels 1, 2, 3, …"


def test_labels_of_molecules_have_names() -> None:
    store = random_graphs([2, 3], seed=2).as_store()
    store = replace(store, truth={"element": torch.full((5,), 6)})
    assert describe_labels(store, 0, [16]) == "element S"
    assert (
        describe_labels(store, 0, [8, 16, len(ELEMENT_SYMBOLS)]) == f"elements O, S, {len(ELEMENT_SYMBOLS)}"
    )
    nouns = [describe_labels(store, column, [1]).split()[0] for column in range(4)]
    assert nouns == list(ATOM_COLUMNS["full"])
    assert [describe_labels(store, 0, [label], kind="edge") for label in BOND_LABELS] == [
        f"bond {name}" for name in BOND_LABELS.values()
    ]


def test_unseen_labels_of_molecules_are_named() -> None:
    pytest.importorskip("rdkit")
    seen = from_smiles(["CCO", "CCN"])
    recipe = FeatureRecipe(edge_labels="counts").fit(seen)
    new = from_smiles(["CCS", "C#C"])
    assert check_graphs(new, recipe).errors == {
        0: "element S, on 1 atom, not seen in training",
        1: "bond triple, on 1 bond, not seen in training",
    }
    with pytest.raises(
        ArgumentError, match=r"got graph 0 of molecules: element S, on 1 atom, not seen in training"
    ):
        check_graphs(new, recipe).require()
