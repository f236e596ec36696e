"""Concurrent trainings: in sequence on a CPU; on a GPU each equals the same training alone."""

from __future__ import annotations

import sys
import threading
from dataclasses import fields
from functools import partial

import numpy as np
import pytest
import torch

from graphcaps import load_dataset
from graphcaps.config import RunConfig
from graphcaps.evaluation import Ledger, cross_validate
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.nn import HGCN
from graphcaps.training import Replica, stack_replicas

CPU = torch.device("cpu")


def test_tasks_run_in_sequence_on_a_cpu() -> None:
    seen = []

    def task(number: int) -> int:
        seen.append((number, threading.current_thread() is threading.main_thread()))
        return number * number

    assert list(run_concurrently([partial(task, n) for n in range(4)], 3, CPU)) == [0, 1, 4, 9]
    assert seen == [(n, True) for n in range(4)]


def test_exceptions_of_tasks_are_raised() -> None:
    def wrong() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(run_concurrently([wrong, wrong], 2, CPU))


def test_weights_are_initialized_by_one_thread_at_a_time() -> None:
    """torch has one generator for all threads; a model is what its seed says, whoever else draws."""
    none = torch.empty(0, dtype=torch.long)
    replicas = [Replica(torch.arange(3), none, none, seed=seed) for seed in range(3)]
    make = partial(HGCN, 5, 2, capsule_dim=16, num_capsules=4)
    expected = stack_replicas(lambda lead: make(lead=lead), replicas).state_dict()
    found: list[dict[str, torch.Tensor]] = []

    def draw() -> None:
        found.append(stack_replicas(lambda lead: make(lead=lead), replicas).state_dict())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=draw) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    for state in found:
        assert all(torch.equal(value, expected[name]) for name, value in state.items())


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def assert_same_records(mine: Ledger, theirs: Ledger) -> None:
    for one, other in zip(mine.records, theirs.records, strict=True):
        for entry in fields(one.curves):
            expected, curve = (getattr(curves, entry.name) for curves in (one.curves, other.curves))
            assert np.array_equal(curve, expected), entry.name


@pytest.mark.gpu
@gpu
def test_concurrent_trainings_on_a_gpu_equal_single_ones() -> None:
    store = load_dataset("planted-parts")[:120]
    config = RunConfig(model_arguments={"num_capsules": (6,)}).with_training(epochs=4, batch_size=16)
    tasks = [
        partial(cross_validate, store, config.with_training(learning_rate=rate), folds=3, device="cuda")
        for rate in (0.001, 0.002, 0.003)
    ]
    alone = list(run_concurrently(tasks, 1, torch.device("cuda")))
    together = list(run_concurrently(tasks, 3, torch.device("cuda")))
    for one, other in zip(alone, together, strict=True):
        assert_same_records(one, other)


@pytest.mark.gpu
@gpu
def test_many_short_trainings_eight_at_a_time_equal_single_ones() -> None:
    """More trainings than torch has streams, of unequal length: each captures while others replay, end and start."""
    graphs = load_dataset("planted-parts")
    stores = [graphs[:size] for size in (60, 90, 150, 300)]
    tasks = []
    for number in range(24):
        store = stores[number % len(stores)]
        config = RunConfig(model_arguments={"num_capsules": (4 + number % 3,), "capsule_dim": 32})
        config = config.with_training(
            epochs=2 + number % 4, batch_size=16, learning_rate=0.001 * (1 + number)
        )
        tasks.append(partial(cross_validate, store, config, folds=3, protocol="both", device="cuda"))
    alone = list(run_concurrently(tasks, 1, torch.device("cuda")))
    for _ in range(3):
        together = list(run_concurrently(tasks, 8, torch.device("cuda")))
        for one, other in zip(alone, together, strict=True):
            assert_same_records(one, other)
