"""Metrics of probabilistic classification.

The functions on tensors take any leading axes, such as one of replicas, and need no host–device synchronisation: a
training computes them every epoch. Graphs of class −1 are padding and do not count. :func:`class_metrics` gives the
same metrics of NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError, check_at_least

__all__ = [
    "METRIC_TITLES",
    "MIN_ACCURACY_GRAPHS",
    "MIN_CALIBRATION_GRAPHS",
    "MIN_CLASS_GRAPHS",
    "NUM_BINS",
    "Reliability",
    "SelectionMetric",
    "accuracy_caution",
    "balanced_accuracy",
    "check_selection_metric",
    "class_counts",
    "class_metrics",
    "expected_calibration_error",
    "matthews_correlation",
    "metric_caution",
    "metric_of",
    "pr_auc",
    "reliability",
    "roc_auc",
    "wilson_interval",
]

SelectionMetric = Literal["loss", "accuracy", "balanced-accuracy", "roc-auc", "pr-auc", "mcc"]
"""Metrics of the validation set by which an epoch can be selected."""

METRIC_TITLES: dict[SelectionMetric, str] = {
    "loss": "loss",
    "accuracy": "accuracy",
    "balanced-accuracy": "balanced accuracy",
    "roc-auc": "ROC-AUC",
    "pr-auc": "PR-AUC",
    "mcc": "MCC",
}
"""Name of each metric in reports."""

NUM_BINS = 15
MIN_CLASS_GRAPHS = 10
"""With fewer graphs of a class, an area under a curve or a correlation is reported with a caution."""
MIN_ACCURACY_GRAPHS = 30
"""With fewer graphs, an accuracy is reported with a caution."""
MIN_CALIBRATION_GRAPHS = 10 * NUM_BINS
"""With fewer graphs, less than ten per bin, no calibration error is reported: it would be mostly chance."""
_MIN_PROBABILITY = 1e-12
_TIE_STEP = 1e-5  # of log-odds; rounding of float32 scores changes them by about 1e-7
_NORMAL_95 = 1.959963984540054  # 97.5 % quantile of the standard normal distribution


def roc_auc(probabilities: Tensor, y: Tensor) -> Tensor:
    r"""Area under the ROC curve, ``[*lead]``; NaN where it is not defined.

    The probability that a graph of the class is ranked above one of another class; ties count one half (midranks).
    Probabilities whose log-odds agree to 0.00001 are ties: float32 scores of the same graph differ by less from batch
    to batch, and the area must not depend on it.

    .. math:: \mathrm{AUC} = \frac{1}{P N} \sum_{y_i = 1} \sum_{y_j = 0} \big([p_i > p_j] + \tfrac12 [p_i = p_j]\big)

    With two classes it is that of the second class; with more, the mean over the classes that occur, each against the
    rest. Cost: one sort per class.

    Args:
        probabilities (Tensor): ``[*lead, n, O]``.
        y (Tensor): Classes, −1 at padding, ``[*lead, n]``.
    """

    def area(ranked: _Ranked) -> Tensor:
        pairs = ranked.positive * (ranked.negatives(ranked.first) + ranked.negatives(ranked.end)) / 2
        return pairs.sum(-1) / (ranked.num_positive * ranked.num_negative)

    return _one_versus_rest(probabilities, y, area)


def pr_auc(probabilities: Tensor, y: Tensor) -> Tensor:
    r"""Average precision, the area under the precision-recall curve as a step function, ``[*lead]``.

    .. math:: \mathrm{AP} = \frac{1}{P} \sum_{y_i = 1} \mathrm{precision}(p_i), \qquad
        \mathrm{precision}(t) = \frac{|\{j : y_j = 1,\, p_j \ge t\}|}{|\{j : p_j \ge t\}|}

    Classes, padding and arguments as in :func:`roc_auc`. A random order gives the share of the class, not one half.
    """

    def area(ranked: _Ranked) -> Tensor:
        found = ranked.num_positive.unsqueeze(-1) - ranked.positives(ranked.first)
        listed = found + ranked.num_negative.unsqueeze(-1) - ranked.negatives(ranked.first)
        return (ranked.positive * found / listed.clamp_min(1)).sum(-1) / ranked.num_positive

    return _one_versus_rest(probabilities, y, area)


def balanced_accuracy(probabilities: Tensor, y: Tensor) -> Tensor:
    """Mean recall over the classes that occur, ``[*lead]``; NaN without graphs. Arguments as in :func:`roc_auc`."""
    confusion = _confusion(probabilities, y)
    counts = confusion.sum(-1)  # [*lead, O]
    recall = confusion.diagonal(dim1=-2, dim2=-1) / counts.clamp_min(1)
    return recall.sum(-1) / (counts > 0).sum(-1)


def matthews_correlation(probabilities: Tensor, y: Tensor) -> Tensor:
    r"""Matthews correlation coefficient (MCC) of predicted and true classes, ``[*lead]``.

    For any number of classes (Gorodkin, 2004), with n graphs, c of them classified correctly, :math:`t_k` graphs of
    class k and :math:`p_k` predictions of it:

    .. math:: \mathrm{MCC} = \frac{c\, n - \sum_k t_k p_k}{\sqrt{(n^2 - \sum_k p_k^2)(n^2 - \sum_k t_k^2)}}

    It is 0 where all predictions are of one class, and NaN where all graphs are. Arguments as in :func:`roc_auc`.
    """
    confusion = _confusion(probabilities, y)
    true, predicted = confusion.sum(-1), confusion.sum(-2)  # [*lead, O]
    n, correct = true.sum(-1), confusion.diagonal(dim1=-2, dim2=-1).sum(-1)
    spread = (n**2 - (predicted**2).sum(-1)) * (n**2 - (true**2).sum(-1))
    covariance = correct * n - (true * predicted).sum(-1)
    value = torch.where(spread > 0, covariance / spread.clamp_min(1).sqrt(), 0.0)
    return torch.where((true > 0).sum(-1) > 1, value, torch.nan)


def metric_of(name: SelectionMetric) -> Callable[[Tensor, Tensor], Tensor]:
    """The function of probabilities ``[*lead, n, O]`` and classes ``[*lead, n]`` behind a name; the loss has none."""
    return _METRIC_FUNCTIONS[name]


def check_selection_metric(owner: str, metric: str) -> SelectionMetric:
    """The name of a metric of :data:`SelectionMetric`.

    Raises:
        ArgumentError: If there is no such metric, with ``owner`` in its message.
    """
    for name in get_args(SelectionMetric):
        if metric == name:
            return name
    raise ArgumentError(owner, "metric", f"be one of {', '.join(get_args(SelectionMetric))}", repr(metric))


class _Ranked:
    """Graphs in ascending order of their score of a class.

    Args:
        score (Tensor): Score of the class; equal ones are ties, ``[*lead, n]``.
        positive (Tensor): Whether a graph is of the class, ``[*lead, n]``.
        real (Tensor): False at padding, ``[*lead, n]``.

    Attributes:
        positive (Tensor): 1 for graphs of the class, in the order, float64 ``[*lead, n]``.
        first, end (Tensor): First position of graphs of the same score and the one after the last, ``[*lead, n]``.
        num_positive, num_negative (Tensor): Number of graphs of the class and of the others, ``[*lead]``.
    """

    def __init__(self, score: Tensor, positive: Tensor, real: Tensor) -> None:
        values, order = score.masked_fill(~real, -torch.inf).sort(-1)
        self.first = torch.searchsorted(values, values)
        self.end = torch.searchsorted(values, values, right=True)
        self.positive = (positive & real).gather(-1, order).double()
        negative = (~positive & real).gather(-1, order).double()
        self.num_positive, self.num_negative = self.positive.sum(-1), negative.sum(-1)
        self._positives, self._negatives = (
            torch.nn.functional.pad(each.cumsum(-1), (1, 0)) for each in (self.positive, negative)
        )

    def positives(self, position: Tensor) -> Tensor:
        """Number of graphs of the class before each position, ``[*lead, n]``."""
        return self._positives.gather(-1, position)

    def negatives(self, position: Tensor) -> Tensor:
        """Number of graphs of other classes before each position, ``[*lead, n]``."""
        return self._negatives.gather(-1, position)


def _one_versus_rest(probabilities: Tensor, y: Tensor, area: Callable[[_Ranked], Tensor]) -> Tensor:
    """Mean of ``area`` over the classes that occur beside others; with two classes, that of the second."""
    classes = torch.arange(probabilities.size(-1), device=y.device)
    if probabilities.size(-1) == 2:
        classes = classes[1:]
    score = probabilities.double()[..., -classes.numel() :].transpose(-1, -2).contiguous()  # [*lead, C, n]
    real = (y >= 0).unsqueeze(-2).expand(score.shape)
    log_odds = (score.clamp(0, 1).logit() / _TIE_STEP).round()
    ranked = _Ranked(log_odds, y.unsqueeze(-2) == classes.unsqueeze(-1), real)
    defined = (ranked.num_positive > 0) & (ranked.num_negative > 0)  # [*lead, C]
    total = torch.where(defined, area(ranked), 0.0).sum(-1)
    finite = (score.isfinite() | ~real).all(-1).all(-1)
    # A division of zero by zero marks rows without two classes.
    return torch.where(finite, total / defined.sum(-1), torch.nan)


def _confusion(probabilities: Tensor, y: Tensor) -> Tensor:
    """Number of graphs by true (rows) and predicted class (columns), float64 ``[*lead, O, O]``."""
    classes = torch.arange(probabilities.size(-1), device=y.device)
    true = (y.unsqueeze(-1) == classes).double()  # zero at padding
    predicted = (probabilities.argmax(-1, keepdim=True) == classes).double()
    return true.transpose(-1, -2) @ predicted


def _accuracy(probabilities: Tensor, y: Tensor) -> Tensor:
    """Fraction of graphs that are classified correctly, ``[*lead]``."""
    return (probabilities.argmax(-1) == y).double().sum(-1) / (y >= 0).sum(-1)


_METRIC_FUNCTIONS: dict[SelectionMetric, Callable[[Tensor, Tensor], Tensor]] = {
    "accuracy": _accuracy,
    "balanced-accuracy": balanced_accuracy,
    "roc-auc": roc_auc,
    "pr-auc": pr_auc,
    "mcc": matthews_correlation,
}


def class_metrics(y: np.ndarray, probabilities: np.ndarray) -> dict[str, float | None]:
    r"""Metrics of predicted probabilities; ``None`` for a metric that is not defined on the data.

    * ``accuracy``: fraction of graphs whose most probable class is the true one;
    * ``balanced_accuracy``: see :func:`balanced_accuracy`;
    * ``roc_auc``, ``pr_auc``: see :func:`roc_auc` and :func:`pr_auc`; with two classes those of the second (in the
      order of class names), otherwise the mean over the classes that occur, one versus rest;
    * ``mcc``: see :func:`matthews_correlation`;
    * ``brier``: mean of :math:`\sum_o (p_o - [y = o])^2`; with two classes half of it, which is the usual Brier score
      of the second class;
    * ``log_loss``: mean of :math:`-\log p_y`;
    * ``ece``: see :func:`expected_calibration_error`; ``None`` for fewer than :data:`MIN_CALIBRATION_GRAPHS` graphs.

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
    num_classes = probabilities.shape[1]
    onehot = np.eye(num_classes)[y]
    true_class = probabilities[np.arange(len(y)), y]
    tensors = torch.from_numpy(np.ascontiguousarray(probabilities)), torch.from_numpy(y)
    return {
        "accuracy": float((probabilities.argmax(-1) == y).mean()),
        "balanced_accuracy": _number(balanced_accuracy(*tensors)),
        "roc_auc": _number(roc_auc(*tensors)),
        "pr_auc": _number(pr_auc(*tensors)),
        "mcc": _number(matthews_correlation(*tensors)),
        "brier": float(((probabilities - onehot) ** 2).sum(-1).mean() / (2 if num_classes == 2 else 1)),
        "log_loss": float(-np.log(np.clip(true_class, _MIN_PROBABILITY, 1)).mean()),
        "ece": expected_calibration_error(y, probabilities) if len(y) >= MIN_CALIBRATION_GRAPHS else None,
    }


