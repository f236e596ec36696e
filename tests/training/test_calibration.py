"""Calibration finds what was done to probabilities, and never looks at the graphs it is judged by."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.inference.probabilities import Calibration, abstain, probabilities
from graphcaps.metrics import class_metrics
from graphcaps.training.calibration import calibrate, calibrate_probabilities, cross_fit, report_calibration


def drawn(graphs: int = 4000, temperature: float = 0.3, classes: int = 2, seed: int = 0):
    """Probabilities that are too flat by a known temperature, with classes drawn from the true ones."""
    draw = np.random.default_rng(seed)
    true = draw.dirichlet([0.6] * classes, graphs)
    y = (draw.uniform(size=(graphs, 1)) > true.cumsum(1)).sum(1).clip(max=classes - 1)
    flat = np.maximum(true, 1e-12) ** temperature
    return flat / flat.sum(1, keepdims=True), y


@pytest.mark.parametrize("classes", [2, 4])
def test_the_temperature_is_found(classes):
    shares, y = drawn(classes=classes)
    assert calibrate_probabilities(shares, y, "temperature").temperature == pytest.approx(0.3, rel=0.06)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("classes", [2, 4])
def test_it_helps_on_other_graphs(method, classes):
    shares, y = drawn(classes=classes)
    new, true = drawn(classes=classes, seed=1)
    fitted = calibrate_probabilities(shares, y, method)
    before, after = class_metrics(true, new), class_metrics(true, fitted.apply(new))
    assert before["ece"] > 0.1
    assert after["ece"] < (0.06 if (method, classes) == ("isotonic", 4) else 0.03)  # one against the rest
    assert after["log_loss"] < before["log_loss"]
    assert after["brier"] < before["brier"]
    np.testing.assert_allclose(fitted.apply(new).sum(1), 1)


def test_a_temperature_keeps_the_order_and_a_bound():
    shares, _ = drawn(200, classes=3)
    fitted = Calibration("temperature", 18, 0.1)
    after = fitted.apply(shares)
    assert (after.argsort(1) == shares.argsort(1)).all()
    assert after.max() <= 19 / 20
    assert fitted.apply(np.array([[1.0, 0.0, 0.0]]))[0, 0] == pytest.approx(19 / 20)


def test_a_few_lucky_graphs_do_not_make_it_certain():
    shares = np.tile([0.85, 0.15], (12, 1))
    assert calibrate_probabilities(shares, np.zeros(12, int), "temperature").apply(shares).max() < 0.95


def test_scores_are_lengths_or_logits():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.5]])
    y = np.array([0, 1, 1])
    by_logits = calibrate(logits, y, scores_are="logits")
    by_lengths = calibrate(logits.exp(), y)  # lengths whose logarithms are these logits
    assert by_logits.temperature == pytest.approx(by_lengths.temperature, rel=1e-4)
    expected = (logits.double() / by_logits.temperature).softmax(1).numpy()
    found = by_logits.apply(probabilities(logits, "logits"))
    away = 2 / 5
    np.testing.assert_allclose(found, (1 - away) * expected + away / 2)


def test_cross_fitting_never_looks_at_the_own_fold():
    shares, y = drawn(600)
    fold = np.arange(600) % 5
    found = cross_fit(shares, y, fold)
    lies = np.where(fold == 2, 1 - y, y)
    changed = cross_fit(shares, lies, fold)
    np.testing.assert_array_equal(found[fold == 2], changed[fold == 2])
    assert not np.allclose(found[fold == 1], changed[fold == 1])
    own = calibrate_probabilities(shares[fold != 2], y[fold != 2], "temperature").apply(shares[fold == 2])
    np.testing.assert_array_equal(found[fold == 2], own)


def test_the_report_says_before_and_after():
    shares, y = drawn(1500)
    report = report_calibration(shares, y, np.arange(1500) % 10)
    assert report.graphs == 1500
    assert report.before["ece"] == class_metrics(y, shares)["ece"]
    assert report.after["ece"] < 0.05 < report.before["ece"]
    assert report.after["accuracy"] == report.before["accuracy"]


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_json_gives_it_back(method, classes):
    shares, y = drawn(300, classes=classes)
    fitted = calibrate_probabilities(shares, y, method)
    again = Calibration.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted
    np.testing.assert_array_equal(again.apply(shares), fitted.apply(shares))


def test_graphs_that_could_not_be_read_stay_so():
    fitted = Calibration("temperature", 50, 0.5)
    assert np.isnan(fitted.apply(np.array([[np.nan, np.nan]]))).all()


@pytest.mark.parametrize(
    ("entries", "words"),
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
def test_what_is_not_sound_is_refused(entries, words):
    with pytest.raises(ArgumentError, match=words):
        Calibration.from_dict(entries)


def test_arguments_are_checked():
    shares, y = drawn(20)
    with pytest.raises(ArgumentError, match="'temperature' or 'isotonic', got 'platt'"):
        calibrate_probabilities(shares, y, "platt")
    with pytest.raises(ArgumentError, match="at least one graph"):
        calibrate_probabilities(shares[:0], y[:0], "temperature")
    with pytest.raises(ShapeError, match="one class per row"):
        calibrate_probabilities(shares, y[:3], "temperature")
    with pytest.raises(ArgumentError, match="at least two folds"):
        cross_fit(shares, y, np.zeros(20))
    with pytest.raises(ArgumentError, match="hold 3 for 3 classes, got 1"):
        Calibration("isotonic", 3, curves=(((0.0, 1.0), (0.0, 1.0)),)).apply(np.ones((1, 3)) / 3)


def test_abstaining():
    shares = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    found = np.array([0, 1, 0])
    assert abstain(found, shares, None) is found
    assert abstain(found, shares, 0.6).tolist() == [0, 1, None]
    assert abstain(found, shares, 0.0).tolist() == [0, 1, 0]
    with pytest.raises(ArgumentError, match="'abstain_below' must be from 0 to 1, got 7"):
        abstain(found, shares, 7)
