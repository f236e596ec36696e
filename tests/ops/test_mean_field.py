"""Mean-field rounds without the matrix of weights against those with it, and a worked example."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from graphcaps.ops.mean_field import dense_mean_field, mean_field
from graphcaps.types import Segments
from tests.graphs import assert_equal, random_graphs

_SIZES = [6, 40, 1, 3]


def _inputs(clusters: int = 3) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = random_graphs(_SIZES).x + 0.3
    unary = torch.randn(sum(_SIZES), clusters, dtype=torch.float64)
    return unary.requires_grad_(), x.requires_grad_()


@pytest.mark.parametrize("guard", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_equals_the_dense_form(rounds: int, guard: float) -> None:
    unary, x = _inputs()
    segments = Segments.from_sizes(torch.tensor(_SIZES))
    assignment = mean_field(unary, x, segments, rounds, guard)
    expected = torch.cat(
        [
            dense_mean_field(u, v, rounds, guard)
            for u, v in zip(unary.split(_SIZES), x.split(_SIZES), strict=True)
        ]
    )
    assert_equal(assignment, expected, "assignment")
    weight = torch.linspace(-1, 1, expected.numel(), dtype=torch.float64).reshape(expected.shape)
    # The functions of x and U are stiff where row sums are small: the tolerance is relative to the gradient.
    ours = torch.autograd.grad((assignment * weight).sum(), (unary, x), allow_unused=True)
    theirs = torch.autograd.grad((expected * weight).sum(), (unary, x), allow_unused=True)
    for name, one, other in zip(("unary", "x"), ours, theirs, strict=True):
        if rounds == 0 and name == "x":
            assert not bool((torch.zeros(()) if one is None else one).any())
            continue
        assert one is not None
        assert other is not None
        assert_equal(one, other, f"gradient of {name}", 1e-8)


def test_the_guard_acts_on_some_rows_of_the_test() -> None:
    unary, x = _inputs()
    segments = Segments.from_sizes(torch.tensor(_SIZES))
    plain, guarded = mean_field(unary, x, segments, 1), mean_field(unary, x, segments, 1, 0.1)
    differs = (plain - guarded).abs().amax(-1) > 1e-6
    assert 0 < int(differs.sum()) < len(differs)


def test_two_nodes() -> None:
    """With W = [[0, w], [w, 0]] the message of a node is the assignment of the other."""
    unary = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    x = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    assignment = mean_field(unary, x, Segments.from_sizes(torch.tensor([2])), 1)
    p = math.e / (math.e + 1)
    expected = torch.tensor([[1.5, 0.5], [p, 1 - p]], dtype=torch.float64).softmax(-1)
    assert_equal(assignment, expected)


def test_messages_are_bounded_by_the_guard() -> None:
    """Opposite nodes: the sum of a row is almost 0, and messages stay below 1 / guard."""
    x = torch.tensor([[1.0], [1.0], [-1.0 + 1e-9]], dtype=torch.float64, requires_grad=True)
    unary = torch.zeros(3, 2, dtype=torch.float64)
    unary[1, 0] = 50.0
    segments = Segments.from_sizes(torch.tensor([3]))
    odds = mean_field(unary, x, segments, 1, 0.1)[0].logit()[0]
    plain = mean_field(unary, x, segments, 1)[0]
    assert 0 < float(odds.detach()) <= 10
    assert float(plain.detach().max()) == 1.0
    odds.backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())


def test_a_single_node_and_padding() -> None:
    """A node without others keeps its potentials, padding is 0, and nothing becomes NaN."""
    unary = torch.tensor([[1.0, 2.0], [0.5, 0.5]], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([[0.0], [9.0]], dtype=torch.float64, requires_grad=True)
    segments = Segments(torch.tensor([0, 1, 1]), torch.tensor([0, 2]))
    assignment = mean_field(unary, x, segments, 5)
    assert_equal(assignment[0], unary[0].softmax(-1))
    assert assignment[1].tolist() == [0, 0]
    assignment.square().sum().backward()
    for value in (unary.grad, x.grad):
        assert value is not None
        assert bool(value.isfinite().all())
