"""select_top: nested selections as masks, and the readouts of selected rows."""

from __future__ import annotations

import pytest
import torch

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops import segment_top_k, select_top, selected_max, selected_mean
from graphcaps.types import Segments
from tests.graphs import assert_equal

# Two replicas of three graphs: the second has a graph without rows and padding rows.
SEGMENTS = Segments(
    torch.tensor([[0, 2, 3, 8], [0, 3, 3, 6]]),
    torch.tensor([[0, 0, 1, 2, 2, 2, 2, 2], [0, 0, 0, 2, 2, 2, 3, 3]]),
)
SCORE = torch.tensor([[1.0, 2, 0, 5, 4, 5, 1, 0], [3, 1, 2, 1, 1, 1, torch.nan, 9]])


def test_the_best_half_and_the_best_half_of_that() -> None:
    first = select_top(SCORE, SEGMENTS, 0.5)
    assert first.mask.int().tolist() == [[0, 1, 1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 1, 0, 0, 0]]
    assert first.count.tolist() == [[1, 1, 3], [2, 0, 2]]
    assert torch.equal(first.mask, segment_top_k(SCORE, SEGMENTS, ratio=0.5).mask)
    # Other scores at the second selection: rows that were dropped before never return.
    second = select_top(-SCORE, SEGMENTS, 0.5, among=first)
    assert second.mask.int().tolist() == [[0, 1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0]]
    assert second.count.tolist() == [[1, 1, 2], [1, 0, 1]]


def test_readouts_are_those_of_the_selected_rows() -> None:
    x = torch.randn(2, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[1, 6:] = torch.nan
    x.requires_grad_()
    selection = select_top(SCORE, SEGMENTS, 0.5)
    mean, maximum = selected_mean(x, SEGMENTS, selection), selected_max(x, SEGMENTS, selection)
    for f in range(2):
        for g in range(3):
            rows = x[f, (SEGMENTS.index[f] == g) & selection.mask[f]]
            if len(rows):
                assert_equal(mean[f, g], rows.mean(0), "mean")
                assert_equal(maximum[f, g], rows.amax(0), "maximum")
            else:
                assert not bool(mean[f, g].any() or maximum[f, g].any())
    (gradient,) = torch.autograd.grad((mean.sin() + maximum.square()).sum(), x)
    assert bool(gradient[selection.mask].ne(0).any())
    assert not bool(gradient[~selection.mask].any())


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(
        ArgumentError, match=r"^select_top: 'ratio' must be above 0 and at most 1, got 1\.5\.$"
    ):
        select_top(SCORE, SEGMENTS, 1.5)
    with pytest.raises(ShapeError, match=r"^select_top: 'score' must have the shape \[2, 8\], got \[8\]\.$"):
        select_top(SCORE[0], SEGMENTS, 0.5)
