"""Significance tests for cross-validation, where folds share training graphs and several data sets are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from graphcaps.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from graphcaps.evaluation.ledger import Ledger
    from graphcaps.evaluation.record import Protocol

__all__ = [
    "PairedTest",
    "average_ranks",
    "corrected_standard_error",
    "corrected_t_test",
    "fold_ratio",
    "friedman_p",
    "holm",
    "nemenyi_critical_difference",
    "split_ratio",
]


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


def fold_ratio(folds: int, protocol: Protocol = "held-out") -> float:
    """Test graphs divided by training graphs of one fold, by which tests over folds are corrected.

    With the protocol held-out, one fold tests, one selects the epoch and k − 2 train: 1/8 for ten folds. With that of
    the paper k − 1 train: 1/9.

    Args:
        folds (int): Number of folds k.
        protocol (str): ``"held-out"`` or ``"paper"``. (default: ``"held-out"``)
    """
    if protocol not in ("held-out", "paper"):
        raise ArgumentError("fold_ratio", "protocol", "be 'held-out' or 'paper'", repr(protocol))
    others = 2 if protocol == "held-out" else 1
    if folds <= others:
        raise ArgumentError("fold_ratio", "folds", f"be more than {others}", folds)
    return 1 / (folds - others)


def split_ratio(ledger: Ledger, protocol: Protocol = "held-out") -> float:
    """The same from the numbers of graphs of a ledger, for folds and for splits of any other size.

    Args:
        ledger (Ledger): Holds records of the protocol.
        protocol (str): Whose trainings are compared. (default: ``"held-out"``)
    """
    records = ledger.of(protocol)
    if not records:
        raise ArgumentError("split_ratio", "ledger", f"hold records of the protocol {protocol}", "none")
    curves = records[0].curves
    return float(curves.test_graphs.sum() / curves.train_graphs.sum())


def corrected_standard_error(values: np.ndarray, test_ratio: float) -> float:
    r"""Standard error of a mean over folds that share training graphs, :math:`\sqrt{(1/n + \rho)\, s^2}`.

    Args:
        values (ndarray): One value per fold, ``[F]``, such as an accuracy or a difference of two.
        test_ratio (float): Test graphs divided by training graphs, from :func:`fold_ratio` or :func:`split_ratio`.
    """
    _check_ratio("corrected_standard_error", test_ratio)
    return math.sqrt((1 / len(values) + test_ratio) * float(np.var(values, ddof=1)))


def _check_ratio(owner: str, test_ratio: float) -> None:
    if not (test_ratio > 0 and math.isfinite(test_ratio)):
        raise ArgumentError(owner, "test_ratio", "be a finite number above 0", test_ratio)


def corrected_t_test(first: np.ndarray, second: np.ndarray, test_ratio: float) -> PairedTest:
    r"""The corrected resampled t-test of Nadeau and Bengio (Machine Learning 52, 2003), paired over folds.

    .. math::
        t = \frac{\bar\delta}{\sqrt{\left(\frac1n + \rho\right) s^2_\delta}}, \qquad
        n - 1 \text{ degrees of freedom}

    with :math:`\delta` the difference of accuracies on each fold (of several seeds, the mean over seeds: seeds
    of one fold share their test graphs and are no further evidence), :math:`s^2_\delta` its variance (n − 1)
    and :math:`\rho` the number of test graphs divided by that of training graphs. A plain t-test treats the folds as
    independent and rejects too often.

    Args:
        first, second (ndarray): Accuracies from 0 to 1, ``[F]``, or ``[S, F]`` for S seeds.
        test_ratio (float): Test graphs divided by training graphs of the trainings that are compared: 1/8 for ten folds
            of the protocol held-out, 1/9 for those of the paper's; from :func:`fold_ratio` or :func:`split_ratio`.
    """
    _check_ratio("corrected_t_test", test_ratio)
    one, two = (np.atleast_2d(np.asarray(values, dtype=np.float64)) for values in (first, second))
    if one.shape[1] != two.shape[1] or one.shape[1] < 2:
        raise ShapeError(
            "corrected_t_test", "first, second", "have the same folds, two or more", [*one.shape, *two.shape]
        )
    delta = np.round(100 * (one.mean(0) - two.mean(0)), 9)  # equal differences may differ by rounding
    n, mean, error = len(delta), float(delta.mean()), corrected_standard_error(delta, test_ratio)
    if np.ptp(delta) == 0:
        mean = float(delta[0])
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


def average_ranks(scores: np.ndarray) -> np.ndarray:
    """Mean rank of each model over data sets, ``[k]``; rank 1 is the highest score, and equal scores share a rank.

    Args:
        scores (ndarray): Accuracy of each model on each data set, ``[N, k]``.
    """
    table = _scores("average_ranks", scores)
    mean: np.ndarray = np.mean([stats.rankdata(-row.round(9)) for row in table], axis=0)
    return mean


def friedman_p(scores: np.ndarray) -> float:
    r"""p-value of Friedman's test that all models have the same mean rank (J. Am. Stat. Assoc. 32, 1937).

    .. math::
        \chi^2_F = \frac{12 N}{k (k + 1)} \sum_j \Big(R_j - \frac{k + 1}{2}\Big)^2, \qquad
        k - 1 \text{ degrees of freedom}

    with mean ranks :math:`R_j` of k models on N data sets.

    Args:
        scores (ndarray): Accuracy of each model on each data set, ``[N, k]``.
    """
    table = _scores("friedman_p", scores)
    N, k = table.shape
    statistic = 12 * N / (k * (k + 1)) * float(((average_ranks(table) - (k + 1) / 2) ** 2).sum())
    return float(stats.chi2.sf(statistic, k - 1))


def nemenyi_critical_difference(models: int, datasets: int, alpha: float = 0.05) -> float:
    r"""Difference of mean ranks from which two of k models differ, by Nemenyi's test (Demšar, JMLR 7, 2006).

    .. math:: \mathrm{CD} = \frac{q_{\alpha, k, \infty}}{\sqrt 2} \sqrt{\frac{k (k + 1)}{6 N}}

    with :math:`q` the quantile of the studentized range. The test bounds the family-wise error rate of all pairs.

    Args:
        models (int): Number of models k, at least 2.
        datasets (int): Number of data sets N, at least 2.
        alpha (float): Family-wise error rate. (default: 0.05)
    """
    for name, value in (("models", models), ("datasets", datasets)):
        if value < 2:
            raise ArgumentError("nemenyi_critical_difference", name, "be at least 2", value)
    q = float(stats.studentized_range.ppf(1 - alpha, models, np.inf)) / math.sqrt(2)
    return q * math.sqrt(models * (models + 1) / (6 * datasets))


def _scores(owner: str, scores: np.ndarray) -> np.ndarray:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 1 or not np.isfinite(table).all():
        expected = "have a row per data set and a column per model, all finite"
        raise ShapeError(owner, "scores", expected, list(table.shape))
    return table
