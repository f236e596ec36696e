"""Mixtures of a network and its companions: weights, calibration and contributions."""

import numpy as np
import pytest

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.inference.mixture import AnswerParts, Mixture
from graphcaps.inference.probabilities import Calibration

NETWORK = np.array([[0.9, 0.1], [0.4, 0.6], [0.25, 0.75]])
FOREST = np.array([[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]])
CALIBRATION = Calibration("temperature", 50, temperature=0.7)


def test_a_mixture_is_the_weighted_mean_of_its_parts() -> None:
    mixed = Mixture((0.75, 0.25), 10, False).apply([NETWORK, FOREST])
    np.testing.assert_array_equal(mixed, 0.75 * NETWORK + 0.25 * FOREST)
    calibrated = Mixture((0.75, 0.25), 10, True, CALIBRATION).apply([NETWORK, FOREST])
    np.testing.assert_array_equal(calibrated, CALIBRATION.apply(mixed))
    assert abs(calibrated - mixed).max() > 0.01


@pytest.mark.parametrize("part", [0, 1])
def test_a_part_of_weight_one_is_the_answer_bit_by_bit(part: int) -> None:
    weights = tuple(float(number == part) for number in range(2))
    mixed = Mixture(weights, 10, False, CALIBRATION).apply([NETWORK, FOREST])
    np.testing.assert_array_equal(mixed, (NETWORK, FOREST)[part])


def test_contributions_are_shares_of_the_weighted_mean() -> None:
    parts = AnswerParts(("hgcn", "wl-forest"), (0.75, 0.25), np.stack([NETWORK, FOREST]))
    shares = parts.contributions(np.array([0, 1, 1]))
    np.testing.assert_allclose(shares.sum(0), 1)
    np.testing.assert_allclose(shares[0], [0.675 / 0.8, 0.45 / 0.65, 1.0])


def test_spread_leaves_nan_for_other_graphs() -> None:
    parts = AnswerParts(("hgcn", "wl-forest"), (0.75, 0.25), np.stack([NETWORK, FOREST]))
    spread = parts.spread(np.array([True, False, True, True]))
    assert np.isnan(spread.probabilities[:, 1]).all()
    np.testing.assert_array_equal(spread.probabilities[:, [0, 2, 3]], parts.probabilities)


@pytest.mark.parametrize("weights", [(1.0,), (0.5, 0.6), (-0.1, 1.1), (float("nan"), 1.0), (1, 0)])
def test_weights_that_are_no_mixture_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(ArgumentError, match="'weights' must be at least two numbers from 0 to 1 that add up"):
        Mixture(weights, 10, False)
    with pytest.raises(ShapeError, match="'parts' must be one per weight, 2, got 1"):
        Mixture((0.5, 0.5), 10, False).apply([NETWORK])


@pytest.mark.parametrize(
    "change",
    [
        {"weights": "half"},
        {"weights": [0.5, "x"]},
        {"graphs": -1},
        {"graphs": True},
        {"stacked": 1},
        {"calibration": 3},
        {"more": 1},
    ],
)
def test_entries_of_a_file_are_checked(change: dict[str, object]) -> None:
    mixture = Mixture((0.75, 0.25), 10, True, CALIBRATION)
    assert Mixture.from_dict(mixture.to_dict()) == mixture
    with pytest.raises(ArgumentError, match="Mixture: "):
        Mixture.from_dict(mixture.to_dict() | change)
