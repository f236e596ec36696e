"""Forests as arrays against scikit-learn's own predictions, and damaged arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from graphcaps.errors import ArgumentError
from graphcaps.models import forest_arrays
from graphcaps.models.forest_arrays import ForestArrays


def counts(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(0.7, (rows, columns)).astype(np.float32)


def fitted(kind=RandomForestClassifier, classes=3, trees=20, **options):
    x, y = counts(120, 15), np.random.default_rng(1).integers(0, classes, 120)
    return kind(trees, random_state=0, **options).fit(x, y), x


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
@pytest.mark.parametrize("classes", [1, 2, 5])
def test_probabilities_equal_those_of_scikit_learn_bit_by_bit(kind, classes):
    forest, x = fitted(kind, classes)
    arrays = ForestArrays.from_sklearn(forest, classes)
    for rows in (
        x,
        counts(60, 15, seed=2),
        np.random.default_rng(3).normal(size=(40, 15)).astype(np.float32),
    ):
        assert np.array_equal(arrays.predict_proba(rows), forest.predict_proba(rows))


def test_a_forest_fitted_to_sparse_counts_predicts_the_same_from_dense_rows():
    x, y = counts(120, 15), np.random.default_rng(1).integers(0, 2, 120)
    forest = RandomForestClassifier(20, random_state=0).fit(sparse.csr_array(x), y)
    arrays = ForestArrays.from_sklearn(forest, 2)
    assert np.array_equal(arrays.predict_proba(x), forest.predict_proba(sparse.csr_array(x)))


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 200))
def test_a_row_is_predicted_alike_alone_in_a_batch_and_in_steps(rows, step):
    forest, _ = fitted(trees=7)
    arrays, x = ForestArrays.from_sklearn(forest, 3), counts(rows, 15, seed=rows)
    together = arrays.predict_proba(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forest_arrays, "_STEP_ENTRIES", step)
        assert np.array_equal(arrays.predict_proba(x), together)
    assert np.array_equal(np.concatenate([arrays.predict_proba(row[None]) for row in x]), together)


def test_a_class_without_training_rows_keeps_its_column():
    x, y = counts(60, 5), np.random.default_rng(1).choice([0, 3], 60)
    forest = RandomForestClassifier(10, random_state=0).fit(x, y)
    probability = ForestArrays.from_sklearn(forest, 5).predict_proba(x)
    assert probability.shape == (60, 5)
    assert np.array_equal(probability[:, [0, 3]], forest.predict_proba(x))
    assert not probability[:, [1, 2, 4]].any()


def test_no_rows_give_no_probabilities():
    forest, _ = fitted()
    assert ForestArrays.from_sklearn(forest, 3).predict_proba(np.zeros((0, 15), np.float32)).shape == (0, 3)


def test_the_state_restores_the_same_predictions():
    forest, x = fitted()
    arrays = ForestArrays.from_sklearn(forest, 3)
    restored = ForestArrays.from_state(arrays.state(), 3, 15)
    assert np.array_equal(restored.predict_proba(x), arrays.predict_proba(x))
    assert restored.num_trees == 20


def changed(state: dict[str, torch.Tensor], name: str, index, value) -> dict[str, torch.Tensor]:
    tensor = state[name].clone()
    tensor[index] = value
    return state | {name: tensor}


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("children", (0, 0), 0, "be later nodes of the same tree"),  # a circle
        ("children", (0, 1), 10**6, "be later nodes of the same tree"),
        ("children", (0, 1), -1, "be later nodes of the same tree"),
        ("feature", 0, 15, "be from −1 to 14"),
        ("feature", 0, -2, "be from −1 to 14"),
        ("feature", 0, -1, "be later nodes of the same tree"),  # a leaf with children
        ("tree_ptr", 1, 0, "ascend from 0"),
        ("tree_ptr", -1, 1, "ascend from 0"),
        ("threshold", 0, float("nan"), "be finite"),
        ("value", (0, 0), 1.5, "be from 0 to 1"),
        ("value", (0, 0), float("nan"), "be from 0 to 1"),
    ],
)
def test_damaged_arrays_are_refused(name, index, value, message):
    state = ForestArrays.from_sklearn(fitted()[0], 3).state()
    with pytest.raises(ArgumentError, match=message):
        ForestArrays.from_state(changed(state, name, index, value), 3, 15, "WLForest")


def test_arrays_of_another_forest_are_refused():
    arrays = ForestArrays.from_sklearn(fitted()[0], 3)
    state = arrays.state()
    with pytest.raises(ArgumentError, match=r"'value' must be float64 of \d+ nodes"):
        ForestArrays.from_state(state, 4, 15)
    with pytest.raises(ArgumentError, match="'feature' must be int32"):
        ForestArrays.from_state(state | {"feature": state["feature"].long()}, 3, 15)
    with pytest.raises(ArgumentError, match="'value' must be one of the arrays"):
        ForestArrays.from_state({name: value for name, value in state.items() if name != "value"}, 3, 15)
    with pytest.raises(ArgumentError, match="'more' must be one of the arrays"):
        ForestArrays.from_state(state | {"more": torch.zeros(1)}, 3, 15)
    for name in ("tree_ptr", "feature"):
        with pytest.raises(ArgumentError, match=f"'{name}' must be int"):
            ForestArrays.from_state(state | {name: state[name][0]}, 3, 15)  # a single number
    empty = replace(arrays, tree_ptr=np.zeros(1, np.int64)).state()
    with pytest.raises(ArgumentError, match="tree_ptr"):
        ForestArrays.from_state(empty, 3, 15)
