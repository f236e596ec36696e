"""Held-out results of committees, from the predictions of their members in the records of single seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.evaluation.epoch_selection import MetricEstimate, average_metric
from graphcaps.evaluation.fold_metrics import FOLD_METRICS
from graphcaps.evaluation.graph_predictions import PARTS, GraphPredictions
from graphcaps.evaluation.record import SeedRecord
from graphcaps.metrics import class_metrics
from graphcaps.training.calibration import calibrate_probabilities

__all__ = [
    "POOLED_METRICS",
    "CommitteeResults",
    "committee_predictions",
    "committee_results",
    "sort_rows",
]

POOLED_METRICS = {"log_loss": "log loss", "ece": "ECE"}
"""Metrics over the test graphs of all folds together, with their names in reports."""


@dataclass(frozen=True)
class CommitteeResults:
    """Held-out metrics of committees beside those of their members.

    Committee c of fold f averages the predictions of M seeds for the test graphs of the fold, each at the epoch that
    its own validation loss selects. One temperature for its members is fitted to the committee's log loss on the
    validation graphs of the fold (docs/committees.md). A member alone has a temperature of its own.

    Args:
        members (int): Number of members M.
        seeds (tuple): Seeds of the members of each committee, one division after another.
        accuracy, member_accuracy (MetricEstimate): Test accuracy of each committee and fold, from 0 to 1, and the mean
            of its members. Seeds of the estimates are the first of each committee.
        metrics (dict): Further metrics of the committees, by the names of
            :data:`~graphcaps.evaluation.fold_metrics.FOLD_METRICS`; ``None`` if one is not defined in every fold.
        pooled, member_pooled (dict): :data:`POOLED_METRICS` over the test graphs of all folds, mean over committees,
            and mean over their members; ``None`` where one is not defined.
    """

    members: int
    seeds: tuple[tuple[int, ...], ...]
    accuracy: MetricEstimate
    member_accuracy: MetricEstimate
    metrics: dict[str, MetricEstimate | None]
    pooled: dict[str, float | None]
    member_pooled: dict[str, float | None]

    @property
    def rule(self) -> str:
        """One line on how the results were computed."""
        return (
            f"mean of the probabilities of {self.members} seeds, each at its own held-out epoch, with one temperature "
            "that is fitted to the validation graphs of the fold"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-safe."""
        return {
            "members": self.members,
            "seeds": [list(seeds) for seeds in self.seeds],
            "accuracy": self.accuracy.as_dict(),
            "member_accuracy": self.member_accuracy.as_dict(),
            **{name: None if each is None else each.as_dict() for name, each in self.metrics.items()},
            **{name: {"mean": _rounded(value)} for name, value in self.pooled.items()},
            **{f"member_{name}": {"mean": _rounded(value)} for name, value in self.member_pooled.items()},
            "rule": self.rule,
        }


def committee_results(records: Sequence[SeedRecord], members: int) -> CommitteeResults:
    """The results of committees of consecutive seeds: the first ``members`` records of a division, the next, and so on.

    Args:
        records (sequence): Held-out records with predictions, sorted by division and seed.
        members (int): Number of members of a committee.

    Raises:
        ArgumentError: If the records cannot be divided into committees, or one has no predictions.
    """
    owner = "committee_results"
    if type(members) is not int or members < 1:
        raise ArgumentError(owner, "members", "be a whole number from 1 on", members)
    counts = Counter(record.key.division for record in records)
    if not records or any(count % members for count in counts.values()):
        expected = f"be a multiple of {members} held-out records, one per seed"
        got = ", ".join(f"{count} in division {number}" for number, count in counts.items())
        raise ArgumentError(owner, "records", expected, got if len(counts) > 1 else len(records))
    found = [record.predictions for record in records if record.predictions is not None]
    if len(found) < len(records):
        fix = "Evaluate with members=…, or with predictions=True."
        got = f"{len(records) - len(found)} of {len(records)} without"
        raise ArgumentError(owner, "records", "hold predictions", got, fix)
    seeds = [record.key.seed for record in records]
    starts = range(0, len(records), members)
    groups = [found[start : start + members] for start in starts]
    firsts = [seeds[start] for start in starts]
    divisions = [records[start].key.division for start in starts]
    each = [_Committee(group) for group in groups]
    alone = [[_Committee([member]) for member in group] for group in groups]
    return CommitteeResults(
        members=members,
        seeds=tuple(tuple(seeds[start : start + members]) for start in starts),
        accuracy=average_metric([committee.values("accuracy") for committee in each], firsts, divisions),
        member_accuracy=average_metric(
            [np.mean([member.values("accuracy") for member in group], axis=0) for group in alone],
            firsts,
            divisions,
        ),
        metrics={name: _estimate(name, each, firsts, divisions) for name in FOLD_METRICS},
        pooled={name: _mean([committee.pooled[name] for committee in each]) for name in POOLED_METRICS},
        member_pooled={
            name: _mean([member.pooled[name] for group in alone for member in group])
            for name in POOLED_METRICS
        },
    )


def committee_predictions(members: Sequence[GraphPredictions]) -> GraphPredictions:
    """The predictions of a committee: the mean of its members' probabilities, with one temperature for each fold.

    The temperature is fitted to the committee's log loss on the validation graphs of the fold; a fold without
    validation graphs has none.

    Args:
        members (sequence): Predictions of the members for the same graphs of the same folds.

    Returns:
        GraphPredictions: Calibrated probabilities, in the order of folds, validation before test graphs, then of
        graphs.
    """
    ordered = [sort_rows(member) for member in members]
    first = ordered[0]
    p = np.stack([member.probabilities for member in ordered])  # [M, rows, O]
    is_test = first.part == PARTS.index("test")
    q = np.empty_like(first.probabilities)
    for fold in np.unique(first.fold).tolist():
        rows = first.fold == fold
        judge = rows & ~is_test
        members_p = p[:, rows]
        if judge.any():
            calibration = calibrate_probabilities(p[:, judge], first.y[judge], "temperature")
            members_p = calibration.apply(members_p)
        q[rows] = members_p.mean(0)
    return replace(first, probabilities=q)


class _Committee:
    """The metrics of one committee, over the test graphs of each fold and of all folds.

    Args:
        members (list): Predictions of the members, with the same rows.
    """

    def __init__(self, members: Sequence[GraphPredictions]) -> None:
        predictions = committee_predictions(members)
        is_test = predictions.part == PARTS.index("test")
        y, q, fold = predictions.y[is_test], predictions.probabilities[is_test], predictions.fold[is_test]
        self.folds = [class_metrics(y[fold == each], q[fold == each]) for each in np.unique(fold).tolist()]
        self.pooled = class_metrics(y, q)

    def values(self, name: str) -> np.ndarray:
        """A metric of each fold, ``[F]``; NaN where it is not defined."""
        return np.array([fold[name] for fold in self.folds], dtype=np.float64)


def sort_rows(predictions: GraphPredictions) -> GraphPredictions:
    """The rows in the order of folds, parts and graphs, which is the same for all seeds."""
    order = np.lexsort((predictions.graph, predictions.part, predictions.fold))
    return GraphPredictions(
        predictions.graph[order],
        predictions.fold[order],
        predictions.part[order],
        predictions.y[order],
        predictions.probabilities[order],
    )


def _estimate(
    name: str, committees: Sequence[_Committee], seeds: Sequence[int], divisions: Sequence[int]
) -> MetricEstimate | None:
    values = [committee.values(name) for committee in committees]
    is_defined = all(np.isfinite(each).all() for each in values)
    return average_metric(values, seeds, divisions) if is_defined else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
