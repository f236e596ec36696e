"""Arrays of a support vector machine predict what scikit-learn predicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.svm import SVC

from graphcaps.errors import ArgumentError
from graphcaps.models.svm_arrays import SVMFit


def draw(num_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Overlapping classes in the plane: rows, classes and weights."""
    generator = np.random.default_rng(0)
    y = np.arange(60) % num_classes
    x = generator.normal(size=(60, 2)) + 1.5 * np.stack([np.cos(y), np.sin(y)], 1)
    return x, y, generator.uniform(0.2, 3, 60)


@pytest.mark.parametrize("num_classes", [2, 3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_classes_are_those_of_scikit_learn(num_classes, weighted):
    x, y, weights = draw(num_classes)
    gram = x @ x.T
    fit = SVMFit.fit(gram, 2 * y, weights if weighted else None, C=0.7)
    expected = SVC(C=0.7, kernel="precomputed", decision_function_shape="ovo")
    expected.fit(gram, 2 * y, weights if weighted else None)
    values = expected.decision_function(gram)
    values = -values[:, None] if num_classes == 2 else values
    kernel = gram[:, fit.support]
    np.testing.assert_allclose(fit.arrays.decision_values(kernel), values, rtol=0, atol=1e-12)
    assert np.array_equal(fit.arrays.predict(kernel), expected.predict(gram))
    p = fit.arrays.with_slope(2.0).predict_proba(kernel, 2 * num_classes)[:, ::2]
    assert np.array_equal(p.argmax(1), expected.predict(gram) // 2)
    if num_classes > 2:
        expected.set_params(decision_function_shape="ovr")
        scores = expected.decision_function(gram)
        alone = np.sort(np.round(scores))[:, -2] < np.round(scores).max(
            1
        )  # a single class has the most preferences
        softmax = np.exp(2 * scores) / np.exp(2 * scores).sum(1, keepdims=True)
        np.testing.assert_allclose(p[alone], softmax[alone], rtol=0, atol=1e-12)
        ties = p[~alone] == p[~alone].max(1, keepdims=True)
        assert (ties.sum(1) > 1).all()


def test_two_classes_have_a_sigmoid_and_absent_classes_none():
    x, y, _ = draw(2)
    fit = SVMFit.fit(x @ x.T, 2 * y, None, C=1.0)
    kernel = (x @ x.T)[:, fit.support]
    machine = fit.arrays.with_slope(0.5)
    p = machine.predict_proba(kernel, 4)
    assert (p[:, [1, 3]] == 0).all()
    np.testing.assert_allclose(p[:, 0], 1 / (1 + np.exp(-0.5 * machine.decision_values(kernel)[:, 0])))
    assert np.array_equal(p.argmax(1), machine.predict(kernel))


def test_calibration_takes_the_slope_of_the_lowest_loss():
    x, y, weights = draw(2)
    fit = SVMFit.fit(x[:40] @ x[:40].T, y[:40], None, C=100.0)
    kernel = x[40:] @ x[:40][fit.support].T
    slopes = 2.0 ** (np.arange(-16, 25) / 2)
    target = np.where(y[40:, None] == np.arange(2), 21 / 22, 1 / 22)

    def loss(slope, weight):
        p = fit.arrays.with_slope(slope).predict_proba(kernel, 2)
        return -(weight[:, None] * target * np.log(np.maximum(p, 1e-300))).sum()

    for weight in (np.ones(20), weights[40:]):
        best = min(slopes, key=lambda slope: loss(slope, weight))
        assert fit.arrays.calibrate(kernel, y[40:], weight).slope == best
    assert fit.arrays.calibrate(kernel, np.full(20, 7)).slope == 1  # no graph of a known class


def test_one_class_is_certain():
    fit = SVMFit.fit(np.eye(3), np.full(3, 1), None, C=1.0)
    assert fit.arrays.predict_proba(np.zeros((2, 1)), 3).tolist() == [[0, 1, 0]] * 2
    assert fit.support.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("svm_supports", lambda value: value[:-1], "be 3 numbers, at least 0, not all 0"),
        ("svm_supports", lambda value: 0 * value, "be 3 numbers, at least 0, not all 0"),
        ("svm_dual", lambda value: value[:, 1:], r"have the shape \[2, \d+\]"),
        ("svm_intercept", lambda value: value / 0, "be finite"),
        ("svm_slope", lambda value: -value, "be positive"),
        ("svm_other", lambda value: torch.zeros(1), "be left out, got one more array"),
    ],
)
def test_damaged_arrays_are_refused(name, change, message):
    x, y, _ = draw(3)
    arrays = SVMFit.fit(x @ x.T, y, None, C=1.0).arrays
    state = arrays.state(3)
    assert type(arrays).from_state(state, 3, "Model").dual.tolist() == arrays.dual.tolist()
    with pytest.raises(ArgumentError, match=f"Model: '{name}' must {message}"):
        type(arrays).from_state(state | {name: change(state.get(name))}, 3, "Model")
