import numpy as np
import pytest

from graphcaps.explanation.report import confusion_matrix, reliability


def test_reliability_by_hand() -> None:
    confidence = np.array([0.9, 0.5, 0.6, 0.8])
    right = np.array([True, False, True, True])
    found = reliability(confidence, right, bins=2)
    assert found.confidence == pytest.approx([0.55, 0.85])
    assert found.accuracy == pytest.approx([0.5, 1.0])
    assert found.count.tolist() == [2, 2]
    assert found.ece == pytest.approx((0.05 * 2 + 0.15 * 2) / 4)


def test_groups_are_of_equal_size_and_never_empty() -> None:
    confidence = np.linspace(0.5, 1, 188)
    assert sorted(set(reliability(confidence, confidence > 0.7).count.tolist())) == [18, 19]
    assert len(reliability(np.ones(2000), np.ones(2000, dtype=bool)).count) == 15
    few = reliability(np.array([0.6, 0.7]), np.array([True, False]))
    assert few.count.tolist() == [1, 1]
    assert reliability(np.empty(0), np.empty(0, dtype=bool)).ece == 0


def test_confusion_by_hand() -> None:
    known, predicted = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 1, 0, 2, 2])
    assert confusion_matrix(known, predicted, 3).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]
