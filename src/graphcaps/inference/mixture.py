"""The mixture of a network and its companions: classical models that are fitted to the same training graphs.

The probabilities of a model with companions are a weighted mean of the probabilities of its parts, the network first.
The weights are chosen when the model is trained (:mod:`graphcaps.training.companion_weights`). A part of weight 1 is
the answer, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.inference.probabilities import Calibration

__all__ = ["AnswerParts", "Mixture"]

_TOLERANCE = 1e-9  # of the sum of weights


@dataclass(frozen=True)
class Mixture:
    r"""Weights of the parts of an answer, and the calibration of their weighted mean.

    .. math:: q = \operatorname{calibrate}\Big(\sum_k w_k q_k\Big), \qquad w_k \ge 0, \quad \sum_k w_k = 1

    with the calibrated probabilities :math:`q_k` of part k. A mixture in which one part has weight 1 is that part,
    without a further calibration.

    Args:
        weights (tuple): Weight of the network, then of each companion.
        graphs (int): Number of graphs whose log loss chose the weights.
        stacked (bool): Whether these are training graphs, each predicted by models that were not trained on it;
            otherwise they are the validation graphs.
        calibration (Calibration, optional): Calibration of the weighted mean, fitted on the same graphs.

    Raises:
        ArgumentError: If the weights are fewer than two, out of range, or do not add up to 1.
    """

    weights: tuple[float, ...]
    graphs: int
    stacked: bool
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        valid = all(type(weight) is float and 0 <= weight <= 1 for weight in self.weights)
        if len(self.weights) < 2 or not valid or abs(math.fsum(self.weights) - 1) > _TOLERANCE:
            expected = "be at least two numbers from 0 to 1 that add up to 1"
            raise ArgumentError("Mixture", "weights", expected, repr(self.weights)[:60])
        if type(self.graphs) is not int or self.graphs < 0:
            raise ArgumentError("Mixture", "graphs", "be an integer of at least 0", repr(self.graphs)[:60])
        if type(self.stacked) is not bool:
            raise ArgumentError("Mixture", "stacked", "be true or false", repr(self.stacked)[:60])

    def apply(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Probabilities of the mixture, ``[*lead, O]``, from the calibrated ones of each part; NaN stays NaN.

        Raises:
            ShapeError: If there is not one part per weight.
        """
        if len(parts) != len(self.weights):
            raise ShapeError("Mixture", "parts", f"be one per weight, {len(self.weights)}", len(parts))
        for weight, part in zip(self.weights, parts, strict=True):
            if weight == 1:
                return part
        mixed = weighted_mean(parts, self.weights)
        return mixed if self.calibration is None else self.calibration.apply(mixed)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; :meth:`from_dict` is the inverse."""
        return {
            "weights": list(self.weights),
            "graphs": self.graphs,
            "stacked": self.stacked,
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Mixture:
        """Reads the result of :meth:`to_dict`.

        Raises:
            ArgumentError: If an entry is unknown, missing or out of range.
        """
        names = ("weights", "graphs", "stacked", "calibration")
        if not isinstance(values, Mapping) or set(values) != set(names):
            raise ArgumentError("Mixture", "entries", f"be {', '.join(names)}", repr(values)[:60])
        weights, calibration = values["weights"], values["calibration"]
        if not isinstance(weights, list) or not isinstance(calibration, dict | None):
            expected = "hold a list of weights, and a calibration or null"
            raise ArgumentError("Mixture", "entries", expected, repr(values)[:60])
        numbers = tuple(float(weight) if type(weight) is int else weight for weight in weights)
        fitted = None if calibration is None else Calibration.from_dict(calibration)
        return cls(numbers, values["graphs"], values["stacked"], fitted)


def weighted_mean(parts: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """The sum of ``weights[k] * parts[k]``, in this order, float64."""
    total: np.ndarray = weights[0] * np.asarray(parts[0], dtype=np.float64)
    for weight, part in zip(weights[1:], parts[1:], strict=True):
        total = total + weight * np.asarray(part, dtype=np.float64)
    return total


@dataclass(frozen=True, eq=False)
class AnswerParts:
    """What the probabilities of G graphs are made of: the network and its K − 1 companions.

    Args:
        names (tuple): Names of the models, the network first.
        weights (tuple): Weight of each.
        probabilities (ndarray): Calibrated probabilities of each part, ``[K, G, O]``; NaN for a graph that could not
            be predicted.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    probabilities: np.ndarray

    @staticmethod
    def join(parts: Sequence[AnswerParts]) -> AnswerParts:
        """Those of one part of the graphs after the other, at least one, of the same models."""
        return replace(parts[0], probabilities=np.concatenate([part.probabilities for part in parts], axis=1))

    def spread(self, rows: np.ndarray) -> AnswerParts:
        """The parts of these graphs among more, with NaN for the others.

        Args:
            rows (ndarray): Which of n graphs these are, bool ``[n]``.
        """
        shape = (len(self.names), len(rows), self.probabilities.shape[-1])
        probabilities = np.full(shape, np.nan)
        probabilities[:, rows] = self.probabilities
        return replace(self, probabilities=probabilities)

    def contributions(self, classes: np.ndarray) -> np.ndarray:
        r"""Share of each part in the probability of a class of each graph, ``[K, G]``; the shares of a graph add to 1.

        .. math:: \frac{w_k\, q_k(c)}{\sum_j w_j\, q_j(c)}

        Args:
            classes (ndarray): Class c of each graph, ``[G]``.
        """
        rows = np.arange(len(classes))
        terms = np.stack(
            [weight * p[rows, classes] for weight, p in zip(self.weights, self.probabilities, strict=True)]
        )
        total = terms.sum(0)
        equal = np.broadcast_to(np.array(self.weights)[:, None], terms.shape)
        shares: np.ndarray = np.where(total == 0, equal, terms / np.where(total == 0, 1, total))
        return shares
