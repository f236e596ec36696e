"""Calibration recovers a known temperature and never uses the graphs that it is evaluated on."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.inference.probabilities import Calibration, probabilities
from graphcaps.metrics import class_metrics
from graphcaps.training.calibration import calibrate, calibrate_probabilities, cross_fit, report_calibration


def flattened(graphs: int = 4000, temperature: float = 0.3, classes: int = 2, seed: int = 0):
    """Probabilities flattened by a known temperature, and labels drawn from the true probabilities."""
    generator = np.random.default_rng(seed)
    true = generator.dirichlet([0.6] * classes, graphs)
    y = (generator.uniform(size=(graphs, 1)) > true.cumsum(1)).sum(1).clip(max=classes - 1)
    flat = np.maximum(true, 1e-12) ** temperature
    return flat / flat.sum(1, keepdims=True), y


@pytest.mark.parametrize("classes", [2, 4])
def test_the_temperature_is_recovered(classes):
    proba, y = flattened(classes=classes)
    assert calibrate_probabilities(proba, y, "temperature").temperature == pytest.approx(0.3, rel=0.06)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("classes", [2, 4])
def test_calibration_improves_metrics_of_other_graphs(method, classes):
    proba, y = flattened(classes=classes)
    test_proba, test_y = flattened(classes=classes, seed=1)
    calibration = calibrate_probabilities(proba, y, method)
    before, after = class_metrics(test_y, test_proba), class_metrics(test_y, calibration.apply(test_proba))
    assert before["ece"] > 0.1
    assert after["ece"] < (0.06 if (method, classes) == ("isotonic", 4) else 0.03)  # one against the rest
    assert after["log_loss"] < before["log_loss"]
    assert after["brier"] < before["brier"]
    np.testing.assert_allclose(calibration.apply(test_proba).sum(1), 1)


def test_temperature_scaling_keeps_the_order_and_bounds_probabilities():
    proba, _ = flattened(200, classes=3)
    calibration = Calibration("temperature", 18, 0.1)
    after = calibration.apply(proba)
    assert (after.argsort(1) == proba.argsort(1)).all()
    assert after.max() <= 19 / 20
    assert calibration.apply(np.array([[1.0, 0.0, 0.0]]))[0, 0] == pytest.approx(19 / 20)


def test_few_correct_graphs_do_not_give_certainty():
    proba = np.tile([0.85, 0.15], (12, 1))
    assert calibrate_probabilities(proba, np.zeros(12, int), "temperature").apply(proba).max() < 0.95


def test_lengths_and_logits_give_the_same_temperature():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.5]])
    y = np.array([0, 1, 1])
    by_logits = calibrate(logits, y, score_kind="logits")
    by_lengths = calibrate(logits.exp(), y)  # lengths whose logarithms are these logits
    assert by_logits.temperature == pytest.approx(by_lengths.temperature, rel=1e-4)
    expected = (logits.double() / by_logits.temperature).softmax(1).numpy()
    actual = by_logits.apply(probabilities(logits, "logits"))
    smoothing = 2 / 5
    np.testing.assert_allclose(actual, (1 - smoothing) * expected + smoothing / 2)


def test_cross_fitting_does_not_use_the_fold_that_it_calibrates():
    proba, y = flattened(600)
    fold = np.arange(600) % 5
    calibrated = cross_fit(proba, y, fold)
    flipped = np.where(fold == 2, 1 - y, y)
    changed = cross_fit(proba, flipped, fold)
    np.testing.assert_array_equal(calibrated[fold == 2], changed[fold == 2])
    assert not np.allclose(calibrated[fold == 1], changed[fold == 1])
    expected = calibrate_probabilities(proba[fold != 2], y[fold != 2], "temperature").apply(proba[fold == 2])
    np.testing.assert_array_equal(calibrated[fold == 2], expected)


def test_the_report_has_metrics_before_and_after():
    proba, y = flattened(1500)
    report = report_calibration(proba, y, np.arange(1500) % 10)
    assert report.graphs == 1500
    assert report.before["ece"] == class_metrics(y, proba)["ece"]
    assert report.after["ece"] < 0.05 < report.before["ece"]
    assert report.after["accuracy"] == report.before["accuracy"]


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_calibration_survives_json(method, classes):
    proba, y = flattened(300, classes=classes)
    calibration = calibrate_probabilities(proba, y, method)
    restored = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    assert restored == calibration
    np.testing.assert_array_equal(restored.apply(proba), calibration.apply(proba))


def test_nan_probabilities_stay_nan():
    calibration = Calibration("temperature", 50, 0.5)
    assert np.isnan(calibration.apply(np.array([[np.nan, np.nan]]))).all()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"method": "magic", "graphs": 3}, "'method' must be 'temperature' or 'isotonic', got 'magic'"),
        ({"method": "temperature", "graphs": 0}, "integer of at least 1"),
        ({"method": "temperature", "graphs": 3, "temperature": -1}, "positive and finite"),
        ({"method": "temperature", "graphs": 3, "temperature": "hot"}, "hold numbers in 'temperature'"),
        ({"method": "isotonic", "graphs": 3}, "be set for method 'isotonic'"),
        ({"method": "isotonic", "graphs": 3, "curves": [[[0, 1], [0.9, 0.1]]]}, "ascend between 0 and 1"),
        ({"method": "isotonic", "graphs": 3, "curves": [[0, 1]]}, "entries"),
        ({"graphs": 3}, "entries"),
        ({"method": "temperature", "graphs": 3, "colour": 1}, "an unknown entry"),
    ],
)
def test_invalid_entries_are_refused(entries, message):
    with pytest.raises(ArgumentError, match=message):
        Calibration.from_dict(entries)


def test_arguments_are_checked():
    proba, y = flattened(20)
    with pytest.raises(ArgumentError, match="'temperature' or 'isotonic', got 'platt'"):
        calibrate_probabilities(proba, y, "platt")
    with pytest.raises(ArgumentError, match="at least one graph"):
        calibrate_probabilities(proba[:0], y[:0], "temperature")
    with pytest.raises(ShapeError, match="one class per row"):
        calibrate_probabilities(proba, y[:3], "temperature")
    with pytest.raises(ArgumentError, match="at least two folds"):
        cross_fit(proba, y, np.zeros(20))
    with pytest.raises(ArgumentError, match="hold 3 for 3 classes, got 1"):
        Calibration("isotonic", 3, curves=(((0.0, 1.0), (0.0, 1.0)),)).apply(np.ones((1, 3)) / 3)
