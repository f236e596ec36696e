"""From scores to probabilities, calibrated or not: what a model file needs to know to say how sure it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError

__all__ = ["Calibration", "CalibrationMethod", "abstain", "probabilities"]

CalibrationMethod = Literal["temperature", "isotonic"]

SMALLEST = 1e-12
"""Probabilities below this are read as this one, so that each has a logarithm."""
_TIES = 1e-6  # share of the probabilities as they were: equal steps of a staircase keep their order


def probabilities(scores: Tensor, scores_are: str) -> np.ndarray:
    r"""Probabilities from scores, float64 ``[G, O]``, rows that sum to one; not calibrated.

    Lengths of class capsules, which do not add up to anything, are divided by their
    sum (equal shares where all are zero); logits go through softmax.
    """
    values = scores.detach().cpu().double()
    if scores_are == "logits":
        return values.softmax(-1).numpy()
    total = values.sum(-1, keepdim=True)
    return torch.where(total > 0, values / total, torch.full_like(values, 1 / values.size(-1))).numpy()


@dataclass(frozen=True)
class Calibration:
    r"""Turns probabilities into ones that agree with frequencies, as they were on graphs held out.

    ``"temperature"`` takes every probability to a power and divides by the sum,

    .. math:: q_o = p_o^{1 / T} \Big/ \sum_k p_k^{1 / T},

    which is softmax with temperature T of logits, and of the logarithms of capsule lengths, and then moves them
    a little towards equal shares, so that none exceeds (n + 1) / (n + 2): n graphs, all of them right, do not
    speak for more. The order of the classes stays as it is.

    ``"isotonic"`` takes each through a rising staircase and divides by the sum; with two classes there is one
    staircase, of the second.

    Args:
        method (str): ``"temperature"`` or ``"isotonic"``.
        graphs (int): How many graphs it was fitted on.
        temperature (float): T. (default: 1.0)
        curves (tuple): For each class two tuples, probabilities ascending and what they become; for two
            classes one such pair, of the second.
        figures (dict): What was measured when it was fitted, in JSON's own types.

    Raises:
        ArgumentError: If a number is out of range.
    """

    method: CalibrationMethod
    graphs: int
    temperature: float = 1.0
    curves: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        owner = "Calibration"
        if self.method not in get_args(CalibrationMethod):
            known = " or ".join(f"'{name}'" for name in get_args(CalibrationMethod))
            raise ArgumentError(owner, "method", f"be {known}", repr(self.method))
        if type(self.graphs) is not int or self.graphs < 1:
            raise ArgumentError(owner, "graphs", "be a whole number from 1 on", self.graphs)
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ArgumentError(owner, "temperature", "be above 0 and finite", self.temperature)
        if (self.method == "isotonic") != bool(self.curves):
            raise ArgumentError(owner, "curves", "stand with method 'isotonic', and only there", self.method)
        for given, becomes in self.curves:
            points = np.asarray([given, becomes], dtype=np.float64)
            inside = points.ndim == 2 and points.shape[1] and points.min() >= 0 and points.max() <= 1
            if not inside or (np.diff(points) < 0).any():
                raise ArgumentError(owner, "curves", "rise between 0 and 1", "others")

    def apply(self, shares: np.ndarray) -> np.ndarray:
        """Calibrated probabilities from those of :func:`probabilities`, ``[G, O]`` to the same; NaN stays."""
        shares = np.asarray(shares, dtype=np.float64)
        if self.method == "temperature":
            logs = np.log(np.maximum(shares, SMALLEST)) / self.temperature
            powers = np.exp(logs - logs.max(-1, keepdims=True))
            num_classes = shares.shape[-1]
            away = min(1.0, num_classes / (max(num_classes - 1, 1) * (self.graphs + 2)))
            found = powers / powers.sum(-1, keepdims=True)
            return (1 - away) * found + away / num_classes
        num_classes = shares.shape[-1]
        wanted = 1 if num_classes == 2 else num_classes
        if len(self.curves) != wanted:
            raise ArgumentError("Calibration", "curves", f"be {wanted} for these classes", len(self.curves))
        first = num_classes - wanted
        steps = [np.interp(shares[:, first + c], *curve) for c, curve in enumerate(self.curves)]
        found = np.stack([1 - steps[0], steps[0]] if num_classes == 2 else steps, -1)
        total = found.sum(-1, keepdims=True)
        found = np.where(total > 0, found / np.where(total > 0, total, 1), shares)
        return (1 - _TIES) * found + _TIES * shares

    def to_dict(self) -> dict[str, Any]:
        """In JSON's own types; :meth:`from_dict` reads it back."""
        plain: dict[str, Any] = {"method": self.method, "graphs": self.graphs}
        if self.method == "temperature":
            plain["temperature"] = self.temperature
        else:
            plain["curves"] = [[list(given), list(becomes)] for given, becomes in self.curves]
        return plain | {"figures": self.figures}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Calibration:
        """Reads what :meth:`to_dict` wrote.

        Raises:
            ArgumentError: If an entry is unknown, missing or out of range.
        """
        known = ("method", "graphs", "temperature", "curves", "figures")
        for name in values:
            if name not in known:
                raise ArgumentError("Calibration", name, f"be one of {', '.join(known)}", "a stranger")
        try:
            curves = tuple(
                (tuple(map(float, given)), tuple(map(float, becomes)))
                for given, becomes in values.get("curves", ())
            )
            figures = dict(values.get("figures", {}))
            temperature = float(values.get("temperature", 1.0))
            return cls(values["method"], values["graphs"], temperature, curves, figures)
        except (TypeError, KeyError) as error:
            raise ArgumentError("Calibration", "entries", f"be {', '.join(known)}", repr(values)) from error
        except ValueError as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError("Calibration", "curves", "hold numbers in pairs", "others") from error


def abstain(found: np.ndarray, shares: np.ndarray, below: float | None) -> np.ndarray:
    """The classes found, ``None`` where the highest probability is below a threshold; as they are without one.

    Raises:
        ArgumentError: If the threshold is no probability.
    """
    if below is None:
        return found
    if not 0 <= below <= 1:
        raise ArgumentError("predict", "abstain_below", "be from 0 to 1", below)
    kept = found.astype(object)
    kept[shares.max(-1) < below] = None
    return kept
