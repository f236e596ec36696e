"""Rounds watched are the rounds run: the last weights are route()'s, the earlier ones those of shorter routings."""

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.ops import route, route_dense
from graphcaps.ops.routing.iterations import routing_assignments, routing_assignments_dense
from graphcaps.types import Segments
from tests.graphs import assert_equal


def _made(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("sizes", [[3, 70, 1, 33, 5], [6]])
@pytest.mark.parametrize("epsilon", [1e-7, 0.0])
def test_each_round_is_the_last_of_a_shorter_routing(
    lead: tuple[int, ...], sizes: list[int], epsilon: float
) -> None:
    V, J, d, e, R = sum(sizes), 4, 6, 5, 4
    h, weight, bias = _made(*lead, V, d), _made(*lead, J, d, e, seed=4), _made(*lead, J, e, seed=5)
    residual = _made(*lead, len(sizes), 1, e, seed=6)  # enters after the last weights: changes nothing
    segments = Segments.from_sizes(torch.tensor(sizes).expand(*lead, len(sizes)))
    rounds = routing_assignments(h, weight, bias, segments, R, epsilon)
    assert rounds.shape == (R, *lead, V, J)
    assert_equal(rounds.sum(-1), torch.ones(R, *lead, V, dtype=torch.float64), "sum")
    for number in range(R):
        for method in ("factored", "naive"):
            run = route(
                h, weight, bias, segments, number + 1, residual=residual, method=method, epsilon=epsilon
            )
            assert_equal(rounds[number], run.assignment, f"round {number + 1}, {method}", 1e-12)
    assert not torch.allclose(rounds[1], rounds[2])  # routing does something


@pytest.mark.parametrize("R", [1, 3])
def test_dense_rounds_are_those_of_dense_routing(R: int) -> None:
    h, weight, bias = _made(3, 7, 6), _made(4, 6, 5, seed=4), _made(4, 5, seed=5)
    rounds = routing_assignments_dense(h, weight, bias, R)
    assert rounds.shape == (R, 3, 7, 4)
    for number in range(R):
        assert_equal(rounds[number], route_dense(h, weight, bias, number + 1).assignment, "round", 1e-12)
    assert_equal(rounds[0], torch.full((3, 7, 4), 0.25, dtype=torch.float64), "first")


def test_no_round_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'iterations' must be at least 1"):
        routing_assignments_dense(_made(1, 2, 3), _made(4, 3, 3), _made(4, 3), 0)
