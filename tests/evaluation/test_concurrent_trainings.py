"""Concurrent trainings: in sequence on a CPU; on a GPU each equals the same training alone."""

from __future__ import annotations

import sys
import threading
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from graphcaps import load_dataset
from graphcaps.config import RunConfig
from graphcaps.evaluation import Ledger, cross_validate
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.nn import HGCN
from graphcaps.presets import load_preset
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
def test_24_short_trainings_eight_at_a_time_equal_single_ones(shared_data: Path) -> None:
    """More streams than torch has: each training captures while others, of other lengths, replay, end and start."""
    names = ("MUTAG", "PTC_MR", "IMDB-BINARY", "ENZYMES", "PROTEINS", "IMDB-MULTI")
    stores = {name: load_dataset(name, shared_data) for name in names}
    tasks = []
    for number in range(24):
        name = names[number % len(names)]
        protocol: Literal["paper", "held-out"] = "paper" if number % 2 else "held-out"
        config = load_preset("paper", name).with_training(
            epochs=2 + number % 3, learning_rate=0.0005 * (1 + number)
        )
        tasks.append(partial(cross_validate, stores[name], config, protocol=protocol, device="cuda"))
    alone = list(run_concurrently(tasks, 1, torch.device("cuda")))
    for _ in range(3):
        together = list(run_concurrently(tasks, 8, torch.device("cuda")))
        for one, other in zip(alone, together, strict=True):
            assert_same_records(one, other)
