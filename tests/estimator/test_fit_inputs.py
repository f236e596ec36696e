"""Class labels, class weights and graphs of HGCNClassifier.fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from graphcaps.data import to_networkx, to_pyg
from graphcaps.data.coercion import coerce
from graphcaps.errors import ArgumentError
from tests.estimator.small_classifier import small
from tests.small_models import labelled


def test_class_weights_change_probabilities():
    store = labelled()
    y = np.array(["rare"] * 6 + ["often"] * 24)

    def probabilities(class_weight, epochs):
        return (
            small(epochs=epochs, validation=0, class_weight=class_weight).fit(store, y).predict_proba(store)
        )

    plain, balanced = (probabilities(class_weight, epochs=50) for class_weight in (None, "balanced"))
    assert (balanced[:, 1] > plain[:, 1]).mean() > 0.9
    by_hand = {"rare": 2.5, "often": 0.625}
    for one, other in ((None, {"rare": 1.0}), ("balanced", by_hand)):
        np.testing.assert_allclose(probabilities(one, epochs=5), probabilities(other, epochs=5), atol=1e-6)
    assert not np.allclose(probabilities(None, epochs=5), probabilities(by_hand, epochs=5), atol=1e-5)


def test_invalid_graphs_and_classes_are_refused():
    store = labelled()
    with pytest.raises(ArgumentError, match="at least one graph"):
        small().fit([])
    with pytest.raises(ArgumentError, match="one class per graph, 30, got 3"):
        small().fit(store, [0, 1, 0])
    for single in ("a", 3):
        message = (
            f"^HGCNClassifier: 'y' must have one class per graph, 30, got a single value, {single!r}\\.$"
        )
        with pytest.raises(ArgumentError, match=message):
            small().fit(store, single)
    with pytest.raises(
        ArgumentError, match="'validation' must have one class per graph, 30, got a single value, 'a'"
    ):
        small().fit(store, validation=(store, "a"))
    with pytest.raises(ArgumentError, match="1 graph of class 'rare' in all"):
        small().fit(store, ["often"] * 15 + ["usual"] * 14 + ["rare"])
    with pytest.raises(ArgumentError, match="at least two classes"):
        small().fit(store, np.zeros(30))
    with pytest.raises(ArgumentError, match="requires y to be passed"):
        small().fit(replace(store, y=None))
    with pytest.raises(ArgumentError, match="at least two classes"):
        small().fit(to_networkx(store, 0), [1])  # one graph is one graph
    with pytest.raises(NotFittedError):
        small().predict(store)
    with pytest.raises(ValueError, match="Unknown label type"):
        small().fit(store, np.linspace(0, 1, 30))
    assert coerce(to_pyg(store)[0]).store.num_nodes == int(store.sizes[0])


def test_missing_classes_are_refused_with_the_way_out():
    pd = pytest.importorskip("pandas")
    store = labelled()
    for missing in (float("nan"), None, pd.NA, ""):
        y = np.array(["a", "b"] * 15, dtype=object)
        y[4] = y[9] = missing
        with pytest.raises(ArgumentError) as caught:
            small().fit(store, y)
        assert str(caught.value) == (
            f"HGCNClassifier: 'y' must hold the class of each graph, got {missing!r} for graph 4 (2 such graphs). "
            "Leave out graphs without a class; coerce(frame, label='…', bad='skip') does so for a DataFrame."
        )
    # A list of text with NaN, which numpy makes the text "nan", was a class of its own before.
    texts = ["a", "b"] * 15
    for y in ([float("nan"), *texts[1:]], np.array([*texts[:29], None], dtype=str)):
        with pytest.raises(
            ArgumentError, match=r"'y' must hold the class of each graph, got '(nan|None)' for"
        ):
            small().fit(store, y)
    with pytest.raises(
        ArgumentError, match="'validation' must hold the class of each graph, got nan for graph 0"
    ):
        small().fit(store, validation=(store, [float("nan")] * 30))


def test_numbers_are_one_class_whatever_their_notation():
    store = labelled()
    numbers = store.y.double().numpy()
    model = small().fit(store, numbers)
    assert model.classes_.tolist() == sorted(set(numbers))
    assert model.model_.class_names == tuple(str(int(label)) for label in model.classes_)
    written = [f"{label:.0f}" if index % 2 else f"{label:.1f}" for index, label in enumerate(numbers)]
    mixed = small().fit(store, written)  # "1" and "1.0"
    assert mixed.classes_.tolist() == list(model.model_.class_names)
    assert mixed.score(store, numbers) == mixed.score(store, written) == model.score(store, written)
    texts = small().fit(store, [f"{label:.1f}" for label in numbers])
    assert texts.classes_.tolist() == [f"{label:.1f}" for label in model.classes_]  # one notation is kept
