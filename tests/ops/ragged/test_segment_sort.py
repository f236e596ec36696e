"""segment_sort: several columns, padding, replicas, gradients, and torch-geometric's SortAggregation."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.nn.aggr import SortAggregation

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn import sort_pool
from graphcaps.ops import segment_sort
from graphcaps.types import Segments
from tests.graphs import assert_equal

# Two replicas of three graphs: the second has a graph without rows and padding rows.
SEGMENTS = Segments(
    torch.tensor([[0, 2, 3, 6], [0, 3, 3, 4]]),
    torch.tensor([[0, 0, 1, 2, 2, 2], [0, 0, 0, 2, 3, 3]]),
)


def test_columns_decide_one_after_another() -> None:
    x = torch.tensor([[0.0, 1, 1], [1, 1, 1], [2, 0, 2], [3, 1, 1], [9, 9, 9]])
    segments = Segments.from_sizes(torch.tensor([4, 1]))
    by_two = segment_sort(x, segments, 5, keys=(-1, 0))
    assert by_two[0].tolist() == [[2, 0, 2], [3, 1, 1], [1, 1, 1], [0, 1, 1], [0, 0, 0]]
    by_one = segment_sort(x, segments, 2)  # rows 0, 1 and 3 are equal in the last column: their order decides
    assert by_one.tolist() == [[[2, 0, 2], [0, 1, 1]], [[9, 9, 9], [0, 0, 0]]]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_replicas_and_padding_equal_a_loop_over_graphs(k: int) -> None:
    x = torch.randn(2, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[1, 4:] = torch.nan
    x.requires_grad_()
    value = segment_sort(x, SEGMENTS, k)
    expected = torch.zeros_like(value)
    for f in range(2):
        for g in range(3):
            rows = x[f, SEGMENTS.ptr[f, g] : SEGMENTS.ptr[f, g + 1]]
            rows = rows[rows[:, -1].argsort(descending=True)][:k]
            expected[f, g, : len(rows)] = rows
    assert_equal(value, expected)
    ours, theirs = (torch.autograd.grad(t.sin().sum(), x, retain_graph=True)[0] for t in (value, expected))
    assert_equal(ours, theirs, "gradient")


def test_sort_pool_equals_torch_geometric() -> None:
    torch.manual_seed(0)
    x, batch = torch.randn(9, 4, dtype=torch.float64), torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
    assert_equal(sort_pool(x, batch, k=3).flatten(1), SortAggregation(3)(x, batch))


def test_wrong_arguments_are_refused() -> None:
    segments = Segments.from_sizes(torch.tensor([3]))
    with pytest.raises(ArgumentError, match=r"^segment_sort: 'k' must be at least 1, got 0\.$"):
        segment_sort(torch.ones(3, 2), segments, 0)
    with pytest.raises(
        ArgumentError, match=r"^segment_sort: 'keys' must name at least one column, got none\.$"
    ):
        segment_sort(torch.ones(3, 2), segments, 1, keys=())
    with pytest.raises(
        ShapeError, match=r"^segment_sort: 'x' must have one row per row of the segments, \[3\], got"
    ):
        segment_sort(torch.ones(4, 2), segments, 1)
