"""Trainers side by side are one trainer: the same figures, the same state, and a stop stops all of them."""

import threading

import pytest
import torch

from graphcaps.engine import Trainer, TrainingError, stack_replicas
from graphcaps.engine.team import Team, gather_trainer
from graphcaps.nn import HGCN
from tests.engine.test_fit import CONFIG, _graphs, _maker, _replicas

CPU = torch.device("cpu")


def _together(kind: str = "hgcn") -> Trainer:
    graphs = _graphs()
    model = stack_replicas(_maker(kind, 0.3), _replicas())
    return Trainer(model, graphs.as_store(), graphs.x.float(), _replicas(), CONFIG)


def _team(kind: str = "hgcn", threads: int = 2) -> Trainer | Team:
    graphs = _graphs()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return gather_trainer(
            _maker(kind, 0.3), graphs.as_store(), graphs.x.float(), _replicas(), CONFIG, CPU
        )
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
@pytest.mark.parametrize("threads", [2, 3])
def test_a_team_is_one_trainer(kind: str, threads: int) -> None:
    whole, team = _together(kind), _team(kind, threads)
    assert isinstance(team, Team)
    assert [replica.fold for replica in team.replicas] == [replica.fold for replica in _replicas()]
    for _ in range(2):
        one, other = whole.run_epoch(), team.run_epoch()
        assert one.epoch == other.epoch == team.epoch
        for name in ("train_loss", "validation_loss"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=2e-4), name
    mine, theirs = whole.state(), team.state()
    assert {name: value.shape for name, value in mine.items()} == {n: v.shape for n, v in theirs.items()}


def test_one_goes_on_where_the_other_stopped() -> None:
    whole, team = _together(), _team()
    whole.run_epoch()
    team.load_state({name: value.clone() for name, value in whole.state().items()})
    one, other = whole.run_epoch(), team.run_epoch()
    assert other.epoch == 2
    assert one.train_loss == pytest.approx(other.train_loss, abs=2e-4)
    assert all(
        torch.equal(a, b) for a, b in zip(*[[t.state()["adam.steps"]] for t in (whole, team)], strict=True)
    )


def test_the_same_bits_again() -> None:
    states = []
    for _ in range(2):
        team = _team()
        team.run_epoch()
        states.append(team.state())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_an_interrupt_stops_all(monkeypatch: pytest.MonkeyPatch) -> None:
    team = _team()
    assert isinstance(team, Team)
    waiting = threading.Event()
    second = team.trainers[1]
    run = second._steps.run

    def slow(plan: object) -> None:
        waiting.wait(10)  # until the first has failed
        run(plan)  # type: ignore[arg-type]

    def broken(plan: object) -> None:
        raise KeyboardInterrupt

    stop = second.stop

    def told() -> None:
        stop()
        waiting.set()

    monkeypatch.setattr(team.trainers[0]._steps, "run", broken)
    monkeypatch.setattr(second._steps, "run", slow)
    monkeypatch.setattr(second, "stop", told)
    with pytest.raises(KeyboardInterrupt):
        team.run_epoch()
    assert second.epoch == 0  # it did not learn on behind our back
    with pytest.raises(TrainingError, match="stopped"):
        run(second._plan)


def test_one_thread_or_a_trunk_makes_no_team() -> None:
    assert isinstance(_team(threads=1), Trainer)
    graphs = _graphs()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trunk = gather_trainer(
            lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk="sage", lead=lead),
            graphs.as_store(), graphs.x.float(), _replicas(), CONFIG, CPU,
        )  # fmt: skip
    finally:
        torch.set_num_threads(before)
    assert isinstance(trunk, Trainer)
    assert len(trunk.replicas) == 3
