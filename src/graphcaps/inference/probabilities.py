"""Probabilities from class scores, uncalibrated or calibrated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.registry import ScoreKind

__all__ = [
    "MIN_PROBABILITY",
    "Calibration",
    "CalibrationMethod",
    "class_prior",
    "class_probabilities",
    "prior_scores",
    "probabilities",
]

CalibrationMethod = Literal["temperature", "isotonic"]

MIN_PROBABILITY = 1e-12
"""Smaller probabilities are raised to this before a logarithm is taken."""
_TIE_WEIGHT = (
    1e-6  # weight of the uncalibrated probabilities: keeps the order where an isotonic curve is flat
)


def probabilities(scores: Tensor, score_kind: ScoreKind) -> np.ndarray:
    r"""Uncalibrated probabilities, float64 ``[G, O]``; rows sum to one.

    Logits go through softmax. Lengths of class capsules are divided by their sum (equal probabilities if all are zero).
    Probabilities are returned unchanged.

    Args:
        scores (Tensor): ``[G, O]``.
        score_kind (str): ``"lengths"``, ``"logits"`` or ``"probabilities"``.
    """
    values = scores.detach().cpu()
    if score_kind != "lengths":
        return class_probabilities(values, score_kind).numpy()
    lengths = values.numpy().astype(np.float64)
    total = lengths.sum(-1, keepdims=True)
    return np.divide(lengths, total, out=np.full_like(lengths, 1 / lengths.shape[-1]), where=total > 0)


def class_probabilities(scores: Tensor, score_kind: ScoreKind) -> Tensor:
    """As :func:`probabilities`, as a tensor on the device of the scores and with any leading axes, ``[*lead, O]``."""
    values = scores.double()
    if score_kind == "logits":
        return values.softmax(-1)
    if score_kind == "probabilities":
        return values
    total = values.sum(-1, keepdim=True)
    return torch.where(total > 0, values / total, torch.full_like(values, 1 / values.size(-1)))


def class_prior(y: Tensor, num_classes: int) -> Tensor:
    """Frequency of each class among the graphs of classes ``y [G]``, float64 ``[O]``; equal ones without graphs."""
    counts = torch.bincount(y.cpu(), minlength=num_classes).double()
    return counts / counts.sum() if y.numel() else torch.full_like(counts, 1 / num_classes)


def prior_scores(prior: Tensor, score_kind: ScoreKind) -> Tensor:
    """Class scores whose :func:`probabilities` are ``prior [O]``, ``[O]``: what counts for a graph without nodes."""
    return prior.clamp_min(MIN_PROBABILITY).log() if score_kind == "logits" else prior


@dataclass(frozen=True)
class Calibration:
    r"""Maps uncalibrated probabilities to calibrated ones; fitted on held-out graphs.

    ``"temperature"`` is temperature scaling,

    .. math:: q_o = p_o^{1 / T} \Big/ \sum_k p_k^{1 / T},

    that is softmax with temperature T of the logits, or of the logarithms of capsule lengths. The result is then shrunk
    towards equal probabilities, so that none exceeds (n + 1) / (n + 2), the rule of succession for n held-out graphs.
    The order of the classes does not change.

    ``"isotonic"`` applies an isotonic regression per class and divides by the sum. With two classes there is one
    regression, of the second class.

    Args:
        method (str): ``"temperature"`` or ``"isotonic"``.
        graphs (int): Number n of graphs that it was fitted on.
        temperature (float): T. (default: 1.0)
        curves (tuple): For each class a pair of tuples, the ascending inputs and the outputs of the isotonic
            regression; for two classes one pair, of the second class.
        metrics (dict): Metrics before and after calibration, as JSON values.

    Raises:
        ArgumentError: If a value is out of range.
    """

    method: CalibrationMethod
    graphs: int
    temperature: float = 1.0
    curves: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    metrics: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        owner = "Calibration"
        if self.method not in get_args(CalibrationMethod):
            methods = " or ".join(f"'{name}'" for name in get_args(CalibrationMethod))
            raise ArgumentError(owner, "method", f"be {methods}", repr(self.method))
        if type(self.graphs) is not int or self.graphs < 1:
            raise ArgumentError(owner, "graphs", "be an integer of at least 1", self.graphs)
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ArgumentError(owner, "temperature", "be positive and finite", self.temperature)
        if (self.method == "isotonic") != bool(self.curves):
            raise ArgumentError(owner, "curves", "be set for method 'isotonic' and only for it", self.method)
        for inputs, outputs in self.curves:
            points = np.asarray([inputs, outputs], dtype=np.float64)
            in_range = points.ndim == 2 and points.shape[1] and points.min() >= 0 and points.max() <= 1
            if not in_range or (np.diff(points) < 0).any():
                raise ArgumentError(owner, "curves", "ascend between 0 and 1", "values that do not")

    def apply(self, uncalibrated: np.ndarray) -> np.ndarray:
        """Calibrated probabilities from those of :func:`probabilities`, ``[*lead, O]`` each; NaN stays NaN.

        A committee calibrates the probabilities of each member and averages them.
        """
        uncalibrated = np.asarray(uncalibrated, dtype=np.float64)
        num_classes = uncalibrated.shape[-1]
        if self.method == "temperature":
            logs = np.log(np.maximum(uncalibrated, MIN_PROBABILITY)) / self.temperature
            powers = np.exp(logs - logs.max(-1, keepdims=True))
            shrinkage = min(1.0, num_classes / (max(num_classes - 1, 1) * (self.graphs + 2)))
            calibrated = powers / powers.sum(-1, keepdims=True)
            return (1 - shrinkage) * calibrated + shrinkage / num_classes
        num_curves = 1 if num_classes == 2 else num_classes
        if len(self.curves) != num_curves:
            expected = f"hold {num_curves} for {num_classes} classes"
            raise ArgumentError("Calibration", "curves", expected, len(self.curves))
        first = num_classes - num_curves
        columns = [np.interp(uncalibrated[..., first + c], *curve) for c, curve in enumerate(self.curves)]
        calibrated = np.stack([1 - columns[0], columns[0]] if num_classes == 2 else columns, -1)
        total = calibrated.sum(-1, keepdims=True)
        calibrated = np.where(total > 0, calibrated / np.where(total > 0, total, 1), uncalibrated)
        return (1 - _TIE_WEIGHT) * calibrated + _TIE_WEIGHT * uncalibrated

    def to_dict(self) -> dict[str, Any]:
        """JSON values; :meth:`from_dict` is the inverse."""
        values: dict[str, Any] = {"method": self.method, "graphs": self.graphs}
        if self.method == "temperature":
            values["temperature"] = self.temperature
        else:
            values["curves"] = [[list(inputs), list(outputs)] for inputs, outputs in self.curves]
        return values | {"metrics": self.metrics}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Reads the result of :meth:`to_dict`.

        Raises:
            ArgumentError: If an entry is unknown, missing or out of range.
        """
        names = ("method", "graphs", "temperature", "curves", "metrics")
        for name in values:
            if name not in names:
                raise ArgumentError("Calibration", name, f"be one of {', '.join(names)}", "an unknown entry")
        try:
            curves = tuple(
                (tuple(map(float, inputs)), tuple(map(float, outputs)))
                for inputs, outputs in values.get("curves", ())
            )
            metrics = dict(values.get("metrics", {}))
            temperature = float(values.get("temperature", 1.0))
            return cls(values["method"], values["graphs"], temperature, curves, metrics)
        except (TypeError, KeyError) as error:
            raise ArgumentError("Calibration", "entries", f"be {', '.join(names)}", repr(values)) from error
        except ValueError as error:
            if isinstance(error, ArgumentError):
                raise
            expected = "hold numbers in 'temperature' and 'curves'"
            raise ArgumentError("Calibration", "entries", expected, repr(values)) from error
