"""Metrics of probabilistic classification."""

from __future__ import annotations

import warnings

import numpy as np

from graphcaps.errors import ArgumentError, ShapeError

__all__ = ["NUM_BINS", "class_metrics", "expected_calibration_error"]

NUM_BINS = 15
_MIN_PROBABILITY = 1e-12


def class_metrics(y: np.ndarray, probabilities: np.ndarray) -> dict[str, float | None]:
    r"""Metrics of predicted probabilities; ``None`` for a metric that is not defined on the data.

    * ``accuracy``: fraction of graphs whose most probable class is the true one;
    * ``balanced_accuracy``: mean recall over the classes that occur;
    * ``roc_auc``: area under the ROC curve; with more than two classes the mean over the classes that occur, one
      versus rest;
    * ``pr_auc``: average precision, with two classes that of the second (in the order of class names), otherwise the
      mean over the classes that occur;
    * ``mcc``: Matthews correlation coefficient;
    * ``brier``: mean of :math:`\sum_o (p_o - [y = o])^2`; with two classes half of it, which is the usual Brier score
      of the second class;
    * ``log_loss``: mean of :math:`-\log p_y`;
    * ``ece``: see :func:`expected_calibration_error`.

    Args:
        y (ndarray): Class of each graph, ``[G]``.
        probabilities (ndarray): Predicted probabilities, ``[G, O]``.

    Raises:
        ShapeError: If the shapes disagree.
        ArgumentError: If a probability is not finite, or a class is out of range.
    """
    y, probabilities = _check("class_metrics", y, probabilities)
    if not len(y):
        names = ("accuracy", "balanced_accuracy", "roc_auc", "pr_auc", "mcc", "brier", "log_loss", "ece")
        return dict.fromkeys(names)
    from sklearn import metrics

    num_classes = probabilities.shape[1]
    predicted, onehot = probabilities.argmax(-1), np.eye(num_classes)[y]
    present = [c for c in range(num_classes) if 0 < onehot[:, c].sum() < len(y)]
    ranked = [1] if num_classes == 2 and present else present
    true_class = probabilities[np.arange(len(y)), y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of classes that are never predicted
        return {
            "accuracy": float((predicted == y).mean()),
            "balanced_accuracy": float(np.mean([(predicted[y == c] == c).mean() for c in np.unique(y)])),
            "roc_auc": _mean([metrics.roc_auc_score(onehot[:, c], probabilities[:, c]) for c in ranked]),
            "pr_auc": _mean(
                [metrics.average_precision_score(onehot[:, c], probabilities[:, c]) for c in ranked]
            ),
            "mcc": float(metrics.matthews_corrcoef(y, predicted)) if present else None,
            "brier": float(((probabilities - onehot) ** 2).sum(-1).mean() / (2 if num_classes == 2 else 1)),
            "log_loss": float(-np.log(np.clip(true_class, _MIN_PROBABILITY, 1)).mean()),
            "ece": expected_calibration_error(y, probabilities),
        }


def expected_calibration_error(y: np.ndarray, probabilities: np.ndarray, bins: int = NUM_BINS) -> float:
    r"""Expected calibration error: the mean gap between confidence and accuracy.

    .. math:: \mathrm{ECE} = \sum_b \frac{|b|}{G} \, \big| \mathrm{accuracy}(b) - \mathrm{confidence}(b) \big|

    over bins of equal mass: graphs sorted by their highest probability and divided into ``bins`` bins whose sizes
    differ by at most one (fewer bins, if there are fewer graphs). Perfect probabilities do not give 0: with n graphs
    in a bin, its gap is of the order of :math:`\sqrt{p (1 - p) / n}` by chance.

    Args:
        y (ndarray): Class of each graph, ``[G]``.
        probabilities (ndarray): Predicted probabilities, ``[G, O]``.
        bins (int): Number of bins. (default: 15)
    """
    y, probabilities = _check("expected_calibration_error", y, probabilities)
    if bins < 1:
        raise ArgumentError("expected_calibration_error", "bins", "be at least 1", bins)
    if not len(y):
        raise ArgumentError("expected_calibration_error", "y", "hold at least one graph", "none")
    confidence, correct = probabilities.max(-1), probabilities.argmax(-1) == y
    order = confidence.argsort(kind="stable")
    parts = np.array_split(order, min(bins, len(y)))
    return float(sum(abs(correct[b].sum() - confidence[b].sum()) for b in parts) / len(y))


def _check(owner: str, y: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y, probabilities = np.asarray(y), np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 2 or y.shape != probabilities.shape[:1]:
        raise ShapeError(owner, "y", f"have one class per row of {list(probabilities.shape)}", list(y.shape))
    if not np.isfinite(probabilities).all():
        raise ArgumentError(owner, "probabilities", "be finite", "NaN or infinity")
    if len(y) and not 0 <= y.min() <= y.max() < probabilities.shape[1]:
        expected = f"hold classes from 0 to {probabilities.shape[1] - 1}"
        raise ArgumentError(owner, "y", expected, f"{y.min()} to {y.max()}")
    return y.astype(np.int64), probabilities


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
