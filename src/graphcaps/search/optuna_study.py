"""Optuna: proposals of its tree-structured Parzen estimator, and its storage of the trials."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from graphcaps._io.optional_imports import require
from graphcaps.errors import MissingExtraError
from graphcaps.registry import Choices
from graphcaps.search.proposals import DRAWS, Refusal, check_draws, never, shared_values
from graphcaps.search.search_space import Domain, SearchSpace, Value, is_whole, rounded
from graphcaps.search.trial import Trial

__all__ = ["TPEProposer", "optuna_installed", "store_trials"]

_STARTUP = 16
"""Trials that are drawn at random before the estimator proposes; in a batch it knows none of the others' losses."""


def optuna_installed() -> bool:
    """Whether Optuna can be imported."""
    try:
        _optuna("Searching")
    except MissingExtraError:
        return False
    return True


class TPEProposer:
    """Proposals of Optuna's tree-structured Parzen estimator, with a penalty for trials of the same batch.

    Args:
        space (SearchSpace): The options.
        shapes (sequence): Options whose values several consecutive proposals of a batch share.
        per_shape (int): Number of these proposals.
        seed (int): Seed of the draws.

    Raises:
        MissingExtraError: If Optuna is not installed.
    """

    def __init__(self, space: SearchSpace, shapes: Sequence[str], per_shape: int, seed: int) -> None:
        self.space, self.shapes, self.per_shape, self.seed = space, tuple(shapes), per_shape, seed
        self._optuna = _optuna("The sampler 'tpe'")

    def propose(
        self,
        trials: Sequence[Trial],
        batch: int,
        count: int,
        first: Mapping[str, Value] | None = None,
        refusal: Refusal = never,
    ) -> list[dict[str, Value]]:
        """As in :class:`graphcaps.search.proposals.Proposer`."""
        optuna = self._optuna
        with _quiet(optuna):
            seed = int(np.random.default_rng([self.seed, batch]).integers(2**32))
            sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=_STARTUP, constant_liar=True, multivariate=False
            )
            study = optuna.create_study(direction="minimize", sampler=sampler)
            distributions = _distributions(optuna, self.space)
            study.add_trials([_frozen(optuna, trial, distributions) for trial in trials])
            proposals: list[dict[str, Value]] = []
            for _ in range(count):
                shared = shared_values(proposals, first, self.shapes, self.per_shape)
                for draw in range(DRAWS):
                    if shared:
                        study.enqueue_trial({name: _parameter(value) for name, value in shared.items()})
                    asked = study.ask(distributions)
                    values = {
                        name: shared[name] if name in shared else _value(domain, asked.params[name])
                        for name, domain in self.space.options.items()
                    }
                    reason = refusal(values)
                    if reason is None:
                        break
                    study.tell(asked, state=optuna.trial.TrialState.FAIL)
                    check_draws(draw, self.space, reason)
                proposals.append(values)
        return proposals


def store_trials(path: Path, name: str, trials: Sequence[Trial], space: SearchSpace) -> None:
    """Adds to a study in a SQLite file those trials that it does not have; ``optuna-dashboard`` opens the file.

    Args:
        path (Path): The file.
        name (str): Name of the study.
        trials (sequence): All trials that are no longer running, in the order of their numbers.
        space (SearchSpace): The options.

    Raises:
        MissingExtraError: If Optuna is not installed.
    """
    optuna = _optuna("Storing trials")
    with _quiet(optuna):
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, direction="minimize", load_if_exists=True
            )
            stored = len(study.get_trials(deepcopy=False))
            distributions = _distributions(optuna, space)
            study.add_trials([_frozen(optuna, trial, distributions) for trial in trials[stored:]])
        finally:
            storage.remove_session()
            storage.engine.dispose()  # open connections would warn when Python ends


def _optuna(purpose: str) -> Any:
    module: ModuleType = require("optuna", extra="tune", purpose=purpose)
    return module


@contextlib.contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """No lines of Optuna about studies and trials, nor its warnings about experimental functions."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)


def _distributions(optuna: Any, space: SearchSpace) -> dict[str, Any]:
    kinds = optuna.distributions
    distributions = {}
    for name, domain in space.options.items():
        if isinstance(domain, Choices):
            choices = [_parameter(cast(Value, value)) for value in domain.values]
            distributions[name] = kinds.CategoricalDistribution(choices)
        elif is_whole(domain):
            distributions[name] = kinds.IntDistribution(int(domain.low), int(domain.high), log=domain.log)
        else:
            distributions[name] = kinds.FloatDistribution(domain.low, domain.high, log=domain.log)
    return distributions


def _parameter(value: Value) -> Any:
    """A value as Optuna stores it: lists as text."""
    return str(list(value)) if isinstance(value, tuple) else value


def _value(domain: Domain, parameter: Any) -> Value:
    if isinstance(domain, Choices):
        return next(cast(Value, v) for v in domain.values if _parameter(cast(Value, v)) == parameter)
    return rounded(domain, parameter)


def _frozen(optuna: Any, trial: Trial, distributions: Mapping[str, Any]) -> Any:
    """A trial that has ended, in Optuna's form: one that was dropped or diverged is pruned."""
    states = optuna.trial.TrialState
    finished = trial.state == "finished"
    return optuna.trial.create_trial(
        state=states.COMPLETE if finished else states.PRUNED,
        value=trial.loss if finished else None,
        params={name: _parameter(value) for name, value in trial.values.items()},
        distributions=dict(distributions),
        intermediate_values={
            epochs: loss if math.isfinite(loss) else math.nan for epochs, loss in trial.losses.items()
        },
        user_attrs={"batch": trial.batch, "state": trial.state, "validation_accuracy": trial.accuracy},
    )
