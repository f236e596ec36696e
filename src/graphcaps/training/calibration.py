"""Calibration of predicted probabilities on graphs that the model was not trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.inference.disagreement import DisagreementProfile, mutual_information
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.probabilities import MIN_PROBABILITY, Calibration, CalibrationMethod, probabilities
from graphcaps.metrics import class_counts, class_metrics
from graphcaps.registry import ScoreKind

__all__ = [
    "CalibrationReport",
    "calibrate",
    "calibrate_model",
    "calibrate_probabilities",
    "cross_fit",
    "report_calibration",
]

PRIOR_STD = 3.0
"""Standard deviation of the prior of log T: a few graphs change the temperature little."""
_MAX_LOG_TEMPERATURE = math.log(200)
_METRICS = ("log_loss", "brier", "ece")


@dataclass(frozen=True)
class CalibrationReport:
    """Metrics before and after calibration, on graphs that were not used to fit it.

    Args:
        method (str): ``"temperature"`` or ``"isotonic"``.
        graphs (int): Number of graphs.
        before, after (dict): ``ece``, ``log_loss``, ``brier`` and ``accuracy``.
    """

    method: str
    graphs: int
    before: dict[str, float | None]
    after: dict[str, float | None]


def calibrate(
    scores: Tensor,
    y: np.ndarray,
    method: CalibrationMethod = "temperature",
    *,
    score_kind: ScoreKind = "lengths",
) -> Calibration:
    """Fits a calibration to class scores of graphs that the model was not trained on.

    Args:
        scores (Tensor): Class scores, ``[G, O]``.
        y (ndarray): Class of each graph, ``[G]``.
        method (str): ``"temperature"``, one parameter, suitable for few graphs, or ``"isotonic"``, isotonic regression
            per class, which needs about a thousand graphs. (default: "temperature")
        score_kind (str): ``"lengths"`` of class capsules, ``"logits"`` or ``"probabilities"``. (default: "lengths")

    Raises:
        ArgumentError: If there are no graphs, or the method is unknown.
    """
    return calibrate_probabilities(probabilities(scores, score_kind), y, method)


def calibrate_probabilities(p: np.ndarray, y: np.ndarray, method: CalibrationMethod) -> Calibration:
    """As :func:`calibrate`, from probabilities ``p [G, O]``, or ``[M, G, O]`` of the members of a committee.

    A committee calibrates its members alike and averages them. Its temperature minimises the log loss of that average,
    and its isotonic regressions are of all members together.

    The temperature T minimises the log loss of the graphs plus :math:`(\\log T)^2 / 18`, the prior of a normal
    distribution of log T around 0 with standard deviation 3. With hundreds of graphs the prior has no effect. With a
    dozen graphs that are all classified correctly it keeps T above 0, and the bound of :class:`Calibration` keeps
    probabilities below 1.
    """
    p, y = np.asarray(p, dtype=np.float64), np.asarray(y)
    if p.ndim not in (2, 3) or y.shape != p.shape[-2:-1]:
        raise ShapeError("calibrate", "y", f"have one class per row of {list(p.shape)}", list(y.shape))
    p = p if p.ndim == 3 else p[None]
    if not len(y):
        raise ArgumentError("calibrate", "scores", "hold at least one graph", "none")
    if method == "temperature":
        return Calibration(method, len(y), temperature=_fit_temperature(p, y))
    if method != "isotonic":
        raise ArgumentError("calibrate", "method", "be 'temperature' or 'isotonic'", repr(method))
    num_classes = p.shape[-1]
    classes = [1] if num_classes == 2 else range(num_classes)
    return Calibration("isotonic", len(y), curves=tuple(_fit_isotonic(p[..., c], y == c) for c in classes))


def calibrate_model(
    fitted: FittedModel, store: GraphStore, validation: Tensor, method: CalibrationMethod | None
) -> FittedModel:
    """The model with a calibration fitted to its validation graphs, and with their metrics in ``training``.

    A committee also gets the profile of its members' disagreement on these graphs.

    The validation graphs also chose the epoch, so their metrics are slightly optimistic. Graphs without nodes count in
    the metrics, with :attr:`FittedModel.class_prior`, and not in the fit.

    Args:
        fitted (FittedModel): Trained model without calibration.
        store (GraphStore): Graphs with labels.
        validation (Tensor): Indices of the validation graphs.
        method (str, optional): As in :func:`calibrate`; ``None`` leaves probabilities as they are.
    """
    assert store.y is not None
    graphs = store[validation]
    checked = fitted.check(graphs).without_warnings()  # the notes of the training say it of all its graphs
    scores, y = fitted.member_scores(checked), store.y[validation].cpu().numpy()
    p, has_nodes = probabilities(scores, fitted.score_kind), (graphs.sizes > 0).cpu().numpy()
    if not np.isfinite(p).all():
        return fitted
    before = class_metrics(y, fitted.to_probabilities(scores, graphs.empty_graphs))
    after = before
    if method is not None and has_nodes.any():
        calibration = calibrate_probabilities(p[:, has_nodes], y[has_nodes], method)
        calibrated = replace(fitted, calibration=calibration)
        after = class_metrics(y, calibrated.to_probabilities(scores, graphs.empty_graphs))
        metrics_by_stage = {
            when: {name: metrics[name] for name in _METRICS}
            for when, metrics in (("before", before), ("after", after))
        }
        fitted = replace(fitted, calibration=replace(calibration, metrics=metrics_by_stage))
    if fitted.is_committee and has_nodes.any():
        values = mutual_information(fitted.calibrate_scores(scores))[has_nodes]
        fitted = replace(fitted, disagreement_profile=DisagreementProfile.from_values(values))
    counts = class_counts(y, fitted.class_names)
    metrics = {"validation_metrics": after, "validation_class_counts": counts}
    return replace(fitted, training=fitted.training | metrics)


def cross_fit(
    p: np.ndarray, y: np.ndarray, fold: np.ndarray, method: CalibrationMethod = "temperature"
) -> np.ndarray:
    """Calibrated probabilities; those of a fold come from a calibration that was fitted on the other folds.

    Args:
        p (ndarray): Probabilities of held-out graphs, ``[G, O]``.
        y (ndarray): Class of each graph, ``[G]``.
        fold (ndarray): Fold in which each graph was held out, ``[G]``.
        method (str): As in :func:`calibrate`. (default: "temperature")
    """
    p, y, fold = np.asarray(p, dtype=np.float64), np.asarray(y), np.asarray(fold)
    if fold.shape != y.shape:
        raise ShapeError("cross_fit", "fold", f"have one entry per graph, {len(y)}", list(fold.shape))
    if len(np.unique(fold)) < 2:
        raise ArgumentError("cross_fit", "fold", "name at least two folds", len(np.unique(fold)))
    calibrated = np.empty_like(p)
    for number in np.unique(fold):
        held_out = fold == number
        calibration = calibrate_probabilities(p[~held_out], y[~held_out], method)
        calibrated[held_out] = calibration.apply(p[held_out])
    return calibrated


def report_calibration(
    p: np.ndarray, y: np.ndarray, fold: np.ndarray, method: CalibrationMethod = "temperature"
) -> CalibrationReport:
    """Metrics of the held-out graphs of all folds before and after :func:`cross_fit`; same arguments."""
    calibrated = cross_fit(p, y, fold, method)
    return CalibrationReport(method, len(y), _select_metrics(y, p), _select_metrics(y, calibrated))


def _fit_temperature(p: np.ndarray, y: np.ndarray) -> float:
    """The temperature of members whose probabilities ``p [M, G, O]`` are averaged after it."""
    from scipy.optimize import minimize_scalar

    logs = np.log(np.maximum(p, MIN_PROBABILITY))
    true_class = logs[:, np.arange(len(y)), y]

    def loss(log_t: float) -> float:
        scaled = logs * math.exp(-log_t)
        top = scaled.max(-1)
        total = top + np.log(np.exp(scaled - top[..., None]).sum(-1))
        members = true_class * math.exp(-log_t) - total  # log-probability of the true class, [M, G]
        best = members.max(0)
        mean = best + np.log(np.exp(members - best).mean(0))
        return float(log_t**2 / (2 * PRIOR_STD**2) - mean.sum())

    bounds = (-_MAX_LOG_TEMPERATURE, _MAX_LOG_TEMPERATURE)
    result = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(float(result.x))


def _fit_isotonic(p: np.ndarray, positive: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Isotonic regression of class membership on probability, kept 1 / (G + 2) away from 0 and 1.

    Args:
        p (ndarray): Probabilities of M members, ``[M, G]``.
        positive (ndarray): Class membership, ``[G]``.
    """
    from sklearn.isotonic import IsotonicRegression

    margin = 1 / (len(positive) + 2)
    regression = IsotonicRegression(y_min=margin, y_max=1 - margin, out_of_bounds="clip")
    regression.fit(p.reshape(-1), np.tile(positive.astype(np.float64), len(p)))
    inputs, outputs = regression.X_thresholds_, regression.y_thresholds_
    return tuple(inputs.tolist()), tuple(np.clip(outputs, margin, 1 - margin).tolist())


def _select_metrics(y: np.ndarray, p: np.ndarray) -> dict[str, float | None]:
    metrics = class_metrics(y, p)
    return {name: metrics[name] for name in ("ece", "log_loss", "brier", "accuracy")}
