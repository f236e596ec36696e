"""The forest on Morgan fingerprints: what is particular to it beside the contract."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier

import graphcaps
from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.readers.molecules import from_smiles
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, MissingExtraError, UsageError
from graphcaps.models.ecfp_forest import ECFPForest, morgan_fingerprints
from graphcaps.training import train_final

pytest.importorskip("rdkit")
from rdkit import Chem
from rdkit.Chem import rdFingerprintGenerator

PARTS = ["C", "N", "O", "c1ccccc1", "C(=O)", "C(F)", "C1CCNC1", "S", "C#C", "[C@H](Cl)"]


@pytest.fixture(scope="module")
def molecules() -> GraphStore:
    """Alcohols and ethers of ``examples/molecules.csv``."""
    return graphcaps.load_dataset(Path(__file__).parents[2] / "examples" / "molecules.csv", label="kind")


def classes(store: GraphStore, indices: np.ndarray) -> np.ndarray:
    assert store.y is not None
    return store.y.numpy()[indices]


@given(
    st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=8), min_size=1, max_size=5),
    st.integers(0, 3),
    st.sampled_from([16, 1000, 2048]),
)
def test_fingerprints_equal_those_of_rdkit(words: list[list[str]], radius: int, bits: int) -> None:
    """Random molecules, bit by bit and count by count, against the dense vectors of RDKit's own generator."""
    smiles = ["".join(word) for word in words]
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=radius, fpSize=bits)
    parsed = [Chem.MolFromSmiles(text) for text in smiles]
    as_bits = morgan_fingerprints(smiles, radius=radius, bits=bits)
    as_counts = morgan_fingerprints(smiles, radius=radius, bits=bits, counts=True)
    assert as_bits.shape == (len(smiles), bits)
    for row, molecule in enumerate(parsed):
        assert np.array_equal(as_bits[[row]].toarray()[0], generator.GetFingerprintAsNumPy(molecule))
        assert np.array_equal(as_counts[[row]].toarray()[0], generator.GetCountFingerprintAsNumPy(molecule))


def test_an_empty_molecule_has_no_bits_and_an_invalid_one_is_refused() -> None:
    assert morgan_fingerprints(["", "C"]).sum(1).tolist() == [[0], [1]]
    with pytest.raises(ArgumentError, match=r"'smiles' must be valid SMILES, got 'C\(' at 1"):
        morgan_fingerprints(["C", "C("])


@pytest.mark.parametrize("weight", ["none", "balanced"])
def test_probabilities_are_those_of_scikit_learn(molecules: GraphStore, weight: str) -> None:
    train, test = np.arange(0, 500, 2), np.arange(1, 500, 2)
    model = ECFPForest(2, trees=20, seed=4, class_weight=weight)
    model.fit(molecules, train, classes(molecules, train))
    assert molecules.smiles is not None
    dense = morgan_fingerprints(molecules.smiles).toarray()
    forest = RandomForestClassifier(20, random_state=4, class_weight=None if weight == "none" else weight)
    forest.fit(dense[train], classes(molecules, train))
    assert np.array_equal(model.predict_proba(molecules, test), forest.predict_proba(dense[test]))
    assert (model.predict_proba(molecules, test).argmax(1) == classes(molecules, test)).mean() > 0.9


def test_defaults_are_ecfp4_with_500_trees() -> None:
    model = ECFPForest(2)
    assert (model.radius, model.bits, model.trees, model.counts) == (2, 2048, 500, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"radius": -1}, "'radius' must be at least 0, got -1"),
        ({"bits": 0}, "'bits' must be at least 1"),
        ({"trees": 0}, "'trees' must be at least 1"),
        ({"class_weight": "even"}, "'class_weight' must be 'none' or 'balanced', got 'even'"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ECFPForest(2, **options)  # type: ignore[arg-type]


def test_graphs_that_are_not_molecules_are_refused_in_one_sentence(molecules: GraphStore) -> None:
    store = planted_parts(num_graphs=6)
    sentence = (
        "The model ecfp-forest reads molecules, and 'planted-parts-easy' has no SMILES; read the molecules from "
        "SMILES, or choose wl-forest."
    )
    with pytest.raises(UsageError) as caught:
        ECFPForest(3, trees=2).fit(store, np.arange(6), classes(store, np.arange(6)))
    assert str(caught.value) == sentence
    model = train_final(molecules, RunConfig(model="ecfp-forest", model_arguments={"trees": 5})).model
    with pytest.raises(UsageError, match="has no SMILES"):
        model.predict(replace(molecules, smiles=None))


def test_a_model_that_is_not_fitted_neither_predicts_nor_saves(molecules: GraphStore) -> None:
    with pytest.raises(UsageError, match="before it predicts"):
        ECFPForest(2).predict_proba(molecules, np.arange(2))
    with pytest.raises(UsageError, match="before it is saved"):
        ECFPForest(2).state()


def test_the_state_is_of_as_many_trees_and_bits(molecules: GraphStore) -> None:
    model = ECFPForest(2, trees=3, bits=64)
    model.fit(molecules, np.arange(500), classes(molecules, np.arange(500)))
    with pytest.raises(ArgumentError, match="'tree_ptr' must be of 4 trees, got 3"):
        ECFPForest(2, trees=4, bits=64).load_state(model.state())
    with pytest.raises(ArgumentError, match="'feature' must be from −1 to 15"):
        ECFPForest(2, trees=3, bits=16).load_state(model.state())


def test_it_predicts_smiles_in_any_notation(molecules: GraphStore, tmp_path: Path) -> None:
    result = train_final(molecules, RunConfig(model="ecfp-forest", model_arguments={"trees": 50}), seed=0)
    result.model.save(tmp_path / "m.safetensors")
    loaded = graphcaps.load(tmp_path / "m.safetensors")
    one, two = loaded.predict_proba(["CCC(O)CC", "CCOCC"]), loaded.predict_proba(["C(C)C(O)CC", "C(C)OCC"])
    assert np.array_equal(one, two)
    assert loaded.predict(["CCC(O)CC", "CCOCC"]).tolist() == ["alcohol", "ether"]
    assert loaded.info()["expects"]["reads"] == ["smiles"]


def test_without_rdkit_the_message_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    store = from_smiles(["C", "CC"], [0, 1])
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(MissingExtraError, match=r"ecfp-forest needs rdkit: .* 'graphcaps\[chem\]'"):
        ECFPForest(2).fit(store, np.arange(2), np.array([0, 1]))


def test_bace_is_above_its_largest_class(molecule_data: Path) -> None:
    """On a scaffold split, with 50 trees: ROC-AUC around 0.85 in published work."""
    from graphcaps.data.splits.groups import resolve_split
    from graphcaps.metrics import class_metrics

    store = graphcaps.load_dataset(molecule_data / "bace.csv", label="Class")
    split = resolve_split("scaffold", store)
    assert store.y is not None
    model = ECFPForest(2, trees=50)
    model.fit(store, split.train.numpy(), store.y[split.train].numpy())
    metrics = class_metrics(store.y[split.test].numpy(), model.predict_proba(store, split.test.numpy()))
    assert metrics["roc_auc"] > 0.75
    assert torch.equal(split.test, split.test.sort().values)
