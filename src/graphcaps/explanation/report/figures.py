"""How well a model classifies graphs whose classes are known: confusion, and whether confidence tells the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Reliability", "confusion_matrix", "reliability"]


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence against the share of right answers, in B groups of about equal size.

    Args:
        confidence, accuracy (ndarray): Means inside each group, ``[B]``.
        count (ndarray): Graphs of each group, ``[B]``.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean distance of the two, each group weighed by its graphs."""
        if not self.count.sum():
            return 0.0
        return float(np.abs(self.confidence - self.accuracy) @ self.count / self.count.sum())


def confusion_matrix(known: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Graphs of each class (rows) that were taken for each class (columns), ``[O, O]``."""
    cells = np.bincount(known * num_classes + predicted, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes)


def reliability(confidence: np.ndarray, right: np.ndarray, bins: int | None = None) -> Reliability:
    """Groups graphs by confidence, about as many in each.

    Args:
        confidence (ndarray): Probability of the predicted class, ``[G]``.
        right (ndarray): Whether the prediction was right, ``[G]``.
        bins (int, optional): Groups, at most one per graph. (default: 10, or 15 from 1,500 graphs on)
    """
    wanted = bins or (15 if len(confidence) >= 1500 else 10)
    order = np.argsort(confidence, kind="stable")
    groups = [group for group in np.array_split(order, wanted) if len(group)]
    return Reliability(
        np.array([confidence[group].mean() for group in groups]),
        np.array([right[group].mean() for group in groups]),
        np.array([len(group) for group in groups]),
    )
