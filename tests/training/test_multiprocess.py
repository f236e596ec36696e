"""Trainers side by side are one trainer: the same figures, the same state, and a stop stops all of them."""

import math
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.nn import HGCN
from graphcaps.training import Trainer, TrainingError, stack_replicas
from graphcaps.training.memory import is_out_of_memory
from graphcaps.training.multiprocess import ProcessPoolTrainer, make_trainer
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def _together(kind: str = "hgcn", config: TrainConfig = CONFIG) -> Trainer:
    graphs = _graphs()
    model = stack_replicas(_maker(kind, 0.3), _replicas())
    return Trainer(model, graphs.as_store(), graphs.x.float(), _replicas(), config)


def _team(kind: str = "hgcn", threads: int = 2, config: TrainConfig = CONFIG) -> Trainer | ProcessPoolTrainer:
    graphs = _graphs()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return make_trainer(_maker(kind, 0.3), graphs.as_store(), graphs.x.float(), _replicas(), config, CPU)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
@pytest.mark.parametrize("threads", [2, 3, 9])
def test_a_team_is_one_trainer(kind: str, threads: int) -> None:
    whole, team = _together(kind), _team(kind, threads)
    assert isinstance(team, ProcessPoolTrainer)
    assert [replica.fold for replica in team.replicas] == [replica.fold for replica in _replicas()]
    for _ in range(2):
        one, other = whole.run_epoch(), team.run_epoch()
        assert one.epoch == other.epoch == team.epoch
        for name in ("train_loss", "validation_loss"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=2e-4), name
    mine, theirs = whole.state(), team.state()
    assert {name: value.shape for name, value in mine.items()} == {n: v.shape for n, v in theirs.items()}


@pytest.mark.parametrize("average_epochs", [1, 3])
def test_one_goes_on_where_the_other_stopped(average_epochs: int) -> None:
    config = replace(CONFIG, average_epochs=average_epochs)
    whole, team = _together(config=config), _team(config=config)
    for _ in range(2):  # after one epoch the mean is the last weights
        whole.run_epoch()
    team.load_state({name: value.clone() for name, value in whole.state().items()})
    one, other = whole.run_epoch(), team.run_epoch()
    assert other.epoch == 3
    assert one.train_loss == pytest.approx(other.train_loss, abs=2e-4)
    assert one.validation_loss == pytest.approx(other.validation_loss, abs=2e-4, nan_ok=True)
    assert torch.equal(whole.state()["adam.steps"], team.state()["adam.steps"])
    again = _together(config=config)  # and back again
    again.load_state(team.state())
    assert again.run_epoch().train_loss == pytest.approx(whole.run_epoch().train_loss, abs=4e-4)


def test_the_same_bits_again() -> None:
    states = []
    for _ in range(2):
        team = _team()
        team.run_epoch()
        states.append(team.state())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


class _Interrupted:
    """The end of a pipe at which Ctrl-C is pressed."""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)

    def recv(self) -> Any:
        raise KeyboardInterrupt


def test_an_interrupt_stops_all() -> None:
    team = _team()
    assert isinstance(team, ProcessPoolTrainer)
    processes = [worker for worker, _ in team._workers]
    assert all(worker.is_alive() for worker in processes)
    worker, pipe = team._workers[0]
    team._workers[0] = (worker, _Interrupted(pipe))  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        team.run_epoch()
    assert not any(worker.is_alive() for worker in processes)


def test_a_worker_that_fails_says_why() -> None:
    team = _team()
    state = team.state()
    state["model.decoder.bias"][2] = float("nan")  # of the last replica, in the second process
    team.load_state(state)
    with pytest.raises(TrainingError, match=r"stopped in epoch 1: the reconstruction loss is not a number\."):
        team.run_epoch()


def test_a_worker_that_the_system_ends_is_out_of_memory() -> None:
    team = _team()
    assert isinstance(team, ProcessPoolTrainer)
    team._workers[1][0].kill()
    with pytest.raises(MemoryError, match="ended by the system") as raised:
        team.run_epoch()
    assert is_out_of_memory(raised.value)


def test_what_fails_while_it_is_built_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_: Any, **__: Any) -> Any:
        return torch.empty(1 << 60)

    monkeypatch.setattr("graphcaps.training.multiprocess.Trainer", no_room)
    with pytest.raises(MemoryError):
        _team()


def test_workers_end_with_their_team() -> None:
    team = _team()
    assert isinstance(team, ProcessPoolTrainer)
    processes = [worker for worker, _ in team._workers]
    team.close()
    assert not any(worker.is_alive() for worker in processes)


def test_a_part_without_validation_counts_as_not_a_number() -> None:
    graphs, none = _graphs(), torch.empty(0, dtype=torch.long)
    replicas = [
        replace(replica, validation=none) if f == 0 else replica for f, replica in enumerate(_replicas())
    ]
    team = ProcessPoolTrainer(
        lambda part: Trainer(
            stack_replicas(_maker("gin", 0.0), part), graphs.as_store(), graphs.x.float(), part, CONFIG
        ),
        [replicas[:1], replicas[1:]],
        CONFIG,
    )
    found = team.run_epoch().validation_loss
    assert len(found) == 3
    assert math.isnan(found[0])
    assert not math.isnan(found[1])


def test_one_thread_or_a_trunk_makes_no_team() -> None:
    assert isinstance(_team(threads=1), Trainer)
    graphs = _graphs()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        trunk = make_trainer(
            lambda lead: HGCN(5, 2, capsule_dim=8, num_capsules=(4,), trunk="sage", lead=lead),
            graphs.as_store(), graphs.x.float(), _replicas(), CONFIG, CPU,
        )  # fmt: skip
    finally:
        torch.set_num_threads(before)
    assert isinstance(trunk, Trainer)
    assert len(trunk.replicas) == 3
