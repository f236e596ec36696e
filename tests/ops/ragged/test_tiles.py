"""Tiles cover each row exactly once, for any sizes, heights and leading axes."""

import pytest
import torch

from graphcaps.ops.ragged.tiles import (
    from_tiles,
    graphs_to_tiles,
    segment_broadcast,
    segment_sum,
    sum_tiles,
    tile_rows,
    to_tiles,
)
from graphcaps.types import Segments
from tests.graphs import assert_equal

SIZES = [1, 63, 7, 32, 33, 500, 2]


def _segments(with_max_size: bool) -> Segments:
    segments = Segments.from_sizes(torch.tensor(SIZES))
    return Segments(
        segments.ptr, segments.index, padded=False, max_size=segments.max_size if with_max_size else None
    )


@pytest.mark.parametrize("height", [1, 5, 32, 64, 1000])
@pytest.mark.parametrize("with_max_size", [True, False])
def test_gather_and_scatter_are_inverse(height: int, with_max_size: bool) -> None:
    segments = _segments(with_max_size)
    tiles = tile_rows(segments, height)
    x = torch.randn(sum(SIZES), 3, dtype=torch.float64, requires_grad=True)
    tiled = to_tiles(x, tiles)
    assert bool((tiled[tiles.holes] == 0).all())
    assert int((~tiles.holes).sum()) == sum(SIZES)
    assert_equal(from_tiles(tiled, tiles), x)
    assert_equal(sum_tiles(tiled.sum(-2), tiles), segment_sum(x, segments))


@pytest.mark.parametrize("height", [4, 64])
def test_gradients_of_gather_and_scatter(height: int) -> None:
    segments = Segments.from_sizes(torch.tensor([3, 9, 1]))
    tiles = tile_rows(segments, height)
    x = torch.randn(13, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: to_tiles(t, tiles).square(), x)
    y = torch.randn(*tiles.rows.shape, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: from_tiles(t, tiles).square(), y)


def test_segment_sum_is_a_loop() -> None:
    segments = _segments(True)
    x = torch.randn(sum(SIZES), 3, dtype=torch.float64)
    expected = torch.stack([part.sum(0) for part in x.split(SIZES)])
    assert_equal(segment_sum(x, segments), expected)
    assert_equal(segment_broadcast(expected, segments), expected[segments.index])


def test_one_graph_alone_is_summed_and_spread() -> None:
    segments = Segments.from_sizes(torch.tensor([7]))
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    assert_equal(segment_sum(x, segments), x.sum(0, keepdim=True))
    assert_equal(segment_broadcast(y, segments), y.repeat(7, 1))
    assert torch.autograd.gradcheck(lambda t: segment_sum(t, segments).square(), x)
    assert torch.autograd.gradcheck(lambda t: segment_broadcast(t, segments).square(), y)


def test_leading_axes_and_padding() -> None:
    # Two replicas: sizes 3, 40 and 2 (45 rows), and 5 and 0 (5 rows, 40 of padding).
    ptr = torch.tensor([[0, 3, 43, 45], [0, 5, 5, 5]])
    index = torch.stack([torch.arange(3).repeat_interleave(torch.tensor([3, 40, 2])), torch.full((45,), 3)])
    index[1, :5] = 0
    segments = Segments(ptr, index)
    tiles = tile_rows(segments, 8)
    x = torch.randn(2, 45, 2, dtype=torch.float64)
    x[1, 5:] = float("nan")
    total = sum_tiles(to_tiles(x, tiles).sum(-2), tiles)
    expected = torch.zeros(2, 3, 2, dtype=torch.float64)
    expected[0] = torch.stack([part.sum(0) for part in x[0].split([3, 40, 2])])
    expected[1, 0] = x[1, :5].sum(0)
    assert_equal(total, expected)
    back = from_tiles(to_tiles(x, tiles), tiles)
    assert_equal(back, torch.where(index.unsqueeze(-1) < 3, x, 0))
    codes = torch.arange(6.0).reshape(2, 3, 1)
    assert torch.equal(graphs_to_tiles(codes, tiles)[..., 0], codes.squeeze(-1).gather(-1, tiles.graph))


def test_padding_is_at_most_a_tile_per_graph() -> None:
    tiles = tile_rows(_segments(False), 32)
    assert tiles.holes.numel() <= sum(SIZES) + 31 * len(SIZES)
