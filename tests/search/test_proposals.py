"""Proposals: inside the space, of few shapes, and the same for the same seed, batch and earlier trials."""

import math
import sqlite3
import sys
from pathlib import Path

import pytest

from graphcaps.errors import ArgumentError, DataError, MissingExtraError
from graphcaps.registry import Choices, Interval
from graphcaps.search import Search, SearchSpace, Trial
from graphcaps.search.optuna_study import TPEProposer, store_trials
from graphcaps.search.proposals import Proposer, RandomProposer, check_sampler
from graphcaps.search.search_space import contains
from tests.search.searches import CONFIG, OPTIONS, graphs

SPACE = SearchSpace(
    {
        "training.learning_rate": Interval(1e-4, 1e-1, log=True),
        "training.halve_every": Interval(3, 5),
        "model.dropout": Interval(0.0, 0.7),
        "model.num_capsules": Choices(((2,), (4,), (4, 2))),
    }
)
KINDS = [pytest.param(RandomProposer, id="random"), pytest.param(TPEProposer, id="tpe")]


def _proposer(kind: type[RandomProposer | TPEProposer], seed: int = 0) -> Proposer:
    return kind(SPACE, ["model.num_capsules"], 4, seed)


def _trials(proposer: Proposer, count: int = 20) -> list[Trial]:
    """Trials whose loss is lowest at a learning rate of 0.01; some dropped, one diverged."""
    trials = []
    for number, values in enumerate(proposer.propose([], 0, count)):
        loss = abs(math.log10(float(values["training.learning_rate"])) + 2)  # type: ignore[arg-type]
        if number == 3:
            trials.append(Trial(number, 0, values, "diverged", {3: math.inf}))
        elif loss > 1:
            trials.append(Trial(number, 0, values, "dropped", {3: loss}))
        else:
            trials.append(Trial(number, 0, values, "finished", {3: loss + 0.1, 9: loss}))
    return trials


@pytest.mark.parametrize("kind", KINDS)
def test_proposals_are_in_the_space_and_share_shapes(kind: type[RandomProposer]) -> None:
    proposer = _proposer(kind)
    first = {
        "training.learning_rate": 0.001, "training.halve_every": 4, "model.dropout": 0.0,
        "model.num_capsules": (4, 2),
    }  # fmt: skip
    proposals = proposer.propose([], 0, 10, first)
    assert proposals[0] == first
    for values in proposals:
        assert [*values] == [*SPACE.options]
        assert all(contains(SPACE.options[name], value) for name, value in values.items()), values
    shapes = [values["model.num_capsules"] for values in proposals]
    assert shapes[:4] == [(4, 2)] * 4
    assert len(set(shapes[4:8])) == len(set(shapes[8:])) == 1
    assert len({values["training.learning_rate"] for values in proposals}) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_proposals_follow_from_seed_batch_and_trials(kind: type[RandomProposer]) -> None:
    trials = _trials(_proposer(kind))
    second = _proposer(kind).propose(trials, 1, 8)
    assert _proposer(kind).propose(trials, 1, 8) == second
    assert _proposer(kind, seed=1).propose(trials, 1, 8) != second
    assert _proposer(kind).propose(trials, 2, 8) != second
    if kind is TPEProposer:
        assert _proposer(kind).propose(trials[:18], 1, 8) != second


def test_the_estimator_goes_where_losses_are_low() -> None:
    proposer = _proposer(TPEProposer)
    trials = _trials(proposer, 40)
    rates = [float(v["training.learning_rate"]) for v in proposer.propose(trials, 1, 16)]  # type: ignore[arg-type]
    assert sum(1e-3 < rate < 0.1 for rate in rates) >= 12


def test_whole_numbers_and_choices_are_drawn_evenly() -> None:
    values = RandomProposer(SPACE, [], 1, 0).propose([], 0, 900)
    for name, kinds in (("training.halve_every", 3), ("model.num_capsules", 3)):
        drawn = [each[name] for each in values]
        assert sorted(set(drawn)) == sorted({*drawn})
        assert all(240 < drawn.count(value) < 360 for value in set(drawn))
        assert len(set(drawn)) == kinds


def test_the_storage_is_a_study_of_optuna(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    trials, path = _trials(_proposer(RandomProposer)), tmp_path / "study.db"
    store_trials(path, "one", trials[:5], SPACE)
    store_trials(path, "one", trials, SPACE)
    store_trials(path, "one", trials, SPACE)
    assert sqlite3.connect(path).execute("select count(*) from trials").fetchone() == (20,)
    study = optuna.load_study(study_name="one", storage=f"sqlite:///{path}")
    assert [trial.params["model.dropout"] for trial in study.trials] == [
        trial.values["model.dropout"] for trial in trials
    ]
    best = min((trial for trial in trials if trial.state == "finished"), key=lambda trial: trial.loss)
    assert study.best_trial.number == best.number
    assert study.best_trial.intermediate_values == best.losses
    assert study.trials[3].state == optuna.trial.TrialState.PRUNED


def test_without_optuna_the_message_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"?'?graphcaps\[tune\]"):
        _proposer(TPEProposer)
    assert _proposer(RandomProposer).propose([], 0, 2)


def test_an_unknown_sampler_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'sampler' must be one of tpe, random, got 'grid'"):
        check_sampler("grid")


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_values_that_the_model_refuses_are_drawn_again(sampler: str) -> None:
    if sampler == "tpe":
        pytest.importorskip("optuna")
    space = {"model": {"capsule_dim": {"low": 4, "high": 8}}}
    options = OPTIONS | {"space": space, "trials": 12, "batch": 12, "per_shape": 1, "sampler": sampler}
    search = Search(graphs(), CONFIG, **options)  # odd lengths are refused beside two factors
    lengths = [trial.values["model.capsule_dim"] for trial in search._propose()]
    assert set(lengths) == {4, 6, 8}
    again = Search(graphs(), CONFIG, **options)
    assert [trial.values["model.capsule_dim"] for trial in again._propose()] == lengths


def test_a_space_whose_values_are_always_refused_ends_the_search() -> None:
    space = SearchSpace({"model.dropout": Interval(0.0, 0.5)}, "mine.toml")
    with pytest.raises(DataError, match=r"mine\.toml: 200 proposals in a row are refused.*too small\."):
        RandomProposer(space, (), 1, 0).propose([], 0, 1, refusal=lambda values: "it is too small")
