"""Classification metrics: by hand, and compared with scikit-learn on inputs with ties and padding."""

from __future__ import annotations

import warnings
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn import metrics

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.metrics import (
    METRIC_TITLES,
    MIN_CALIBRATION_GRAPHS,
    SelectionMetric,
    accuracy_caution,
    balanced_accuracy,
    check_selection_metric,
    class_counts,
    class_metrics,
    expected_calibration_error,
    matthews_correlation,
    metric_caution,
    metric_of,
    pr_auc,
    reliability,
    roc_auc,
    wilson_interval,
)

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
    ece = expected_calibration_error(Y, PROBA)
    assert ece == pytest.approx((0.1 + 0.6 + 0.2 + 0.3) / 4)  # one bin per graph


def test_few_graphs_have_no_calibration_error():
    """Fifteen graphs in fifteen bins have a mean gap of about the mean confidence, whatever the model."""
    proba = np.tile(PROBA, (MIN_CALIBRATION_GRAPHS // 4 + 1, 1))[:MIN_CALIBRATION_GRAPHS]
    y = np.tile(Y, MIN_CALIBRATION_GRAPHS // 4 + 1)[:MIN_CALIBRATION_GRAPHS]
    assert class_metrics(y, proba)["ece"] == pytest.approx(expected_calibration_error(y, proba))
    assert class_metrics(y[1:], proba[1:])["ece"] is None


def test_three_classes_equal_sklearn():
    generator = np.random.default_rng(0)
    proba, y = generator.dirichlet([1, 1, 1], 60), generator.integers(0, 3, 60)
    scores = class_metrics(y, proba)
    assert scores["roc_auc"] == pytest.approx(metrics.roc_auc_score(y, proba, multi_class="ovr"))
    assert scores["pr_auc"] == pytest.approx(metrics.average_precision_score(np.eye(3)[y], proba))
    assert scores["log_loss"] == pytest.approx(metrics.log_loss(y, proba))
    assert scores["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, proba.argmax(1)))
    assert scores["brier"] == pytest.approx(((proba - np.eye(3)[y]) ** 2).sum(1).mean())


def test_rounding_of_scores_does_not_change_areas():
    """Two graphs of the same probability and different classes: float32 ranks them by the batch they were in."""
    generator = np.random.default_rng(2)
    p, y = generator.uniform(0.01, 0.99, 40), generator.integers(0, 2, 40)
    p[1], y[0], y[1] = p[0], 0, 1
    above, below = (p * (1 + sign * 2e-7 * (np.arange(40) == 1)) for sign in (1, -1))
    areas = [class_metrics(y, np.stack([1 - each, each], 1)) for each in (p, above, below)]
    for name in ("roc_auc", "pr_auc"):
        assert areas[0][name] == areas[1][name] == areas[2][name]
    assert areas[0]["roc_auc"] == pytest.approx(metrics.roc_auc_score(y, p))
    assert metrics.roc_auc_score(y, above) > metrics.roc_auc_score(y, below)


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


def test_reliability_by_hand() -> None:
    confidence = np.array([0.9, 0.5, 0.6, 0.8])
    correct = np.array([True, False, True, True])
    curve = reliability(confidence, correct, bins=2)
    assert curve.confidence == pytest.approx([0.55, 0.85])
    assert curve.accuracy == pytest.approx([0.5, 1.0])
    assert curve.count.tolist() == [2, 2]
    assert curve.ece == pytest.approx((0.05 * 2 + 0.15 * 2) / 4)


def test_bins_are_of_equal_size_and_never_empty() -> None:
    confidence = np.linspace(0.5, 1, 188)
    assert sorted(set(reliability(confidence, confidence > 0.7).count.tolist())) == [12, 13]
    assert len(reliability(np.ones(2000), np.ones(2000, dtype=bool)).count) == 15
    few = reliability(np.array([0.6, 0.7]), np.array([True, False]))
    assert few.count.tolist() == [1, 1]
    assert reliability(np.empty(0), np.empty(0, dtype=bool)).ece == 0


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


def sklearn_metrics(y: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """The same metrics by scikit-learn; NaN where they are not defined."""
    num_classes, predicted = p.shape[1], p.argmax(1)
    present = [c for c in range(num_classes) if 0 < (y == c).sum() < len(y)]
    ranked = ([1] if num_classes == 2 else present) if present else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "accuracy": metrics.accuracy_score(y, predicted) if len(y) else np.nan,
            "balanced-accuracy": metrics.recall_score(y, predicted, labels=np.unique(y), average="macro")
            if len(y)
            else np.nan,
            "roc-auc": np.mean([metrics.roc_auc_score(y == c, p[:, c]) for c in ranked] or [np.nan]),
            "pr-auc": np.mean([metrics.average_precision_score(y == c, p[:, c]) for c in ranked] or [np.nan]),
            "mcc": metrics.matthews_corrcoef(y, predicted) if present else np.nan,
        }


@settings(max_examples=15)
@example(524288, 4, 4, 32, 10)  # differences of 1e-6 before rounding
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(2, 5), st.integers(1, 40), st.integers(1, 12))
def test_replicas_with_ties_and_padding_equal_sklearn(seed, replicas, num_classes, n, levels):
    """A row per replica; few levels make many ties, and some replicas have fewer graphs or a single class."""
    generator = np.random.default_rng(seed)
    p = generator.integers(0, levels + 1, (replicas, n, num_classes)) + 1e-3
    # Ties are exact, as scikit-learn needs them, and other log-odds differ by four times what counts as a tie or more.
    p = (p / p.sum(-1, keepdims=True)).round(5)
    y = generator.integers(-1, num_classes, (replicas, n))
    y[0] = np.where(y[0] >= 0, y[0].max(), -1)
    for name in get_args(SelectionMetric)[1:]:
        found = metric_of(name)(torch.from_numpy(p), torch.from_numpy(y))
        assert found.dtype == torch.float64
        assert found.shape == (replicas,)
        for f in range(replicas):
            real = y[f] >= 0
            expected = sklearn_metrics(y[f][real], p[f][real])[name]
            assert found[f].item() == pytest.approx(expected, abs=1e-12, nan_ok=True), name


def test_ties_count_one_half_by_hand():
    """Positives 0.8, 0.5; negatives 0.5, 0.2: three pairs in order and one tie. Precision 1 at 0.8 and 2/3 at 0.5."""
    p = torch.tensor([0.8, 0.5, 0.5, 0.2], dtype=torch.float64)
    probabilities, y = torch.stack([1 - p, p], -1), torch.tensor([1, 1, 0, 0])
    assert roc_auc(probabilities, y).item() == 3.5 / 4
    assert pr_auc(probabilities, y).item() == pytest.approx((1 + 2 / 3) / 2)
    # argmax takes the first class at 0.5: one of two positives is found, both negatives are
    assert balanced_accuracy(probabilities, y).item() == 0.75
    assert matthews_correlation(probabilities, y).item() == pytest.approx(
        (3 * 4 - 2 * 3 - 2) / (6 * 8) ** 0.5
    )


def test_a_probability_that_is_not_a_number_gives_no_area():
    p = torch.tensor([[0.2, 0.8], [0.5, 0.5], [torch.nan, torch.nan]])
    assert roc_auc(p, torch.tensor([1, 0, 0])).isnan()
    assert pr_auc(p, torch.tensor([1, 0, 0])).isnan()
    assert roc_auc(p, torch.tensor([1, 0, -1])).item() == 1  # padding may hold anything


def test_names_of_metrics():
    assert set(METRIC_TITLES) == set(get_args(SelectionMetric))
    assert check_selection_metric("train", "roc-auc") == "roc-auc"
    with pytest.raises(ArgumentError, match=r"train: 'metric' must be one of loss, accuracy, .*, got 'auc'"):
        check_selection_metric("train", "auc")


def test_a_caution_names_the_number_of_graphs_of_the_smallest_class():
    assert class_counts(np.array([0, 2, 2]), ["a", "b", "c"]) == {"a": 1, "b": 0, "c": 2}
    assert metric_caution("the test set", {"a": 10, "b": 10}) == ""
    expected = "Caution: the test set has only 9 graphs of class 'b', so ROC-AUC, PR-AUC, balanced accuracy and MCC are"
    assert metric_caution("the test set", {"a": 10, "b": 9}) == f"{expected} imprecise."
    assert "has only 1 graph of class 'a'" in metric_caution("the test set", {"a": 1, "b": 9})
    assert "has no graph of class 'c'" in metric_caution("the test set", {"a": 1, "b": 9, "c": 0})
    for counts in ({"a": 3, "b": 0}, {"a": 0, "b": 0}):
        assert metric_caution("the test set", counts) == (
            "ROC-AUC, PR-AUC and MCC are not defined: the test set has graphs of one class only."
        )


def test_wilson_interval_by_hand():
    """For 8 of 10 correct, z = 1.96: centre (0.8 + 0.19207) / 1.38415, half width 0.31226 / 1.38415."""
    low, high = wilson_interval(8, 10)
    assert (low, high) == pytest.approx((0.49016, 0.94331), abs=1e-4)
    assert wilson_interval(0, 1) == pytest.approx((0.0, 0.79345), abs=1e-4)
    assert wilson_interval(1, 1) == pytest.approx((0.20655, 1.0), abs=1e-4)
    for correct, graphs in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ArgumentError, match="wilson_interval: 'correct'"):
            wilson_interval(correct, graphs)
    assert accuracy_caution(30) == ""
    assert accuracy_caution(29) == "Caution: fewer than 30 graphs say little."
