"""Figures of predictions, by hand and as scikit-learn has them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.metrics import class_metrics, expected_calibration_error

Y = np.array([0, 0, 1, 1])
SHARES = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]])


def test_two_classes_by_hand():
    found = class_metrics(Y, SHARES)
    assert found["accuracy"] == 0.75
    assert found["balanced_accuracy"] == 0.75
    assert found["roc_auc"] == 1.0  # 0.7 and 0.8 stand above 0.1 and 0.6
    assert found["pr_auc"] == 1.0
    assert found["brier"] == pytest.approx((0.1**2 + 0.6**2 + 0.2**2 + 0.3**2) / 4)
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.4, 0.8, 0.7]).mean())
    assert found["mcc"] == pytest.approx(metrics.matthews_corrcoef(Y, [0, 1, 1, 1]))
    assert found["ece"] == pytest.approx((0.1 + 0.6 + 0.2 + 0.3) / 4)  # a bin per graph


def test_three_classes_as_sklearn_has_them():
    draw = np.random.default_rng(0)
    shares, y = draw.dirichlet([1, 1, 1], 60), draw.integers(0, 3, 60)
    found = class_metrics(y, shares)
    assert found["roc_auc"] == pytest.approx(metrics.roc_auc_score(y, shares, multi_class="ovr"))
    assert found["pr_auc"] == pytest.approx(metrics.average_precision_score(np.eye(3)[y], shares))
    assert found["log_loss"] == pytest.approx(metrics.log_loss(y, shares))
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, shares.argmax(1)))
    assert found["brier"] == pytest.approx(((shares - np.eye(3)[y]) ** 2).sum(1).mean())


def test_what_is_not_defined_is_none():
    one = class_metrics(np.zeros(3, dtype=int), SHARES[:3])
    assert one["accuracy"] == pytest.approx(1 / 3)
    assert one["roc_auc"] is one["pr_auc"] is one["mcc"] is None
    assert set(class_metrics(np.empty(0, int), np.empty((0, 2))).values()) == {None}


def test_bins_have_equal_mass():
    """Thirty graphs in three bins: the ten least sure are all wrong, the others all right."""
    sure = np.linspace(0.5, 0.95, 30)
    y = np.where(np.arange(30) < 10, 1, 0)
    shares = np.stack([sure, 1 - sure], 1)
    shares[0] = [0.5000001, 0.4999999]
    low, middle, high = sure[:10].mean(), sure[10:20].mean(), sure[20:].mean()
    expected = (low + (1 - middle) + (1 - high)) / 3
    assert expected_calibration_error(y, shares, 3) == pytest.approx(expected, abs=1e-6)


def test_perfect_probabilities_have_a_small_error():
    draw = np.random.default_rng(1)
    sure = draw.uniform(size=30_000)
    y = (draw.uniform(size=30_000) < sure).astype(int)
    assert expected_calibration_error(y, np.stack([1 - sure, sure], 1)) < 0.015


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="one class per row"):
        class_metrics(Y[:3], SHARES)
    with pytest.raises(ArgumentError, match="classes from 0 to 1, got 0 to 2"):
        class_metrics(np.array([0, 1, 2, 1]), SHARES)
    with pytest.raises(ArgumentError, match="be finite"):
        class_metrics(Y, SHARES * np.nan)
    with pytest.raises(ArgumentError, match="at least 1"):
        expected_calibration_error(Y, SHARES, 0)
