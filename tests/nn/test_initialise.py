"""Models are built by one thread at a time, and leave torch's generator as it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
import torch

from graphcaps.inference import model_file
from graphcaps.models.builder import ModelBuilder, precomputation_of
from graphcaps.nn import HGCN, initialise
from graphcaps.nn.graph_model import GraphModel, ModelFactory
from graphcaps.training import final_training
from graphcaps.training.replicas import Replica, replica_model, stack_replicas

BUILDER = ModelBuilder(HGCN, 3, 2, {"capsule_dim": 4, "num_capsules": (2,), "reconstruction": False})
SINGLE, STACKED = BUILDER(()), BUILDER((2,))
EMPTY = torch.empty(0, dtype=torch.long)
REPLICAS = [Replica(EMPTY, EMPTY, EMPTY, seed=seed) for seed in (0, 1)]
BUILDS: dict[str, Callable[[ModelFactory], object]] = {
    "stack_replicas": lambda factory: stack_replicas(factory, REPLICAS),
    "replica_model": lambda factory: replica_model(STACKED.state_dict(), factory, 1),
    "precomputation_of": precomputation_of,
    "a model file": lambda factory: model_file._network(Path("a"), factory, SINGLE.state_dict(), None),
    "a fitted start": lambda factory: final_training._initial_model(SINGLE, "hgcn", factory),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS.keys())
def test_a_model_is_built_by_one_thread_at_a_time_and_leaves_the_generator(build) -> None:
    free: list[bool] = []

    def try_lock() -> None:
        free.append(initialise._generator_lock.acquire(blocking=False))
        if free[-1]:
            initialise._generator_lock.release()

    def factory(lead: tuple[int, ...]) -> GraphModel:
        model = BUILDER(lead)
        if not next(model.parameters()).is_meta:  # on which nothing is drawn
            other = Thread(target=try_lock)
            other.start()
            other.join()
        return model

    before = torch.random.get_rng_state()
    build(factory)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert free
    assert not any(free)
