"""The corrected t-test, Holm's step-down and mean ranks, by hand and by known properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.errors import ArgumentError, GraphcapsError, ShapeError
from graphcaps.evaluation import Ledger, cross_validate
from graphcaps.evaluation.statistics import (
    average_ranks,
    corrected_t_test,
    fold_ratio,
    friedman_p,
    holm,
    nemenyi_critical_difference,
    split_ratio,
)
from tests.evaluation.records import record

FIRST = np.array([0.90, 0.80, 0.85, 0.95])
SECOND = np.array([0.85, 0.80, 0.80, 0.85])


def test_corrected_t_test_by_hand() -> None:
    """Differences 5, 0, 5, 10 points: mean 5, variance 50/3; 1/4 + 1/3 = 7/12."""
    found = corrected_t_test(FIRST, SECOND, test_ratio=1 / 3)
    assert found.difference == pytest.approx(5)
    assert found.standard_error == pytest.approx(math.sqrt(7 / 12 * 50 / 3))
    assert found.statistic == pytest.approx(5 / math.sqrt(7 / 12 * 50 / 3))
    assert found.p == pytest.approx(2 * stats.t.sf(found.statistic, 3))
    assert found.pairs == 4
    low, high = found.interval
    assert (low + high) / 2 == pytest.approx(5)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, 3) * found.standard_error)


def test_corrected_error_is_larger_than_the_plain_one() -> None:
    plain = stats.ttest_rel(FIRST, SECOND).pvalue
    assert corrected_t_test(FIRST, SECOND, 0.25).p > plain
    assert corrected_t_test(FIRST, SECOND, 1e-12).p == pytest.approx(plain)


def test_swapping_the_models_changes_the_sign() -> None:
    one, other = corrected_t_test(FIRST, SECOND, 0.25), corrected_t_test(SECOND, FIRST, 0.25)
    assert one.p == pytest.approx(other.p)
    assert one.difference == pytest.approx(-other.difference)


def test_seeds_are_averaged_and_are_no_further_pairs() -> None:
    several = np.stack([FIRST + 0.02, FIRST - 0.02])
    assert corrected_t_test(several, SECOND, 0.25) == corrected_t_test(several.mean(0), SECOND, 0.25)
    assert corrected_t_test(several, SECOND, 0.25).pairs == 4


def test_equal_differences() -> None:
    assert corrected_t_test(FIRST, FIRST, 0.25).p == 1
    assert corrected_t_test(np.array([0.5, 0.5]), np.array([0.25, 0.25]), 0.25).p == 0
    # Two thirds more on every fold: equal but for rounding.
    found = corrected_t_test(np.array([1.0, 0.9, 0.8]), np.array([1, 0.9, 0.8]) - 2 / 3, 1 / 8)
    assert (found.p, found.standard_error, found.statistic) == (0, 0, math.inf)


def test_false_positive_rate() -> None:
    """Two equal classifiers, folds whose training parts overlap: about one finding in twenty, not many."""
    random = np.random.default_rng(0)
    found = plain = 0
    for _ in range(400):
        shared = random.normal(
            0, 0.01
        )  # what all folds share, since nine tenths of their graphs are the same
        delta = shared + random.normal(0, 0.03, 10)
        found += corrected_t_test(0.8 + delta, np.full(10, 0.8), 1 / 9).p < 0.05
        plain += stats.ttest_1samp(delta, 0).pvalue < 0.05
    assert found / 400 < 0.07
    assert plain / 400 > 0.12


@pytest.mark.parametrize(
    ("first", "ratio"), [(FIRST[:3], 0.25), (FIRST, 0.0), (FIRST, math.inf)], ids=["folds", "none", "all"]
)
def test_invalid_arguments_are_refused(first: np.ndarray, ratio: float) -> None:
    with pytest.raises(GraphcapsError):
        corrected_t_test(first, SECOND, ratio)


def test_the_ratio_is_that_of_the_trainings_that_are_compared() -> None:
    """Of ten folds, eight train with a validation fold and nine without one."""
    assert fold_ratio(10) == 1 / 8
    assert fold_ratio(10, "paper") == 1 / 9
    with pytest.raises(ArgumentError, match="'folds' must be more than 2"):
        fold_ratio(2)
    with pytest.raises(
        ArgumentError, match=r"^fold_ratio: 'protocol' must be 'held-out' or 'paper', got 'heldout'"
    ):
        fold_ratio(10, "heldout")  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", [0, math.inf, math.nan])
def test_a_ratio_is_finite_and_above_zero(ratio: float) -> None:
    with pytest.raises(
        ArgumentError, match=r"^corrected_t_test: 'test_ratio' must be a finite number above 0"
    ):
        corrected_t_test(FIRST, SECOND, ratio)


def test_the_ratio_of_a_ledger_counts_graphs() -> None:
    ledger = Ledger((record(0, "held-out"), record(0, "paper")))
    for protocol in ("held-out", "paper"):
        curves = ledger.of(protocol)[0].curves
        assert split_ratio(ledger, protocol) == sum(curves.test_graphs) / sum(curves.train_graphs)
    with pytest.raises(ArgumentError, match="hold records of the protocol held-out"):
        split_ratio(Ledger((record(0, "paper"),)))


def test_of_ten_folds_both_ratios_are_equal() -> None:
    planted = planted_parts(num_graphs=60)
    majority = RunConfig(model="majority")
    ledger = cross_validate(planted, majority, protocol="both")
    for protocol in ("held-out", "paper"):
        assert split_ratio(ledger, protocol) == pytest.approx(fold_ratio(ledger.num_folds, protocol))


def test_holm_by_hand() -> None:
    """0.01·4, then 0.02·3, 0.03·2 and 0.5·1, never falling."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


def test_holm_is_at_least_p_and_at_most_one() -> None:
    values = [0.9, 0.6, 0.001]
    adjusted = holm(values)
    assert all(one >= other for one, other in zip(adjusted, values, strict=True))
    assert max(adjusted) <= 1
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    with pytest.raises(GraphcapsError):
        holm([1.5])


# ---------------------------------------------------------------------- several data sets
def test_ranks_of_a_worked_example() -> None:
    scores = np.array([[0.9, 0.8, 0.8], [0.5, 0.7, 0.6], [0.3, 0.2, 0.1]])
    np.testing.assert_allclose(average_ranks(scores), [(1 + 3 + 1) / 3, (2.5 + 1 + 2) / 3, (2.5 + 2 + 3) / 3])


def test_friedman_equals_scipy_without_ties() -> None:
    scores = np.random.default_rng(0).uniform(size=(8, 5))
    assert friedman_p(scores) == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)


@pytest.mark.parametrize(("models", "q"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_critical_differences_are_those_of_the_published_table(models: int, q: float) -> None:
    """Values of q from Demšar (JMLR 7, 2006), table 5(a)."""
    expected = q * np.sqrt(models * (models + 1) / (6 * 14))
    assert nemenyi_critical_difference(models, 14) == pytest.approx(expected, abs=1e-3)


def test_ranks_need_two_models_and_finite_scores() -> None:
    with pytest.raises(ArgumentError, match="'models' must be at least 2"):
        nemenyi_critical_difference(1, 5)
    with pytest.raises(ShapeError, match="all finite"):
        average_ranks(np.array([[0.1, np.nan]]))
