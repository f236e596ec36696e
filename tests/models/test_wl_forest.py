"""The forest on colour counts: what is particular to it beside the contract."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier

from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.colour_counts import count_colours
from graphcaps.models.wl_forest import WLForest


@pytest.fixture(scope="module")
def planted() -> GraphStore:
    return load_dataset("planted-parts")[torch.arange(0, 300, 3)]


def classes(store: GraphStore, indices: np.ndarray) -> np.ndarray:
    assert store.y is not None
    return store.y.numpy()[indices]


def test_probabilities_are_those_of_scikit_learn_on_the_counts(planted):
    train, test = np.arange(70), np.arange(70, 100)
    model = WLForest(planted.num_classes, trees=30, seed=4)
    model.fit(planted, train, classes(planted, train))
    colours = count_colours(planted, 2)
    forest = RandomForestClassifier(30, random_state=4)
    forest.fit(colours.select(train, model.columns), classes(planted, train))
    expected = forest.predict_proba(colours.select(test, model.columns))
    assert np.array_equal(model.predict_proba(planted, test), expected)


def test_it_learns_planted_parts(planted):
    train, test = np.arange(70), np.arange(70, 100)
    model = WLForest(planted.num_classes, trees=100)
    model.fit(planted, train, classes(planted, train))
    assert (model.predict_proba(planted, train).argmax(1) == classes(planted, train)).mean() > 0.99
    assert (model.predict_proba(planted, test).argmax(1) == classes(planted, test)).mean() > 0.5


def test_the_vocabulary_is_that_of_the_training_graphs(planted):
    train = np.arange(40)
    colours = count_colours(planted, 2)
    model = WLForest(planted.num_classes, trees=2)
    model.fit(planted, train, classes(planted, train))
    assert np.array_equal(model.columns.colour, colours.frequent(train, 3, 4000).colour)
    assert len(model.columns) < len(colours.frequent(np.arange(100), 3, 4000))


def test_options_bound_the_columns_and_the_trees(planted):
    train = np.arange(40)
    model = WLForest(planted.num_classes, trees=3, max_columns=7, iterations=1)
    model.fit(planted, train, classes(planted, train))
    assert len(model.columns) == 7
    assert model.forest.num_trees == 3
    assert model.columns.iteration.max() <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": -1}, "'iterations' must be at least 0"),
        ({"trees": 0}, "'trees' must be at least 1"),
        ({"max_columns": 0}, "'max_columns' must be at least 1"),
    ],
)
def test_options_out_of_range_are_rejected(options, message):
    with pytest.raises(ArgumentError, match=message):
        WLForest(2, **options)


def test_a_model_that_is_not_fitted_says_so(planted):
    with pytest.raises(UsageError, match="fit the model before it predicts"):
        WLForest(3).predict_proba(planted, np.arange(2))
    with pytest.raises(UsageError, match="fit the model before it is saved"):
        WLForest(3).state()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("colour", lambda value: value.flip(0)),
        ("colour", lambda value: value[:-1]),
        ("colour", lambda value: value.double()),
        ("colour_iteration", lambda value: value + 1),
        ("colour_iteration", lambda value: value - 1),
        ("colour_iteration", lambda value: value.flip(0)),
    ],
)
def test_a_damaged_vocabulary_is_refused(planted, name, change):
    model = WLForest(planted.num_classes, trees=2)
    model.fit(planted, np.arange(40), classes(planted, np.arange(40)))
    state = model.state()
    with pytest.raises(ArgumentError, match="WLForest: 'colour"):
        WLForest(planted.num_classes, trees=2).load_state(state | {name: change(state[name])})
    with pytest.raises(ArgumentError, match=r"'colour' must .* integers, got torch.float64 \[\d+\]\."):
        WLForest(planted.num_classes, trees=2).load_state(state | {"colour": state["colour"].double()})
    missing = {key: value for key, value in state.items() if key != "colour"}
    with pytest.raises(ArgumentError, match=r"'colour' must .* integers, got no such array\."):
        WLForest(planted.num_classes, trees=2).load_state(missing)
    with pytest.raises(ArgumentError, match="be of 3 trees, got 2"):
        WLForest(planted.num_classes, trees=3).load_state(state)
