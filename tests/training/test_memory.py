"""The memory estimate and the number of replicas trained together."""

from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.nn import HGCN
from graphcaps.training import Replica
from graphcaps.training.memory import USABLE_FRACTION, MemoryEstimate, estimate_memory
from tests.graphs import random_graphs

SIZES = [10] * 30


def _estimate(batch_size: int = 10, sizes: list[int] = SIZES, **arguments: Any) -> MemoryEstimate:
    average = arguments.pop("average_epochs", 1)
    graphs = random_graphs(sizes)
    store, x = graphs.as_store(), graphs.x.float()
    none = torch.empty(0, dtype=torch.long)
    replica = Replica(torch.arange(len(sizes)), none, none)

    def make(lead: tuple[int, ...]) -> HGCN:
        return HGCN(5, 2, lead=lead, **({"capsule_dim": 16, "num_capsules": (4,)} | arguments))

    config = TrainConfig(batch_size=batch_size, average_epochs=average)
    return estimate_memory(make, store, x, replica, config, torch.device("cpu"))


@pytest.mark.parametrize(("average", "copies"), [(1, 4), (10, 6)])
def test_all_copies_of_the_weights_are_counted(average: int, copies: int) -> None:
    parameters = sum(p.numel() for p in HGCN(5, 2, capsule_dim=16, num_capsules=(4,)).parameters())
    assert _estimate(average_epochs=average).weights == copies * 4 * parameters


def test_step_memory_grows_with_the_nodes() -> None:
    small, twice = _estimate(10).step, _estimate(20).step
    assert 1.6 * small < twice < 2.4 * small
    assert _estimate(sizes=[20] * 30).step > 1.5 * small


def test_step_memory_is_a_small_multiple_of_a_feature_matrix() -> None:
    rows, width = 10 * 10, 16
    assert 4 * rows * width * 4 < _estimate().step < 60 * rows * width * 4


def test_step_memory_is_that_of_the_largest_step() -> None:
    assert _estimate(sizes=[10] * 29 + [200]).step > 2 * _estimate().step


@pytest.mark.parametrize(
    ("total", "group"), [(None, 10), (10**9, 10), (0, 1), (int(1000 / USABLE_FRACTION) + 1, 3), (900, 2)]
)
def test_max_replicas_fit_into_memory(total: int | None, group: int) -> None:
    assert MemoryEstimate(data=100, weights=200, step=100, total=total).max_replicas(10) == group


def test_bytes_for_several_replicas() -> None:
    assert MemoryEstimate(data=5, weights=2, step=1, total=None).bytes_for(10) == 35
    assert MemoryEstimate(data=5, weights=2, step=1, total=None, scoring=40).bytes_for(10) == 65
