"""A pool of processes equals one trainer: same metrics, same state; errors and interrupts end all processes."""

import math
import os
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.training import Replica, Trainer, TrainingError, multiprocess, stack_replicas
from graphcaps.training.memory import is_out_of_memory
from graphcaps.training.multiprocess import (
    ProcessPoolTrainer,
    TrainerFactory,
    _backward_works_in_a_fork,
    _start_method,
    make_trainer,
)
from graphcaps.training.replicas import copy_replicas_, slice_replicas
from tests.training.test_trainer import CONFIG, _graphs, _maker, _replicas

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="worker processes are used on Linux only")


def _together(
    kind: str = "hgcn", config: TrainConfig = CONFIG, dtype: torch.dtype = torch.float32
) -> Trainer:
    graphs = _graphs()
    model = stack_replicas(_maker(kind, 0.3), _replicas(), dtype)
    return Trainer(model, graphs.as_store(), graphs.x.to(dtype), _replicas(), config)


def _pool(
    kind: str = "hgcn", threads: int = 2, config: TrainConfig = CONFIG, dtype: torch.dtype = torch.float32
) -> Trainer | ProcessPoolTrainer:
    graphs = _graphs()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        build = TrainerFactory(_maker(kind, 0.3), graphs.as_store(), graphs.x.to(dtype), config, CPU)
        return make_trainer(build, _replicas())
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["hgcn", "gin"])
@pytest.mark.parametrize("threads", [2, 3, 9])
def test_a_pool_equals_one_trainer(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # In float64: products of one and of several replicas are rounded differently, and Adam makes a step of the learning
    # rate from a gradient that is rounding alone, as that of an element before a BatchNorm. Workers inherit the patch.
    dtype = torch.float64
    monkeypatch.setattr(multiprocess, "stack_replicas", partial(stack_replicas, dtype=dtype))
    single, pool = _together(kind, dtype=dtype), _pool(kind, threads, dtype=dtype)
    assert isinstance(pool, ProcessPoolTrainer)
    assert [replica.fold for replica in pool.replicas] == [replica.fold for replica in _replicas()]
    for _ in range(2):
        one, other = single.run_epoch(), pool.run_epoch()
        assert one.epoch == other.epoch == pool.epoch
        for name in ("train_loss", "validation_loss"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-9), name
    expected, actual = single.state(), pool.state()
    assert {name: value.shape for name, value in expected.items()} == {n: v.shape for n, v in actual.items()}
    for name, value in expected.items():
        if value.is_floating_point():
            torch.testing.assert_close(actual[name], value, rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize("kind", ["hgcn", "gin", "hgcn, sage"])
def test_a_process_per_replica_equals_single_trainers_bit_by_bit(kind: str) -> None:
    pool = _pool(kind, threads=3)
    for _ in range(2):
        pool.run_epoch()
    actual = {name: value for name, value in pool.state().items() if name != "epoch"}
    pool.close()
    graphs, threads = _graphs(), torch.get_num_threads()
    torch.set_num_threads(1)  # as in a worker
    try:
        for f, replica in enumerate(_replicas()):
            model = stack_replicas(_maker(kind, 0.3), [replica])
            alone = Trainer(model, graphs.as_store(), graphs.x.float(), [replica], CONFIG)
            for _ in range(2):
                alone.run_epoch()
            expected = alone.state()
            for name, value in slice_replicas(actual, f, f + 1).items():
                assert torch.equal(value, expected[name]), name
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("average_epochs", [1, 3])
def test_states_are_interchangeable_with_one_trainer(average_epochs: int) -> None:
    config = replace(CONFIG, average_epochs=average_epochs)
    single, pool = _together(config=config), _pool(config=config)
    for _ in range(2):  # after one epoch the average equals the weights
        single.run_epoch()
    pool.load_state({name: value.clone() for name, value in single.state().items()})
    one, other = single.run_epoch(), pool.run_epoch()
    assert other.epoch == 3
    assert one.train_loss == pytest.approx(other.train_loss, abs=2e-4)
    assert one.validation_loss == pytest.approx(other.validation_loss, abs=2e-4, nan_ok=True)
    assert torch.equal(single.state()["adam.steps"], pool.state()["adam.steps"])
    again = _together(config=config)  # and back again
    again.load_state(pool.state())
    assert again.run_epoch().train_loss == pytest.approx(single.run_epoch().train_loss, abs=4e-4)


def test_training_twice_gives_identical_states() -> None:
    states = []
    for _ in range(2):
        pool = _pool()
        pool.run_epoch()
        states.append(pool.state())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


class _Interrupted:
    """A pipe whose ``recv`` raises KeyboardInterrupt, as Ctrl-C does."""

    def __init__(self, pipe: Any) -> None:
        self.pipe = pipe

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)

    def recv(self) -> Any:
        raise KeyboardInterrupt


def test_an_interrupt_ends_all_workers() -> None:
    pool = _pool()
    assert isinstance(pool, ProcessPoolTrainer)
    processes = [worker for worker, _ in pool._workers]
    assert all(worker.is_alive() for worker in processes)
    worker, pipe = pool._workers[0]
    pool._workers[0] = (worker, _Interrupted(pipe))  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        pool.run_epoch()
    assert not any(worker.is_alive() for worker in processes)


def test_the_error_of_a_worker_is_raised() -> None:
    pool = _pool()
    state = pool.state()
    state["model.decoder.bias"][2] = float("nan")  # of the last replica, in the second process
    pool.load_state(state)
    with pytest.raises(TrainingError, match=r"stopped in epoch 1: the reconstruction loss is not a number\."):
        pool.run_epoch()


def test_a_killed_worker_is_reported_as_out_of_memory() -> None:
    pool = _pool()
    assert isinstance(pool, ProcessPoolTrainer)
    pool._workers[1][0].kill()
    with pytest.raises(MemoryError, match="killed by the operating system") as raised:
        pool.run_epoch()
    assert is_out_of_memory(raised.value)
    with pytest.raises(MemoryError, match="the training processes have ended"):
        pool.state()


def _exhaust_memory(_: list[Replica]) -> Any:
    return torch.empty(1 << 60)


def test_an_error_while_building_is_raised() -> None:
    with pytest.raises(MemoryError):
        ProcessPoolTrainer(_exhaust_memory, [_replicas()[:1]], CONFIG, _start_method())


def test_close_ends_the_workers() -> None:
    pool = _pool()
    assert isinstance(pool, ProcessPoolTrainer)
    processes = [worker for worker, _ in pool._workers]
    pool.close()
    assert not any(worker.is_alive() for worker in processes)


def test_replicas_without_validation_graphs_have_nan_metrics() -> None:
    graphs, none = _graphs(), torch.empty(0, dtype=torch.long)
    replicas = [
        replace(replica, validation=none) if f == 0 else replica for f, replica in enumerate(_replicas())
    ]
    build = TrainerFactory(_maker("gin", 0.0), graphs.as_store(), graphs.x.float(), CONFIG, CPU)
    pool = ProcessPoolTrainer(build, [replicas[:1], replicas[1:]], CONFIG, _start_method())
    losses = pool.run_epoch().validation_loss
    assert len(losses) == 3
    assert math.isnan(losses[0])
    assert not math.isnan(losses[1])


def test_one_thread_uses_one_process() -> None:
    assert isinstance(_pool(threads=1), Trainer)


@pytest.mark.parametrize("kind", ["hgcn", "hgcn, sage"])
def test_weights_are_kept_in_the_processes(kind: str) -> None:
    """By replicas of any process; the states of a pool and of one trainer are interchangeable."""
    pool, single = _pool(kind), _together(kind)
    assert pool.kept() == {} == single.kept()
    for replicas in ([0, 1, 2], [2], [0, 1]):
        pool.run_epoch()
        single.load_state(pool.state())
        expected, present = pool.kept() or pool.weights(), pool.weights()
        copy_replicas_(expected, present, replicas)
        pool.keep(replicas)
        single.keep(replicas)
        for kept in (pool.kept(), single.kept()):
            assert kept.keys() == present.keys()
            assert all(torch.equal(value, expected[name]) for name, value in kept.items())
    again = _pool(kind)
    again.load_state(single.state())
    assert all(torch.equal(value, expected[name]) for name, value in again.kept().items())
    again.close()
    pool.close()


@pytest.mark.slow
def test_spawned_workers_equal_forked_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = _pool("gin")
    monkeypatch.setattr("graphcaps.training.multiprocess._start_method", lambda: "spawn")
    spawned = _pool("gin")
    assert isinstance(spawned, ProcessPoolTrainer)
    assert spawned.run_epoch().train_loss == forked.run_epoch().train_loss
    state = forked.state()
    assert all(torch.equal(value, state[name]) for name, value in spawned.state().items())
    forked.close()
    spawned.close()


def test_a_model_that_cannot_be_pickled_trains_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcaps.training.multiprocess._start_method", lambda: "spawn")
    graphs, before = _graphs(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        build = TrainerFactory(
            lambda lead: _maker("gin", 0.0)(lead), graphs.as_store(), graphs.x.float(), CONFIG, CPU
        )
        trainer = make_trainer(build, _replicas())
    finally:
        torch.set_num_threads(before)
    assert isinstance(trainer, Trainer)


def _end_at_once(_: list[Replica]) -> Any:
    os._exit(3)


def test_a_worker_that_does_not_start_is_reported() -> None:
    with pytest.raises(TrainingError, match="ended while it was started"):
        ProcessPoolTrainer(_end_at_once, [_replicas()[:1]], CONFIG, "spawn")


@pytest.mark.parametrize(
    ("available", "initialised", "fork_works", "expected"),
    [
        (False, False, False, "fork"),
        (True, True, True, "spawn"),
        (True, False, True, "fork"),
        (True, False, False, "spawn"),
    ],
)
def test_the_start_method_depends_on_cuda(
    monkeypatch: pytest.MonkeyPatch, available: bool, initialised: bool, fork_works: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialised)
    monkeypatch.setattr("graphcaps.training.multiprocess._backward_works_in_a_fork", lambda: fork_works)
    assert _start_method() == expected


def test_after_a_backward_pass_forking_works_only_without_a_gpu() -> None:
    torch.ones(1, requires_grad=True).sum().backward()
    assert _backward_works_in_a_fork() is not torch.cuda.is_available()
