"""Restarts: several trainings of one run with different seeds, of which the validation graphs choose one to keep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from graphcaps.config import MAX_MEMBERS
from graphcaps.errors import ArgumentError
from graphcaps.metrics import METRIC_TITLES, SelectionMetric
from graphcaps.training.early_stopping import WINDOW

__all__ = ["Restarts", "check_restarts"]


@dataclass(frozen=True)
class Restarts:
    """The finished trainings of a run with restarts.

    Args:
        seeds (tuple): Seed of each training.
        epochs (tuple): Epoch that each of them keeps, counted from 1.
        values (tuple): Criterion of each of them at that epoch; a value that is not a number is never the best.
        rule (str): What the criterion is, such as "lowest block loss on the validation graphs".
        is_loss (bool): Whether the lowest value is the best, and not the highest.
    """

    seeds: tuple[int, ...]
    epochs: tuple[int, ...]
    values: tuple[float, ...]
    rule: str
    is_loss: bool

    @classmethod
    def by_block_loss(
        cls, seeds: tuple[int, ...], epochs: tuple[int, ...], losses: tuple[float, ...]
    ) -> Restarts:
        """By the loss of parts (:func:`graphcaps.nn.block_loss`), of a model with ``parts="blocks"``.

        Classes say little about parts: trainings that classify all validation graphs may find different parts.
        """
        return cls(seeds, epochs, losses, "lowest block loss on the validation graphs", is_loss=True)

    @classmethod
    def by_metric(
        cls,
        seeds: tuple[int, ...],
        epochs: tuple[int, ...],
        criteria: tuple[float, ...],
        metric: SelectionMetric,
        num_epochs: int,
    ) -> Restarts:
        """By what selects the epoch.

        Args:
            seeds, epochs (tuple): As above.
            criteria (tuple): ``BestWeights.criteria``: the validation loss, or one minus the metric.
            metric (str): Metric that selects the epoch.
            num_epochs (int): Number of epochs of the training, of which the last ones are averaged.
        """
        is_loss = metric == "loss"
        values = criteria if is_loss else tuple(1 - value for value in criteria)
        window = min(WINDOW, num_epochs)
        averaged = f", mean of the last {window} epochs" if window > 1 else ""
        rule = f"{'lowest' if is_loss else 'highest'} validation {METRIC_TITLES[metric]}{averaged}"
        return cls(seeds, epochs, values, rule, is_loss)

    @property
    def kept(self) -> int:
        """Index of the training that is kept; the first of equals."""
        sign = 1 if self.is_loss else -1
        order = [sign * value if math.isfinite(value) else math.inf for value in self.values]
        return order.index(min(order))

    def describe(self) -> dict[str, Any]:
        """The entry ``restarts`` of a training record, JSON-safe."""
        runs = zip(self.seeds, self.epochs, self.values, strict=True)
        return {
            "count": len(self.seeds),
            "kept_seed": self.seeds[self.kept],
            "rule": self.rule,
            "runs": [
                {"seed": seed, "epoch": epoch, "criterion": value if math.isfinite(value) else None}
                for seed, epoch, value in runs
            ],
        }


def check_restarts(
    restarts: int,
    members: int,
    *,
    owner: str = "train",
    name: str = "restarts",
    single: str = "members=1",
    members_of: str = "",
) -> None:
    """Refuses a number of restarts that is no whole number from 1 on, and restarts of a committee.

    Args:
        restarts (int): Number of trainings of which one is kept.
        members (int): Number of members of a committee.
        owner, name (str): Owner and argument that messages name. (default: "train" and "restarts")
        single (str): How the user turns the committee into a single model. (default: "members=1")
        members_of (str): Where the members come from, such as " of the preset 'best'". (default: not said)

    Raises:
        ArgumentError: If they cannot be trained.
    """
    if type(restarts) is not int or not 1 <= restarts <= MAX_MEMBERS:
        raise ArgumentError(owner, name, f"be a whole number from 1 to {MAX_MEMBERS:,}", restarts)
    if restarts > 1 and members > 1:
        expected = "be 1 with a committee, which keeps all of its members"
        fix = f"Set {single} to keep one of {restarts} models."
        raise ArgumentError(owner, name, expected, f"{restarts} with {members} members{members_of}", fix)
