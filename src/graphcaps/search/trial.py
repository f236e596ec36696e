"""Trials of a search: what was proposed, how far it was trained, and its validation losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from graphcaps.errors import DataError
from graphcaps.search.search_space import SearchSpace, Value

__all__ = ["Trial", "TrialState", "best_trial", "trial_from_dict"]

TrialState = Literal["running", "finished", "dropped", "diverged"]
"""``dropped`` trials were among the worst at a rung; the loss of a ``diverged`` one is not a number."""
_STATES = ("running", "finished", "dropped", "diverged")


@dataclass(frozen=True)
class Trial:
    """One configuration of a search.

    Args:
        number (int): Number of the trial, from 0.
        batch (int): Number of the batch that it was proposed in, from 0.
        values (dict): Value of each option of the space.
        state (str): ``"running"``, ``"finished"``, ``"dropped"`` or ``"diverged"``. (default: "running")
        losses (dict): Validation loss by the number of epochs after which it was measured, the mean over folds.
        fold_losses (tuple): Validation loss of each fold after the last of these epochs.
        accuracy (float, optional): Validation accuracy at the selected epochs, the mean over folds, from 0 to 1.
        seconds (float): Its share of the training time. (default: 0)
    """

    number: int
    batch: int
    values: Mapping[str, Value]
    state: TrialState = "running"
    losses: Mapping[int, float] = field(default_factory=dict)
    fold_losses: tuple[float, ...] = ()
    accuracy: float | None = None
    seconds: float = 0.0

    @property
    def epochs(self) -> int:
        """Number of epochs that it was judged after; 0 if it was not judged yet."""
        return max(self.losses, default=0)

    @property
    def loss(self) -> float:
        """Validation loss after the last of these epochs; infinite if there is none, or it is not a number."""
        value = self.losses.get(self.epochs, math.inf)
        return value if math.isfinite(value) else math.inf

    def as_dict(self) -> dict[str, Any]:
        """A JSON-safe dictionary that :func:`trial_from_dict` reads; a loss that is not a number is ``None``."""
        return {
            "number": self.number,
            "batch": self.batch,
            "state": self.state,
            "values": {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in self.values.items()
            },
            "losses": {str(epochs): _finite(loss) for epochs, loss in self.losses.items()},
            "fold_losses": [_finite(loss) for loss in self.fold_losses],
            "accuracy": self.accuracy,
            "seconds": round(self.seconds, 3),
        }


def trial_from_dict(values: Mapping[str, Any], space: SearchSpace, where: str) -> Trial:
    """Reads what :meth:`Trial.as_dict` wrote.

    Raises:
        DataError: If an entry is missing or has the wrong type.
    """
    try:
        options = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values["values"].items()
        }
        if set(options) != set(space.options) or values["state"] not in _STATES:
            raise KeyError
        return Trial(
            int(values["number"]),
            int(values["batch"]),
            options,
            values["state"],
            {int(epochs): _number(loss) for epochs, loss in values["losses"].items()},
            tuple(_number(loss) for loss in values["fold_losses"]),
            None if values["accuracy"] is None else float(values["accuracy"]),
            float(values["seconds"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(where, "trials as graphcaps writes them", "something else") from error


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """The finished trial of lowest validation loss, the earliest of equal ones.

    If none is finished, the best of those that were trained longest; ``None`` if no trial has a loss yet.
    """
    judged = [trial for trial in trials if math.isfinite(trial.loss)]
    if not judged:
        return None
    longest = max(trial.epochs for trial in judged)
    return min(
        (trial for trial in judged if trial.epochs == longest), key=lambda trial: (trial.loss, trial.number)
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any) -> float:
    return math.inf if value is None else float(value)
