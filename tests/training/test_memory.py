"""A forecast grows with what memory grows with, and sets how many replicas are trained together."""

from typing import Any

import pytest
import torch

from graphcaps.config import TrainConfig
from graphcaps.nn import HGCN
from graphcaps.training import Replica
from graphcaps.training.memory import USABLE_FRACTION, MemoryEstimate, estimate_memory
from tests.graphs import random_graphs

SIZES = [10] * 30


def _forecast(batch_size: int = 10, sizes: list[int] = SIZES, **arguments: Any) -> MemoryEstimate:
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
def test_every_copy_of_the_weights_is_counted(average: int, copies: int) -> None:
    parameters = sum(p.numel() for p in HGCN(5, 2, capsule_dim=16, num_capsules=(4,)).parameters())
    assert _forecast(average_epochs=average).weights == copies * 4 * parameters


def test_a_step_grows_with_its_nodes() -> None:
    small, twice = _forecast(10).step, _forecast(20).step
    assert 1.6 * small < twice < 2.4 * small
    assert _forecast(sizes=[20] * 30).step > 1.5 * small


def test_a_step_is_near_what_the_largest_tensors_take() -> None:
    rows, width = 10 * 10, 16
    assert 4 * rows * width * 4 < _forecast().step < 60 * rows * width * 4


def test_the_largest_step_counts() -> None:
    assert _forecast(sizes=[10] * 29 + [200]).step > 2 * _forecast().step


@pytest.mark.parametrize(
    ("total", "group"), [(None, 10), (10**9, 10), (0, 1), (int(1000 / USABLE_FRACTION) + 1, 3), (900, 2)]
)
def test_as_many_as_fit(total: int | None, group: int) -> None:
    assert MemoryEstimate(data=100, weights=200, step=100, total=total).max_replicas(10) == group


def test_of_several() -> None:
    assert MemoryEstimate(data=5, weights=2, step=1, total=None).bytes_for(10) == 35
    assert MemoryEstimate(data=5, weights=2, step=1, total=None, scoring=40).bytes_for(10) == 65
