"""What forests share: the base that holds columns and trees."""

from __future__ import annotations

import numpy as np
import pytest

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models import MODELS, find_classical_model, model_names
from graphcaps.models.features_trees import FeaturesTrees
from graphcaps.models.forest_model import ForestModel
from graphcaps.models.wl_forest import WLForest

FORESTS = [name for name in model_names() if issubclass(MODELS[name], ForestModel)]


@pytest.fixture(scope="module")
def store() -> GraphStore:
    return planted_parts(num_graphs=30)


def test_all_forests_have_the_base():
    assert {"ecfp-forest", "features-trees", "wl-forest"} <= set(FORESTS)


@pytest.mark.parametrize("name", FORESTS)
def test_a_forest_checks_its_trees_and_that_it_is_fitted(name, store):
    kind = find_classical_model(name)
    with pytest.raises(ArgumentError, match=f"{kind.__name__}: 'trees' must be at least 1, got 0"):
        kind(2, trees=0)
    with pytest.raises(UsageError, match=f"{kind.__name__}: fit the model before it predicts"):
        kind(2).predict_proba(store, np.arange(2))
    with pytest.raises(UsageError, match=f"{kind.__name__}: fit the model before it is saved"):
        kind(2).state()


def test_a_refused_state_leaves_the_model_as_it_was(store):
    assert store.y is not None
    y = store.y.numpy()
    model, other = WLForest(3, trees=4), WLForest(3, trees=4)
    model.fit(store, np.arange(20), y[:20])
    other.fit(store, np.arange(10, 30), y[10:])
    expected, state = model.predict_proba(store, np.arange(30)), other.state()
    del state["threshold"]
    with pytest.raises(ArgumentError, match="'threshold' must be one of the arrays"):
        model.load_state(state)
    assert np.array_equal(model.predict_proba(store, np.arange(30)), expected)


def test_extra_trees_and_random_forests_differ(store):
    assert store.y is not None
    trees = FeaturesTrees(3, trees=4)
    trees.fit(store, np.arange(30), store.y.numpy())
    forest = type("Forest", (FeaturesTrees,), {"method": "random-forest"})(3, trees=4)
    forest.fit(store, np.arange(30), store.y.numpy())
    assert len(trees.forest.feature) != len(forest.forest.feature)