def class_counts(y: np.ndarray, class_names: Sequence[str]) -> dict[str, int]:
    """Number of graphs of each class, by the name of the class.

    Args:
        y (ndarray): Class of each graph, ``[G]``.
        class_names (sequence): Name of each class.
    """
    counts = np.bincount(np.asarray(y, dtype=np.int64), minlength=len(class_names)).tolist()
    return dict(zip(class_names, counts, strict=True))


def metric_caution(part: str, counts: Mapping[str, int]) -> str:
    """A caution if a part has fewer than ten graphs of a class, or of one class only; else "".

    Args:
        part (str): The part in words, such as "the test set".
        counts (mapping): Number of its graphs of each class, by the name of the class.
    """
    present = [count for count in counts.values() if count]
    if len(present) < 2:
        return f"ROC-AUC, PR-AUC and MCC are not defined: {part} has graphs of one class only."
    name = min(counts, key=lambda each: counts[each])
    count = counts[name]
    if count >= MIN_CLASS_GRAPHS:
        return ""
    graphs = "no graph" if count == 0 else "only 1 graph" if count == 1 else f"only {count} graphs"
    metrics = "ROC-AUC, PR-AUC, balanced accuracy and MCC"
    return f"Caution: {part} has {graphs} of class '{name}', so {metrics} are imprecise."


