"""Significance tests for cross-validation, where folds share training graphs and several data sets are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from graphcaps.errors import ArgumentError, ShapeError

__all__ = ["PairedTest", "corrected_t_test", "holm"]


@dataclass(frozen=True)
class PairedTest:
    """Result of a paired test of two models on the same folds.

    Args:
        difference (float): Mean accuracy of the first minus the second, in percentage points.
        standard_error (float): Corrected standard error, in percentage points.
        statistic (float): Difference divided by its standard error; 0 where both are 0.
        p (float): Two-sided p-value of Student's distribution.
        pairs (int): Number of differences n.
        interval (tuple): 95 % confidence interval of the difference, in percentage points.
    """

    difference: float
    standard_error: float
    statistic: float
    p: float
    pairs: int
    interval: tuple[float, float]


def corrected_t_test(first: np.ndarray, second: np.ndarray, test_share: float) -> PairedTest:
    r"""The corrected resampled t-test of Nadeau and Bengio (Machine Learning 52, 2003), paired over folds.

    .. math::
        t = \frac{\bar\delta}{\sqrt{\left(\frac1n + \frac{\rho}{1 - \rho}\right) s^2_\delta}}, \qquad
        n - 1 \text{ degrees of freedom}

    with :math:`\delta` the difference of accuracies on each fold (of several seeds, the mean over seeds: seeds
    of one fold share their test graphs and are no further evidence), :math:`s^2_\delta` its variance (n − 1)
    and :math:`\rho` the share of test graphs. A plain t-test treats the folds as independent and rejects too often.

    Args:
        first, second (ndarray): Accuracies from 0 to 1, ``[F]``, or ``[S, F]`` for S seeds.
        test_share (float): Test graphs divided by test and training graphs; 0.1 for ten folds.
    """
    one, two = (np.atleast_2d(np.asarray(values, dtype=np.float64)) for values in (first, second))
    if one.shape[1] != two.shape[1] or one.shape[1] < 2:
        raise ShapeError(
            "corrected_t_test", "first, second", "have the same folds, two or more", [*one.shape, *two.shape]
        )
    if not 0 < test_share < 1:
        raise ArgumentError("corrected_t_test", "test_share", "be between 0 and 1", test_share)
    delta = 100 * (one.mean(0) - two.mean(0))
    n, mean = len(delta), float(delta.mean())
    error = math.sqrt((1 / n + test_share / (1 - test_share)) * float(delta.var(ddof=1)))
    if error == 0:  # all differences are equal
        p = 1.0 if mean == 0 else 0.0
        return PairedTest(mean, 0.0, 0.0 if mean == 0 else math.copysign(math.inf, mean), p, n, (mean, mean))
    t = mean / error
    half = float(stats.t.ppf(0.975, n - 1)) * error
    return PairedTest(mean, error, t, float(2 * stats.t.sf(abs(t), n - 1)), n, (mean - half, mean + half))


def holm(p_values: Sequence[float]) -> list[float]:
    r"""Holm's adjusted p-values (Scandinavian Journal of Statistics 6, 1979), in the order of the input.

    .. math:: \tilde p_{(i)} = \max_{k \le i} \min\big(1, (m - k + 1)\, p_{(k)}\big)

    Rejecting where the adjusted value is at most α bounds the family-wise error rate of all m tests by α, also for
    dependent tests.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ArgumentError("holm", "p_values", "be from 0 to 1", list(p_values))
    m, order = len(p_values), np.argsort(p_values, kind="stable")
    adjusted, largest = [0.0] * m, 0.0
    for rank, index in enumerate(order.tolist()):
        largest = max(largest, min(1.0, (m - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
