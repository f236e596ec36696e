"""What a trained model gets before it leaves: calibrated probabilities, and a profile of its graphs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.probabilities import MIN_PROBABILITY, Calibration, CalibrationMethod, probabilities
from graphcaps.metrics import class_metrics

__all__ = [
    "CalibrationReport",
    "balanced_weights",
    "calibrate",
    "calibrate_probabilities",
    "cross_fit",
    "finalise_model",
    "load_initial_weights",
    "report_calibration",
]


PRIOR_STD = 3.0
"""Standard deviation of log T before a graph is seen: what a few graphs say moves the temperature little."""
_WIDEST = math.log(200)  # no temperature outside 1 / 200 to 200
_FIGURES_CALIBRATION = ("ece", "log_loss", "brier")


@dataclass(frozen=True)
class CalibrationReport:
    """Figures before and after, of graphs that had no part in their own calibration.

    Args:
        method (str): ``"temperature"`` or ``"isotonic"``.
        graphs (int): How many graphs.
        before, after (dict): ``ece``, ``log_loss``, ``brier`` and ``accuracy``.
    """

    method: str
    graphs: int
    before: dict[str, float | None]
    after: dict[str, float | None]


def calibrate(
    scores: Tensor, y: np.ndarray, method: CalibrationMethod = "temperature", *, scores_are: str = "lengths"
) -> Calibration:
    """A calibration fitted on scores of graphs that the model did not learn from.

    Args:
        scores (Tensor): What the model gives each class, ``[G, O]``.
        y (ndarray): Index of each graph's class, ``[G]``.
        method (str): ``"temperature"``, one number, which a few graphs are enough for, or ``"isotonic"``,
            a staircase per class, which needs about a thousand. (default: "temperature")
        scores_are (str): ``"lengths"`` of class capsules, or ``"logits"``. (default: "lengths")

    Raises:
        ArgumentError: If there is no graph, or no such method.
    """
    return calibrate_probabilities(probabilities(scores, scores_are), y, method)


def calibrate_probabilities(shares: np.ndarray, y: np.ndarray, method: CalibrationMethod) -> Calibration:
    """As :func:`calibrate`, from probabilities.

    The temperature minimises the log loss of the graphs plus :math:`(\\log T)^2 / 18`, as if log T had been drawn
    around 0 with standard deviation 3. With hundreds of graphs that changes nothing; with a dozen, all of them
    right by luck, it keeps T above 0, and the bound of :class:`Calibration` keeps the model from calling itself
    certain.
    """
    shares, y = np.asarray(shares, dtype=np.float64), np.asarray(y)
    if shares.ndim != 2 or y.shape != shares.shape[:1]:
        raise ShapeError("calibrate", "y", f"have one class per row of {list(shares.shape)}", list(y.shape))
    if not len(y):
        raise ArgumentError("calibrate", "scores", "hold at least one graph", "none")
    if method == "temperature":
        return Calibration(method, len(y), temperature=_temperature(shares, y))
    if method != "isotonic":
        raise ArgumentError("calibrate", "method", "be 'temperature' or 'isotonic'", repr(method))
    num_classes = shares.shape[1]
    classes = [1] if num_classes == 2 else range(num_classes)
    return Calibration("isotonic", len(y), curves=tuple(_staircase(shares[:, c], y == c) for c in classes))


def _temperature(shares: np.ndarray, y: np.ndarray) -> float:
    from scipy.optimize import minimize_scalar

    logs = np.log(np.maximum(shares, MIN_PROBABILITY))
    own = logs[np.arange(len(y)), y]

    def loss(log_t: float) -> float:
        scaled = logs * math.exp(-log_t)
        top = scaled.max(-1)
        total = top + np.log(np.exp(scaled - top[:, None]).sum(-1))
        return float((total - own * math.exp(-log_t)).sum() + log_t**2 / (2 * PRIOR_STD**2))

    found = minimize_scalar(loss, bounds=(-_WIDEST, _WIDEST), method="bounded", options={"xatol": 1e-6})
    return math.exp(float(found.x))


def _staircase(shares: np.ndarray, right: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Isotonic regression of right on shares, kept off 0 and 1 by what as many graphs cannot rule out."""
    from sklearn.isotonic import IsotonicRegression

    margin = 1 / (len(right) + 2)
    fitted = IsotonicRegression(y_min=margin, y_max=1 - margin, out_of_bounds="clip")
    fitted.fit(shares, right.astype(np.float64))
    given, becomes = fitted.X_thresholds_, fitted.y_thresholds_
    return tuple(given.tolist()), tuple(np.clip(becomes, margin, 1 - margin).tolist())


