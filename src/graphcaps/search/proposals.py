"""Proposals: the values of the next trials, from those of the trials so far.

Proposals of a batch are a function of the seed, the number of the batch and the trials before it. A search that is
resumed therefore makes the same proposals as an unbroken one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, cast, get_args

import numpy as np

from graphcaps.errors import ArgumentError, DataError
from graphcaps.registry import Choices
from graphcaps.search.search_space import Domain, SearchSpace, Value, is_whole, rounded
from graphcaps.search.trial import Trial

__all__ = [
    "DRAWS",
    "Proposer",
    "RandomProposer",
    "Refusal",
    "SamplerName",
    "check_draws",
    "check_sampler",
    "never",
    "shared_values",
]

SamplerName = Literal["tpe", "random"]
"""``tpe`` is Optuna's tree-structured Parzen estimator, ``random`` needs no further package."""


Refusal = Callable[[Mapping[str, Value]], str | None]
"""Why values are refused, or ``None``."""
DRAWS = 200
"""Most draws of one proposal."""


def never(values: Mapping[str, Value]) -> None:
    """Refuses no values."""


class Proposer(Protocol):
    """Proposes the trials of a batch."""

    def propose(
        self,
        trials: Sequence[Trial],
        batch: int,
        count: int,
        first: Mapping[str, Value] | None = None,
        refusal: Refusal = never,
    ) -> list[dict[str, Value]]:
        """The values of the next trials.

        Args:
            trials (sequence): All earlier trials, none of them running.
            batch (int): Number of the batch, from 0.
            count (int): Number of trials to propose.
            first (mapping, optional): Values of the first of them. (default: proposed as the others are)
            refusal (callable): Why values are refused, ``None`` if they are not; refused ones are drawn again.
                (default: none are refused)
        """
        ...


class RandomProposer:
    """Draws every option by itself: uniformly, or uniformly on a logarithmic scale.

    Args:
        space (SearchSpace): The options.
        shapes (sequence): Options whose values several consecutive proposals of a batch share.
        per_shape (int): Number of these proposals.
        seed (int): Seed of the draws.
    """

    def __init__(self, space: SearchSpace, shapes: Sequence[str], per_shape: int, seed: int) -> None:
        self.space, self.shapes, self.per_shape, self.seed = space, tuple(shapes), per_shape, seed

    def propose(
        self,
        trials: Sequence[Trial],
        batch: int,
        count: int,
        first: Mapping[str, Value] | None = None,
        refusal: Refusal = never,
    ) -> list[dict[str, Value]]:
        """As in :class:`Proposer`; earlier trials change nothing."""
        generator = np.random.default_rng([self.seed, batch])
        proposals: list[dict[str, Value]] = []
        for _ in range(count):
            shared = shared_values(proposals, first, self.shapes, self.per_shape)
            for draw in range(DRAWS):
                values = {name: _draw(domain, generator) for name, domain in self.space.options.items()}
                values |= shared
                reason = refusal(values)
                if reason is None:
                    break
                check_draws(draw, self.space, reason)
            proposals.append(values)
        return proposals


def shared_values(
    proposals: Sequence[Mapping[str, Value]],
    first: Mapping[str, Value] | None,
    shapes: Sequence[str],
    per_shape: int,
) -> dict[str, Value]:
    """Values that the next proposal of a batch does not draw: those of the start, or the shapes of its group.

    Args:
        proposals (sequence): Proposals of the batch so far.
        first (mapping, optional): Values of the first proposal, if they are given.
        shapes (sequence): Options that change shapes.
        per_shape (int): Number of consecutive proposals with the same shapes.
    """
    number = len(proposals)
    if number == 0 and first is not None:
        return dict(first)
    if number % per_shape == 0:
        return {}
    leader = proposals[number - number % per_shape]
    return {name: leader[name] for name in shapes}


def check_draws(draw: int, space: SearchSpace, reason: str) -> None:
    """Rejects a space whose values are refused at every draw of a proposal.

    Args:
        draw (int): Number of the draw, from 0.
        space (SearchSpace): The options.
        reason (str): Why its values were refused.

    Raises:
        DataError: If this was the last draw.
    """
    if draw == DRAWS - 1:
        raise DataError(
            space.source, f"{DRAWS} proposals in a row are refused, the last one because {reason}"
        )


def check_sampler(name: str) -> SamplerName:
    """The name of a sampler.

    Raises:
        ArgumentError: If there is none of that name.
    """
    if name not in get_args(SamplerName):
        raise ArgumentError("tune", "sampler", f"be one of {', '.join(get_args(SamplerName))}", repr(name))
    return cast(SamplerName, name)


def _draw(domain: Domain, generator: np.random.Generator) -> Value:
    share = float(generator.random())  # one number per option, whatever its kind
    if isinstance(domain, Choices):
        return cast(Value, domain.values[int(share * len(domain.values))])
    low, high = float(domain.low), float(domain.high)
    if is_whole(domain):  # every whole number has an interval of length 1 around it
        low, high = low - 0.5, high + 0.5
    if domain.log:
        return rounded(domain, math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
    return rounded(domain, low + share * (high - low))
