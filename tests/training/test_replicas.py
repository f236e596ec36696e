"""States of replicas: their rows are sliced, joined and copied."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from graphcaps.training.replicas import (
    copy_replicas_,
    join_replicas,
    replica_model,
    slice_replicas,
    spread_sample,
    stack_replicas,
)
from tests.training.test_trainer import _maker, _replicas


def states() -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """The weights of three replicas, together and one by one."""
    make, replicas = _maker("hgcn, gine", 0.3), _replicas()
    together = dict(stack_replicas(make, replicas).state_dict())
    return together, [dict(stack_replicas(make, [replica]).state_dict()) for replica in replicas]


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("bounds", [(0, 1, 3), (0, 2, 3), (0, 1, 2, 3), (0, 3)])
def test_slices_are_joined_again(bounds: tuple[int, ...]) -> None:
    together, alone = states()
    parts = [slice_replicas(together, a, b) for a, b in pairwise(bounds)]
    assert equal(join_replicas(parts), together)
    for f, single in enumerate(alone):
        assert equal(slice_replicas(together, f, f + 1), single)


@pytest.mark.parametrize("replicas", [[], [1], [0, 2], [0, 1, 2]])
def test_some_replicas_are_copied(replicas: list[int]) -> None:
    source, _ = states()
    target = {name: torch.zeros_like(value) for name, value in source.items()}
    copy_replicas_(target, source, replicas)
    for f in range(3):
        part, expected = slice_replicas(target, f, f + 1), slice_replicas(source, f, f + 1)
        if f in replicas:
            assert equal(part, expected)
        else:
            assert not any(bool(value.any()) for value in part.values())


def test_a_replica_becomes_a_single_model() -> None:
    together, alone = states()
    make = _maker("hgcn, gine", 0.3)
    for f, single in enumerate(alone):
        assert equal(
            dict(replica_model(together, make, f).state_dict()),
            dict(replica_model(single, make, 0).state_dict()),
        )
    double = {
        name: value.double() if value.is_floating_point() else value for name, value in together.items()
    }
    assert next(replica_model(double, make, 1).parameters()).dtype == torch.float64


def test_a_sample_is_spread_over_all_indices() -> None:
    indices = torch.arange(100, 110)
    assert spread_sample(indices[:0], 4).tolist() == []
    assert spread_sample(indices, 10).tolist() == indices.tolist()
    assert spread_sample(indices, 9).tolist() == [*range(100, 109)]
    assert spread_sample(indices, 4).tolist() == [100, 102, 105, 107]
