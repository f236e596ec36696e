"""Assignments per iteration: the last equal those of route(), the earlier ones those of shorter routings."""

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.ops import route, route_dense
from graphcaps.ops.routing.iterations import routing_assignments
from graphcaps.types import Segments
from tests.graphs import assert_equal
from tests.ops.ragged_rows import SIZES, poisoned, rows


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
    assignments = routing_assignments(h, weight, bias, segments, R, epsilon)
    assert assignments.shape == (R, *lead, V, J)
    assert_equal(assignments.sum(-1), torch.ones(R, *lead, V, dtype=torch.float64), "sum")
    for number in range(R):
        for method in ("factored", "naive"):
            run = route(
                h, weight, bias, segments, number + 1, residual=residual, method=method, epsilon=epsilon
            )
            assert_equal(assignments[number], run.assignment, f"iteration {number + 1}, {method}", 1e-12)
    assert not torch.allclose(assignments[1], assignments[2])  # routing does something


@pytest.mark.parametrize("R", [1, 3])
def test_dense_rounds_are_those_of_dense_routing(R: int) -> None:
    h, weight, bias = _made(3, 7, 6), _made(4, 6, 5, seed=4), _made(4, 5, seed=5)
    assignments = routing_assignments(h, weight, bias, None, R)
    assert assignments.shape == (R, 3, 7, 4)
    for number in range(R):
        assert_equal(
            assignments[number], route_dense(h, weight, bias, number + 1).assignment, "iteration", 1e-12
        )
    assert_equal(assignments[0], torch.full((3, 7, 4), 0.25, dtype=torch.float64), "first")


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("R", [1, 3])
@pytest.mark.parametrize("epsilon", [1e-7, 0.0])
def test_a_trace_changes_neither_values_nor_gradients(lead: tuple[int, ...], R: int, epsilon: float) -> None:
    sizes = torch.tensor([3, 70, 1, 33, 5]).expand(*lead, 5)
    segments = Segments.from_sizes(sizes)
    inputs = [_made(*lead, 112, 6), _made(*lead, 4, 6, 5, seed=4), _made(*lead, 4, 5, seed=5)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    residual = _made(*lead, 5, 1, 5, seed=6).requires_grad_()
    direction = _made(*lead, 5, 4, 5, seed=7)
    results = []
    for trace in (False, True):
        routing = route(*inputs, segments, R, residual=residual, epsilon=epsilon, trace=trace)
        results.append(
            (routing, torch.autograd.grad((routing.capsules * direction).sum(), [*inputs, residual]))
        )
    (plain, expected), (traced, actual) = results
    assert plain.iterations is None
    assert traced.iterations is not None
    assert torch.equal(traced.iterations, routing_assignments(*inputs, segments, R, epsilon))
    assert torch.equal(traced.iterations[-1], traced.assignment)
    assert_equal(traced.assignment, plain.assignment, "assignment", 1e-12)
    assert_equal(traced.capsules, plain.capsules, "capsules", 1e-12)
    for name, one, other in zip(("h", "weight", "bias", "residual"), actual, expected, strict=True):
        assert_equal(one, other, f"gradient of {name}", 1e-12)


def test_a_trace_leaves_out_padding() -> None:
    """Empty graphs, padding rows that hold NaN, and a replica of nothing else."""
    segments = rows(SIZES)
    inputs = [poisoned(segments, 6).double(), _made(3, 4, 6, 5, seed=4), _made(3, 4, 5, seed=5)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    direction = _made(3, 4, 4, 5, seed=7)
    plain, traced = (route(*inputs, segments, 3, trace=trace) for trace in (False, True))
    assert_equal(traced.capsules, plain.capsules, "capsules", 1e-12)
    assert_equal(traced.assignment, plain.assignment, "assignment", 1e-12)
    expected, actual = (
        torch.autograd.grad((routing.capsules * direction).sum(), inputs) for routing in (plain, traced)
    )
    for name, one, other in zip(("h", "weight", "bias"), actual, expected, strict=True):
        assert_equal(one, other, f"gradient of {name}", 1e-12)
    assert bool((actual[0][segments.index == segments.num_graphs] == 0).all())


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("R", [1, 3])
def test_a_dense_trace_changes_neither_values_nor_gradients(lead: tuple[int, ...], R: int) -> None:
    inputs = [_made(*lead, 3, 7, 6), _made(*lead, 4, 6, 5, seed=4), _made(*lead, 4, 5, seed=5)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    residual = _made(*lead, 3, 1, 5, seed=6)
    direction = _made(*lead, 3, 4, 5, seed=7)
    results = []
    for trace in (False, True):
        routing = route_dense(*inputs, R, residual, trace=trace)
        results.append((routing, torch.autograd.grad((routing.capsules * direction).sum(), inputs)))
    (plain, expected), (traced, actual) = results
    assert plain.iterations is None
    assert traced.iterations is not None
    assert torch.equal(traced.iterations, routing_assignments(*inputs, None, R))
    assert_equal(traced.capsules, plain.capsules, "capsules", 1e-12)
    for one, other in zip(actual, expected, strict=True):
        assert_equal(one, other, "gradient", 1e-12)


def test_a_trace_keeps_assignments_constant() -> None:
    tensors = _made(6, 3), _made(4, 3, 5), _made(4, 5)
    for run in (
        lambda: route(*tensors, torch.zeros(6, dtype=torch.long), 2, detach=False, trace=True),
        lambda: route_dense(tensors[0].unsqueeze(0), *tensors[1:], 2, detach=False, trace=True),
    ):
        with pytest.raises(ArgumentError, match="'detach' must be True with a trace, got False"):
            run()


def test_zero_iterations_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'iterations' must be at least 1"):
        routing_assignments(_made(1, 2, 3), _made(4, 3, 3), _made(4, 3), None, 0)
