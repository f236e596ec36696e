"""Metrics of the test graphs of each fold at the held-out epoch, beside accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcaps.errors import DataError
from graphcaps.evaluation.graph_predictions import PARTS, GraphPredictions
from graphcaps.metrics import class_metrics, metric_caution

__all__ = ["FOLD_METRICS", "FoldMetrics", "cautions"]

FOLD_METRICS = {
    "roc_auc": "ROC-AUC",
    "pr_auc": "PR-AUC",
    "balanced_accuracy": "balanced accuracy",
    "mcc": "MCC",
}
"""Metrics that records hold, as :func:`graphcaps.metrics.class_metrics` names them, with their names in reports."""


@dataclass(frozen=True)
class FoldMetrics:
    """Metrics of F test sets.

    Args:
        class_names (tuple): Name of each class.
        class_counts (tuple): Number of test graphs of each class, a tuple per fold.
        values (dict): For each of :data:`FOLD_METRICS` a value per fold; ``None`` where it is not defined.
        twin_free (tuple, optional): For each fold the number of correctly predicted test graphs without a twin
            (:mod:`graphcaps.data.quality.twins`), and the number of all such graphs. ``None`` in records of earlier
            versions.
    """

    class_names: tuple[str, ...]
    class_counts: tuple[tuple[int, ...], ...]
    values: dict[str, tuple[float | None, ...]]
    twin_free: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def from_predictions(
        cls,
        predictions: GraphPredictions,
        class_names: Sequence[str],
        twins: Mapping[int, np.ndarray] | None = None,
    ) -> FoldMetrics:
        """The metrics of the test rows of each fold, in the order of the folds.

        Args:
            predictions (GraphPredictions): Predictions of all folds.
            class_names (sequence): Name of each class.
            twins (mapping, optional): For each fold the indices of its test graphs that have a twin.
        """
        is_test = predictions.part == PARTS.index("test")
        numbers = np.unique(predictions.fold).tolist()
        folds = [is_test & (predictions.fold == fold) for fold in numbers]
        metrics = [class_metrics(predictions.y[rows], predictions.probabilities[rows]) for rows in folds]
        counts = [np.bincount(predictions.y[rows], minlength=len(class_names)) for rows in folds]
        return cls(
            tuple(class_names),
            tuple(tuple(count.tolist()) for count in counts),
            {name: tuple(each[name] for each in metrics) for name in FOLD_METRICS},
            None
            if twins is None
            else tuple(
                _count_right(predictions, rows & ~np.isin(predictions.graph, twins[fold]))
                for fold, rows in zip(numbers, folds, strict=True)
            ),
        )

    @property
    def num_folds(self) -> int:
        return len(self.class_counts)

    def fold_values(self, name: str) -> np.ndarray | None:
        """A metric of each fold, ``[F]``; ``None`` if it is not defined in one of them."""
        values = self.values[name]
        return None if any(value is None for value in values) else np.array(values, dtype=np.float64)

    @property
    def twin_free_accuracy(self) -> np.ndarray | None:
        """Accuracy on test graphs without a twin, from 0 to 1, ``[F]``; NaN for a fold whose graphs all have one."""
        if self.twin_free is None:
            return None
        right, graphs = np.array(self.twin_free, dtype=np.float64).T
        return np.divide(right, graphs, out=np.full(len(right), np.nan), where=graphs > 0)

    # ------------------------------------------------------------------ saving
    def as_dict(self) -> dict[str, Any]:
        """JSON-safe; :meth:`from_dict` reads it back."""
        counts = [list(each) for each in self.class_counts]
        values = {name: list(each) for name, each in self.values.items()}
        names = {"class_names": list(self.class_names), "test_class_counts": counts}
        twin_free = {} if self.twin_free is None else {"twin_free": [list(each) for each in self.twin_free]}
        return names | values | twin_free

    @classmethod
    def from_dict(cls, values: Any, folds: int, where: str) -> FoldMetrics:
        """Reads what :meth:`as_dict` wrote.

        Raises:
            DataError: If an entry is missing or of the wrong type.
        """
        entries: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        names, counts = entries.get("class_names"), entries.get("test_class_counts")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(where, "a list of names under 'class_names' of 'metrics'", repr(names)[:60])
        listed = counts if isinstance(counts, list) and len(counts) == folds else []
        if not listed or not all(
            isinstance(each, list)
            and len(each) == len(names)
            and all(type(n) is int and n >= 0 for n in each)
            for each in listed
        ):
            raise DataError(where, f"{folds} lists of counts under 'test_class_counts'", repr(counts)[:60])
        metrics = {}
        for name in FOLD_METRICS:
            entry = entries.get(name)
            numbers = entry if isinstance(entry, list) and len(entry) == folds else []
            if not numbers or not all(
                n is None or (type(n) in (int, float) and -1 <= n <= 1) for n in numbers
            ):
                raise DataError(where, f"{folds} numbers from -1 to 1 under '{name}'", repr(entry)[:60])
            metrics[name] = tuple(None if number is None else float(number) for number in numbers)
        twin_free = _twin_free(entries["twin_free"], folds, where) if "twin_free" in entries else None
        return cls(tuple(names), tuple(tuple(each) for each in listed), metrics, twin_free)


def _count_right(predictions: GraphPredictions, rows: np.ndarray) -> tuple[int, int]:
    """Number of correctly predicted rows, and number of rows."""
    right = predictions.probabilities[rows].argmax(1) == predictions.y[rows]
    return int(right.sum()), int(rows.sum())


def _twin_free(value: Any, folds: int, where: str) -> tuple[tuple[int, int], ...]:
    counts = []
    for pair in value if isinstance(value, list) and len(value) == folds else ():
        if isinstance(pair, list) and len(pair) == 2 and all(type(count) is int for count in pair):
            right, graphs = pair
            if 0 <= right <= graphs:
                counts.append((right, graphs))
    if len(counts) != folds:
        raise DataError(where, f"{folds} pairs of counts under 'twin_free'", repr(value)[:60])
    return tuple(counts)


def cautions(metrics: Sequence[FoldMetrics], unit: str = "fold") -> list[str]:
    """Sentences on metrics that are not defined or rest on few graphs.

    Args:
        metrics (sequence): Metrics of each seed; all seeds have the same folds.
        unit (str): ``"fold"``, or ``"split"`` of repeated splits. (default: "fold")
    """
    first = metrics[0]
    one_class = [fold for fold, counts in enumerate(first.class_counts) if sum(map(bool, counts)) < 2]
    fewest = min(range(first.num_folds), key=lambda fold: min(first.class_counts[fold]))
    fold = one_class[0] if one_class else fewest
    part = "the test set" if first.num_folds == 1 else f"test {unit} {fold + 1}"
    if len(one_class) > 1:
        part += f" (and {len(one_class) - 1} more)"
    caution = metric_caution(part, dict(zip(first.class_names, first.class_counts[fold], strict=True)))
    return [caution] if caution else []
