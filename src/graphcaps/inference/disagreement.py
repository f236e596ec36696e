"""Disagreement of the members of a committee: how much their probabilities for a graph differ.

Members that were trained alike and still differ on a graph have not learned from the data what it is. The disagreement
is part of each prediction, of the applicability check (:class:`DisagreementProfile`) and of abstaining.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from graphcaps.errors import ArgumentError
from graphcaps.inference.probabilities import MIN_PROBABILITY

__all__ = ["DisagreementProfile", "join_reasons", "mutual_information"]

_MIN_SPREAD = 0.05  # in nats: members of a solved task hardly differ on any validation graph
_MIN_DISTANCE = 2.0  # in spreads, as for the statistics of graphs
_LIMIT_QUANTILE = 0.99


def mutual_information(p: np.ndarray) -> np.ndarray:
    r"""Mutual information between class and member, in nats, float64 ``[G]``.

    .. math:: H\Big(\frac{1}{M} \sum_m p_m\Big) - \frac{1}{M} \sum_m H(p_m), \qquad H(p) = -\sum_o p_o \log p_o

    It is 0 if all members give the same probabilities, and at most log min(M, O): then each member is certain, and the
    members divide evenly among classes. NaN stays NaN.

    Args:
        p (ndarray): Probabilities of M members, ``[M, G, O]``.
    """
    p = np.asarray(p, dtype=np.float64)
    return np.maximum(_entropy(p.mean(0)) - _entropy(p).mean(0), 0.0)


def _entropy(p: np.ndarray) -> np.ndarray:
    entropy: np.ndarray = -(p * np.log(np.maximum(p, MIN_PROBABILITY))).sum(-1)
    return entropy


@dataclass(frozen=True)
class DisagreementProfile:
    """The disagreement of a committee on its validation graphs, and the limit above which a graph is an outlier.

    With the median m and the 95 % quantile b of the disagreement on validation graphs, the limit is
    m + 2 · max(b − m, 0.05), or the 99 % quantile if that is higher: the rule that
    :class:`graphcaps.inference.applicability.TrainingProfile` has for statistics of graphs.

    Args:
        high (float): 95 % quantile over the validation graphs, in nats, for messages.
        limit (float): Graphs with a higher disagreement are out of distribution.
        graphs (int): Number of validation graphs with nodes.

    Raises:
        ArgumentError: If a value is out of range.
    """

    high: float
    limit: float
    graphs: int

    def __post_init__(self) -> None:
        numbers = (self.high, self.limit)
        if not all(type(value) is float and math.isfinite(value) and value >= 0 for value in numbers):
            expected = "be finite numbers from 0 on"
            raise ArgumentError("DisagreementProfile", "high and limit", expected, repr(numbers))
        if type(self.graphs) is not int or self.graphs < 1:
            raise ArgumentError("DisagreementProfile", "graphs", "be an integer of at least 1", self.graphs)

    @classmethod
    def from_values(cls, values: np.ndarray) -> DisagreementProfile:
        """The profile of the disagreement on each validation graph, ``[G]``, at least one."""
        median, high, highest = np.quantile(values, (0.5, 0.95, _LIMIT_QUANTILE)).tolist()
        limit = max(median + _MIN_DISTANCE * max(high - median, _MIN_SPREAD), highest)
        return cls(high, limit, len(values))

    def reasons(self, values: np.ndarray) -> tuple[str, ...]:
        """For each graph the reason why its disagreement ``values [G]`` puts it out of distribution, or ""."""
        usual = f"95 % of the validation graphs: up to {self.high:.2g}"
        return tuple(
            f"the members of the committee disagree by {value:.2g} nats ({usual})"
            if value > self.limit
            else ""
            for value in np.asarray(values).tolist()
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values; :meth:`from_dict` is the inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DisagreementProfile:
        """Reads the result of :meth:`to_dict`.

        Raises:
            ArgumentError: If an entry is unknown, missing or out of range.
        """
        try:
            return cls(**values)
        except TypeError as error:
            expected = "be high, limit and graphs"
            raise ArgumentError("DisagreementProfile", "entries", expected, repr(values)[:60]) from error


def join_reasons(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """For each graph the reasons of two checks together, "" if it passes both."""
    return tuple("; ".join(filter(None, pair)) for pair in zip(first, second, strict=True))
