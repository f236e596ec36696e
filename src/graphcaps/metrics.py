"""How good predictions are, in the figures that people ask for."""

from __future__ import annotations

import warnings

import numpy as np

from graphcaps.errors import ArgumentError, ShapeError

__all__ = ["NUM_BINS", "class_metrics", "expected_calibration_error"]

NUM_BINS = 15
_SMALLEST = 1e-12


def class_metrics(y: np.ndarray, shares: np.ndarray) -> dict[str, float | None]:
    r"""Figures of predicted probabilities against true classes; ``None`` where one is not defined.

    * ``accuracy``: share of graphs whose most probable class is their own;
    * ``balanced_accuracy``: mean over the classes that occur of the share found;
    * ``roc_auc``: area under the ROC curve; with more than two classes the mean over the classes that occur,
      each against the rest;
    * ``pr_auc``: average precision, of the second class of two (the last one in the order of class names), and
      else the mean over the classes that occur;
    * ``mcc``: Matthews' correlation;
    * ``brier``: mean of :math:`\sum_o (p_o - [y = o])^2`, halved for two classes, where it then is the usual
      one of the second class;
    * ``log_loss``: mean of :math:`-\log p_y`;
    * ``ece``: see :func:`expected_calibration_error`.

    Args:
        y (ndarray): Index of each graph's class, ``[G]``.
        shares (ndarray): Probabilities, ``[G, O]``.

    Raises:
        ShapeError: If the two do not fit.
    """
    y, shares = _checked("class_metrics", y, shares)
    if not len(y):
        names = ("accuracy", "balanced_accuracy", "roc_auc", "pr_auc", "mcc", "brier", "log_loss", "ece")
        return dict.fromkeys(names)
    from sklearn import metrics

    num_classes = shares.shape[1]
    found, onehot = shares.argmax(-1), np.eye(num_classes)[y]
    present = [c for c in range(num_classes) if 0 < onehot[:, c].sum() < len(y)]
    ranked = [1] if num_classes == 2 and present else present
    own = shares[np.arange(len(y)), y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sklearn warns of classes that were never predicted
        return {
            "accuracy": float((found == y).mean()),
            "balanced_accuracy": float(np.mean([(found[y == c] == c).mean() for c in np.unique(y)])),
            "roc_auc": _mean([metrics.roc_auc_score(onehot[:, c], shares[:, c]) for c in ranked]),
            "pr_auc": _mean([metrics.average_precision_score(onehot[:, c], shares[:, c]) for c in ranked]),
            "mcc": float(metrics.matthews_corrcoef(y, found)) if present else None,
            "brier": float(((shares - onehot) ** 2).sum(-1).mean() / (2 if num_classes == 2 else 1)),
            "log_loss": float(-np.log(np.clip(own, _SMALLEST, 1)).mean()),
            "ece": expected_calibration_error(y, shares),
        }


def expected_calibration_error(y: np.ndarray, shares: np.ndarray, bins: int = NUM_BINS) -> float:
    r"""How far the probability of the predicted class is from how often it is right.

    .. math:: \mathrm{ECE} = \sum_b \frac{|b|}{G} \, \big| \mathrm{right}(b) - \mathrm{sure}(b) \big|

    over bins of equal mass: graphs in the order of their highest probability, cut into ``bins`` parts whose
    sizes differ by at most one (fewer where there are fewer graphs). Even perfect probabilities do not give
    0: with n graphs a bin, each has an error of the order of :math:`\sqrt{p (1 - p) / n}` by chance.

    Args:
        y (ndarray): Index of each graph's class, ``[G]``.
        shares (ndarray): Probabilities, ``[G, O]``.
        bins (int): Number of bins. (default: 15)
    """
    y, shares = _checked("expected_calibration_error", y, shares)
    if bins < 1:
        raise ArgumentError("expected_calibration_error", "bins", "be at least 1", bins)
    if not len(y):
        raise ArgumentError("expected_calibration_error", "y", "hold at least one graph", "none")
    sure, right = shares.max(-1), shares.argmax(-1) == y
    order = sure.argsort(kind="stable")
    parts = np.array_split(order, min(bins, len(y)))
    return float(sum(abs(right[part].sum() - sure[part].sum()) for part in parts) / len(y))


def _checked(owner: str, y: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y, shares = np.asarray(y), np.asarray(shares, dtype=np.float64)
    if shares.ndim != 2 or y.shape != shares.shape[:1]:
        raise ShapeError(owner, "y", f"have one class per row of {list(shares.shape)}", list(y.shape))
    if not np.isfinite(shares).all():
        raise ArgumentError(owner, "shares", "be numbers", "NaN or infinity")
    if len(y) and not 0 <= y.min() <= y.max() < shares.shape[1]:
        known = f"hold classes from 0 to {shares.shape[1] - 1}"
        raise ArgumentError(owner, "y", known, f"{y.min()} to {y.max()}")
    return y.astype(np.int64), shares


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None
