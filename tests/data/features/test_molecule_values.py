"""Values of a featurizer in a recipe: columns in words, and values that no training molecule has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import graphcaps
from graphcaps.chemistry.featurizers import FEATURIZERS
from graphcaps.config import RunConfig
from graphcaps.data import FeatureRecipe
from graphcaps.data.features.compatibility import UnseenValueWarning, check_graphs
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.models.builder import build_classical
from tests.graphs import random_graphs
from tests.small_models import train_small

pytest.importorskip("rdkit")
from graphcaps.data.readers.molecules import from_smiles

PLAIN = {"degree": False, "degree_onehot": None, "propagation": 0}


def columns(recipe: FeatureRecipe, store: GraphStore, node: int = 0) -> set[str]:
    """Names of the input columns of a node that are 1."""
    row = recipe.encode(check_graphs(store, recipe).store)[node]
    return {name for name, value in zip(recipe.column_names(), row.tolist(), strict=True) if value}


def test_columns_are_named_in_words_and_only_for_values_that_occur() -> None:
    recipe = FeatureRecipe(edge_labels="counts", **PLAIN).fit(from_smiles(["CCO", "C=O"]))
    assert recipe.featurizer == "standard"
    names = recipe.column_names()
    assert names[:2] == ["element=C", "element=O"]  # not the five elements between them in the vocabulary
    assert {"hybridisation=sp2", "hybridisation=sp3", "charge=0", "bond type=double"} <= set(names)
    assert not any("other" in name or name.startswith("label[") for name in names)
    assert recipe.node_labels[0] == ["C", "O"]
    again = FeatureRecipe.from_dict(json.loads(json.dumps(recipe.to_dict())))
    assert again == recipe
    assert again.column_names() == names


def test_an_unseen_value_becomes_other() -> None:
    recipe = FeatureRecipe(**PLAIN).fit(from_smiles(["CCO", "C[Pt]C", "N", "[Ni]"]))
    new = from_smiles(["CC", "S", "[Cu]"])
    checked = check_graphs(new, recipe)
    assert (checked.errors, checked.unseen) == ({}, {})
    assert set(checked.others) == {1}
    assert checked.others[1].startswith("element S on 1 atom")
    assert "element=other" in columns(recipe, new[1])
    assert "element=other" in columns(recipe, new[2])  # a metal, as platinum is
    assert new.node_labels[2, 0] == FEATURIZERS["standard"].atoms[0].values.index("S")  # the caller's store
    with pytest.warns(
        UnseenValueWarning, match=r"1 of 3 molecules has values .*, read as 'other'\. Molecule 1: "
    ):
        checked.require()


def test_without_other_in_training_the_block_is_zero() -> None:
    recipe = FeatureRecipe(**PLAIN).fit(from_smiles(["CCO", "CCN"]))
    metal = from_smiles(["[Pt]", "C[Si]"])
    checked = check_graphs(metal, recipe)
    assert checked.others[0].startswith("element Pt on 1 atom")  # not "element other"
    assert checked.others[1].startswith("element Si on 1 atom")
    assert not any(name.startswith("element") for name in columns(recipe, metal[0]))
    with pytest.warns(UnseenValueWarning):
        assert torch.isfinite(recipe.apply(metal)).all()


def test_unseen_bonds_are_reported_too() -> None:
    recipe = FeatureRecipe(edge_labels="counts", **PLAIN).fit(from_smiles(["CCO", "[NH3]->[Fe]"]))
    new = from_smiles(["C#C"])
    assert "bond type triple on 1 bond" in check_graphs(new, recipe).others[0]
    names = recipe.column_names()
    row = recipe.encode(check_graphs(new, recipe).store)[0]
    assert row[names.index("bond type=other")] == 1


def test_graphs_of_another_featurizer_are_refused() -> None:
    standard, elements = (from_smiles(["CCO", "CCN"], featurizer=name) for name in FEATURIZERS)
    recipe = FeatureRecipe().fit(standard)
    message = (
        r"must be molecules read with featurizer='standard', as in training, got featurizer='elements' in "
    )
    with pytest.raises(ArgumentError, match=message):
        check_graphs(elements, recipe)
    other = FeatureRecipe().fit(random_graphs([2, 3], seed=2).as_store())
    message = r"which were not read from SMILES, got molecules from SMILES in molecules\."
    if other.label_values:
        with pytest.raises(ArgumentError, match=message):
            check_graphs(standard, other)
    plain = FeatureRecipe(labels=False).fit(elements)  # reads no labels
    assert check_graphs(standard, plain).others == {}
    # Graphs with the same codes from another source are read by the codes.
    assert check_graphs(replace(standard, featurizer=None), recipe).errors == {}


def test_a_recipe_refuses_codes_that_the_featurizer_does_not_have() -> None:
    values = FeatureRecipe().fit(from_smiles(["CCO"])).to_dict()
    with pytest.raises(ArgumentError, match="'label_values' must hold codes of the featurizer 'standard'"):
        FeatureRecipe.from_dict(values | {"label_values": [[999]] * 7})
    with pytest.raises(ArgumentError, match="must be one of 'standard', 'elements', got 'new'"):
        FeatureRecipe.from_dict(values | {"featurizer": "new"})


@pytest.mark.parametrize("featurizer", FEATURIZERS)
def test_a_model_file_reads_smiles_with_its_featurizer(featurizer: str, tmp_path: Path) -> None:
    texts = ["CCO", "c1ccccc1", "CCN", "c1ccncc1", "CCC", "c1ccccc1O"] * 2
    store = from_smiles(texts, ["ring" if "1" in text else "open" for text in texts], featurizer=featurizer)
    fitted = train_small(store, epochs=2)
    fitted.save(tmp_path / "m.safetensors")
    loaded = graphcaps.load(tmp_path / "m.safetensors")
    assert loaded.recipe.featurizer == featurizer
    assert loaded.info()["expects"]["recipe"]["featurizer"] == featurizer
    expected = fitted.predict_proba(store[:3])
    assert loaded.predict_proba(texts[:3]).tolist() == expected.tolist()
    with pytest.warns(UnseenValueWarning, match="element S on 1 atom"):
        assert loaded.predict_proba(["CCS"]).shape == (1, 2)


def test_a_forest_on_colours_reads_all_columns() -> None:
    texts = ["Nc1ccccc1", "NC1CCCCC1"] * 6
    store = from_smiles(texts, ["aryl" if "c" in text else "alkyl" for text in texts])
    forest = build_classical(RunConfig(model="wl-forest"), 2)
    assert store.y is not None
    forest.fit(store, torch.arange(len(store)).numpy(), store.y.numpy())
    predicted = forest.predict_proba(store, torch.arange(len(store)).numpy()).argmax(1)
    assert predicted.tolist() == store.y.tolist()
