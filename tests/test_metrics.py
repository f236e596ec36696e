"""Classification metrics: by hand, and compared with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.metrics import class_metrics, expected_calibration_error

Y = np.array([0, 0, 1, 1])
PROBA = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]])


def test_two_classes_by_hand():
    scores = class_metrics(Y, PROBA)
    assert scores["accuracy"] == 0.75
    assert scores["balanced_accuracy"] == 0.75
    assert scores["roc_auc"] == 1.0  # 0.7 and 0.8 are above 0.1 and 0.6
    assert scores["pr_auc"] == 1.0
    assert scores["brier"] == pytest.approx((0.1**2 + 0.6**2 + 0.2**2 + 0.3**2) / 4)
    assert scores["log_loss"] == pytest.approx(-np.log([0.9, 0.4, 0.8, 0.7]).mean())
    assert scores["mcc"] == pytest.approx(metrics.matthews_corrcoef(Y, [0, 1, 1, 1]))
    assert scores["ece"] == pytest.approx((0.1 + 0.6 + 0.2 + 0.3) / 4)  # one bin per graph


def test_three_classes_equal_sklearn():
    generator = np.random.default_rng(0)
    proba, y = generator.dirichlet([1, 1, 1], 60), generator.integers(0, 3, 60)
    scores = class_metrics(y, proba)
    assert scores["roc_auc"] == pytest.approx(metrics.roc_auc_score(y, proba, multi_class="ovr"))
    assert scores["pr_auc"] == pytest.approx(metrics.average_precision_score(np.eye(3)[y], proba))
    assert scores["log_loss"] == pytest.approx(metrics.log_loss(y, proba))
    assert scores["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, proba.argmax(1)))
    assert scores["brier"] == pytest.approx(((proba - np.eye(3)[y]) ** 2).sum(1).mean())


def test_undefined_metrics_are_none():
    one = class_metrics(np.zeros(3, dtype=int), PROBA[:3])
    assert one["accuracy"] == pytest.approx(1 / 3)
    assert one["roc_auc"] is one["pr_auc"] is one["mcc"] is None
    assert set(class_metrics(np.empty(0, int), np.empty((0, 2))).values()) == {None}


def test_bins_have_equal_mass():
    """Thirty graphs in three bins: the ten least confident predictions are wrong, the others correct."""
    confidence = np.linspace(0.5, 0.95, 30)
    y = np.where(np.arange(30) < 10, 1, 0)
    proba = np.stack([confidence, 1 - confidence], 1)
    proba[0] = [0.5000001, 0.4999999]
    low, middle, high = confidence[:10].mean(), confidence[10:20].mean(), confidence[20:].mean()
    expected = (low + (1 - middle) + (1 - high)) / 3
    assert expected_calibration_error(y, proba, 3) == pytest.approx(expected, abs=1e-6)


def test_true_probabilities_have_a_small_calibration_error():
    generator = np.random.default_rng(1)
    confidence = generator.uniform(size=30_000)
    y = (generator.uniform(size=30_000) < confidence).astype(int)
    assert expected_calibration_error(y, np.stack([1 - confidence, confidence], 1)) < 0.015


def test_invalid_labels_and_probabilities_are_refused():
    with pytest.raises(ShapeError, match="one class per row"):
        class_metrics(Y[:3], PROBA)
    with pytest.raises(ArgumentError, match="classes from 0 to 1, got 0 to 2"):
        class_metrics(np.array([0, 1, 2, 1]), PROBA)
    with pytest.raises(ArgumentError, match="be finite"):
        class_metrics(Y, PROBA * np.nan)
    with pytest.raises(ArgumentError, match="at least 1"):
        expected_calibration_error(Y, PROBA, 0)
