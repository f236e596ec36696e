"""Routing of channels against the form that stores every vote, and that form against one row per capsule."""

from __future__ import annotations

import pytest
import torch

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.routing.channels import route_channels
from graphcaps.ops.routing.naive import route_channels_naive, route_naive
from graphcaps.types import Segments
from tests.graphs import assert_equal

F, C, D, J, E = 2, 3, 4, 5, 6
"""Replicas, channels, length of an input capsule, output capsules, their length."""


def _ragged(sizes: list[list[int]], num_rows: int) -> Segments:
    counts = torch.tensor(sizes)
    ptr = torch.nn.functional.pad(counts.cumsum(-1), (1, 0))
    index = torch.searchsorted(
        ptr[:, 1:].contiguous(), torch.arange(num_rows).expand(F, -1).contiguous(), right=True
    )
    return Segments(ptr, index, max_size=int(counts.max()))


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("detach", [True, False], ids=["detach", "gradient"])
@pytest.mark.parametrize("sizes", [[[4, 9, 0], [7, 1, 3]], [[40, 2, 0], [3, 70, 1]]], ids=["small", "large"])
def test_equals_naive(sizes: list[list[int]], iterations: int, detach: bool) -> None:
    """Values and gradients, with padding rows, a graph without nodes, and graphs of one and of several tiles."""
    generator = torch.Generator().manual_seed(0)
    V = max(sum(row) for row in sizes) + 2
    segments = _ragged(sizes, V)
    u = torch.randn(F, V, C, D, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(F, J, C, D, E, generator=generator, dtype=torch.float64, requires_grad=True)
    value = route_channels(u, weight, segments, iterations, detach=detach)
    expected = route_channels_naive(u, weight, segments, iterations, detach=detach)
    assert_equal(value, expected, "capsules")
    grads = [torch.autograd.grad(capsules.sin().sum(), (u, weight)) for capsules in (value, expected)]
    for name, one, two in zip(("u", "weight"), *grads, strict=True):
        assert_equal(one, two, f"gradient of {name}")


def test_one_node_per_graph_equals_naive() -> None:
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(F, 4, C, D, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(F, J, C, D, E, generator=generator, dtype=torch.float64, requires_grad=True)
    segments = Segments(torch.arange(5).expand(F, 5), torch.arange(4).expand(F, 4), max_size=1)
    value, expected = route_channels(u, weight, None, 3), route_channels_naive(u, weight, segments, 3)
    assert_equal(value, expected, "capsules")
    grads = [torch.autograd.grad(capsules.sin().sum(), (u, weight)) for capsules in (value, expected)]
    for name, one, two in zip(("u", "weight"), *grads, strict=True):
        assert_equal(one, two, f"gradient of {name}")


def test_naive_equals_routing_of_rows() -> None:
    """A graph of one node: its capsules are rows in blocks of their own, and there is nothing to divide by."""
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(1, C, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(J, C, D, E, generator=generator, dtype=torch.float64)
    blocks = torch.block_diag(*u[0].split(1))  # [C, C · D]
    rows = Segments.from_sizes(torch.tensor([C]))
    expected = route_naive(blocks, weight.flatten(1, 2), weight.new_zeros(J, E), rows, 3).capsules
    assert_equal(route_channels_naive(u, weight, None, 3), expected)
    three = Segments.from_sizes(torch.tensor([3]))
    # Three equal nodes have the mean of one.
    assert_equal(route_channels_naive(u.expand(3, C, D), weight, three, 3), expected)


def test_sizes_are_checked() -> None:
    u, weight = torch.rand(4, C, D), torch.rand(J, C, D, E)
    with pytest.raises(
        ShapeError, match=r"^route_channels: 'weight' must have the shape \['J', 3, 4\] \+ \[d'\]"
    ):
        route_channels(u, weight[:, :2], None, 1)
    with pytest.raises(ShapeError, match=r"^route_channels: 'segments' must have one entry per node, \[4\]"):
        route_channels(u, weight, Segments.from_sizes(torch.tensor([3])), 1)
    with pytest.raises(ArgumentError, match=r"^route_channels: 'iterations' must be at least 1, got 0\.$"):
        route_channels(u, weight, None, 0)
