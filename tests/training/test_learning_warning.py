"""The threshold of "hardly learned": a gain that chance does not explain, and at most half of the remaining share."""

from __future__ import annotations

import pytest

from graphcaps.training.learning_warning import learning_threshold, learning_warning


@pytest.mark.parametrize(
    ("largest", "graphs", "threshold"),
    [
        (0.6, 267, 0.66),  # a standard error of 3 %
        (0.6, 100_000, 0.65),  # at least 5 points
        (0.01, 3900, 0.06),  # 100 classes: significant, and still next to nothing
        (0.6, 20, 0.8),  # half of the remaining share
        (0.97, 1000, 0.985),
    ],
)
def test_threshold_by_hand(largest: float, graphs: int, threshold: float) -> None:
    assert learning_threshold(largest, graphs) == pytest.approx(threshold, abs=1e-4)


def test_an_accuracy_within_two_standard_errors_of_the_largest_class_is_named() -> None:
    warning = learning_warning("The model has", 0.653, 0.6, 267)
    assert warning == (
        "The model has hardly learned: its training accuracy is 65.3 %, and the largest class has 60.0 % of 267 graphs "
        "(standard error 3.0 %); a model that has learned is above 66.0 %."
    )
    assert learning_warning("The model has", 0.653, 0.6, 2670) == ""
    assert learning_warning("The model has", 0.61, 0.6, 267, "Train longer.").endswith("%. Train longer.")
    assert learning_warning("The model has", 1.0, 1.0, 5) == ""