def cross_fit(
    shares: np.ndarray, y: np.ndarray, fold: np.ndarray, method: CalibrationMethod = "temperature"
) -> np.ndarray:
    """Calibrated probabilities of all graphs, each fold's by a calibration fitted on the other folds.

    Args:
        shares (ndarray): Probabilities that held-out models gave, ``[G, O]``.
        y (ndarray): Index of each graph's class, ``[G]``.
        fold (ndarray): In which fold each graph was held out, ``[G]``.
        method (str): As in :func:`calibrate`.
    """
    shares, y, fold = np.asarray(shares, dtype=np.float64), np.asarray(y), np.asarray(fold)
    if fold.shape != y.shape:
        raise ShapeError("cross_fit", "fold", f"name a fold per graph, {len(y)}", list(fold.shape))
    if len(np.unique(fold)) < 2:
        raise ArgumentError("cross_fit", "fold", "name at least two folds", len(np.unique(fold)))
    found = np.empty_like(shares)
    for held in np.unique(fold):
        own = fold == held
        found[own] = calibrate_probabilities(shares[~own], y[~own], method).apply(shares[own])
    return found


def report_calibration(
    shares: np.ndarray, y: np.ndarray, fold: np.ndarray, method: CalibrationMethod = "temperature"
) -> CalibrationReport:
    """What calibration brings on the held-out graphs of all folds pooled; arguments of :func:`cross_fit`."""
    after = cross_fit(shares, y, fold, method)
    return CalibrationReport(method, len(y), _figures(y, shares), _figures(y, after))


def _figures(y: np.ndarray, shares: np.ndarray) -> dict[str, Any]:
    known = class_metrics(y, shares)
    return {name: known[name] for name in (*_FIGURES_CALIBRATION, "accuracy")}


_FIGURES = ("log_loss", "brier", "ece")


def finalise_model(
    fitted: FittedModel, store: GraphStore, validation: Tensor, method: CalibrationMethod | None
) -> FittedModel:
    """The model with a profile of its graphs and, where there are validation graphs, a calibration by them.

    The validation graphs have also chosen the epoch, so that the figures of them that stand in ``training``
    are a little too good.

    Args:
        fitted (FittedModel): A model as it was trained.
        store (GraphStore): All its graphs, with classes.
        validation (Tensor): Graphs that it did not learn from.
        method (str, optional): As in :func:`graphcaps.training.calibration.calibrate`; ``None`` leaves
            probabilities as they are.
    """
    fitted = replace(fitted, profile=TrainingProfile.from_store(store))
    if not validation.numel():
        return fitted
    assert store.y is not None
    shares = probabilities(fitted._scores(store[validation]), fitted.scores_are)
    y = store.y[validation].cpu().numpy()
    if not np.isfinite(shares).all():
        return fitted
    before = class_metrics(y, shares)
    after = before
    if method is not None:
        found = calibrate_probabilities(shares, y, method)
        after = class_metrics(y, found.apply(shares))
        figures: dict[str, Any] = {"before": before, "after": after}
        short = {when: {name: known[name] for name in _FIGURES} for when, known in figures.items()}
        fitted = replace(fitted, calibration=replace(found, metrics=short))
    return replace(fitted, training=fitted.training | {"validation_metrics": after})


def load_initial_weights(whole: nn.Module, start: FittedModel, class_names: tuple[str, ...]) -> None:
    """Gives a model with one replica the weights of a trained one.

    Raises:
        ArgumentError: If the two differ in classes or sizes.
    """
    if class_names != start.class_names:
        got = f"{', '.join(class_names)}, not {', '.join(start.class_names)}"
        raise ArgumentError("train", "start", "have the classes of the graphs", got)
    own = {name: value.unsqueeze(0) for name, value in start.model.state_dict().items()}
    wanted = whole.state_dict()
    for name, value in wanted.items():
        if name not in own or own[name].shape != value.shape:
            raise ArgumentError("train", "start", "be a model of the same sizes", f"another '{name}'")
    whole.load_state_dict({name: own[name].to(value.device) for name, value in wanted.items()})


def balanced_weights(y: Tensor, num_classes: int) -> Tensor:
    """n / (O n_o): weights that give all O classes the same say, and a graph 1 on average, ``[O]``."""
    counts = torch.bincount(y.cpu(), minlength=num_classes).double()
    return (y.numel() / (num_classes * counts.clamp_min(1))).float()