def wilson_interval(correct: int, graphs: int) -> tuple[float, float]:
    r"""Wilson score interval of an accuracy at 95 % confidence (Wilson, 1927).

    .. math:: \frac{1}{1 + z^2/n} \Big(p + \frac{z^2}{2n} \pm z \sqrt{\frac{p (1 - p)}{n} + \frac{z^2}{4 n^2}}\Big)

    with :math:`p = k/n` and :math:`z = 1.96`. Unlike the normal interval, it is not empty if all or none are correct.

    Args:
        correct (int): Number of correct predictions k.
        graphs (int): Number of predictions n, at least 1.
    """
    if not 0 <= correct <= graphs or not graphs:
        raise ArgumentError(
            "wilson_interval", "correct", "be from 0 to at least one graph", f"{correct} of {graphs}"
        )
    share, square = correct / graphs, _NORMAL_95**2 / graphs
    centre = share + square / 2
    half = (square * (share * (1 - share) + square / 4)) ** 0.5
    return max(0.0, (centre - half) / (1 + square)), min(1.0, (centre + half) / (1 + square))


def accuracy_caution(graphs: int) -> str:
    """A caution if an accuracy is of fewer than 30 graphs, else ""."""
    return (
        ""
        if graphs >= MIN_ACCURACY_GRAPHS
        else f"Caution: fewer than {MIN_ACCURACY_GRAPHS} graphs say little."
    )


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
    check_at_least("expected_calibration_error", 1, bins=bins)
    if not len(y):
        raise ArgumentError("expected_calibration_error", "y", "hold at least one graph", "none")
    return reliability(probabilities.max(-1), probabilities.argmax(-1) == y, bins).ece


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence and accuracy in B bins of equal mass, as in a reliability diagram.

    Args:
        confidence, accuracy (ndarray): Mean of each bin, ``[B]``.
        count (ndarray): Number of graphs of each bin, ``[B]``.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    @property
    def ece(self) -> float:
        """The expected calibration error of these bins, see :func:`expected_calibration_error`; 0 without graphs."""
        if not self.count.sum():
            return 0.0
        return float(np.abs(self.confidence - self.accuracy) @ self.count / self.count.sum())


def reliability(confidence: np.ndarray, correct: np.ndarray, bins: int = NUM_BINS) -> Reliability:
    """Sorts graphs by confidence and divides them into bins whose sizes differ by at most one.

    Args:
        confidence (ndarray): Probability of the predicted class, ``[G]``.
        correct (ndarray): Whether the prediction is correct, ``[G]``.
        bins (int): Number of bins, at most one per graph. (default: 15)
    """
    order = np.argsort(confidence, kind="stable")
    groups = [group for group in np.array_split(order, bins) if len(group)]
    return Reliability(
        np.array([confidence[group].mean() for group in groups]),
        np.array([correct[group].mean() for group in groups]),
        np.array([len(group) for group in groups]),
    )


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


def _number(value: Tensor) -> float | None:
    return None if bool(value.isnan()) else float(value)
