"""segment_top_k: ties, leading axes, bounds of the number of rows, and messages."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops import segment_top_k
from graphcaps.types import Segments
from tests.graphs import assert_equal


def test_equal_scores_are_taken_in_the_order_of_rows() -> None:
    segments = Segments.from_sizes(torch.tensor([5, 3]))
    best = segment_top_k(torch.tensor([1.0, 2, 2, 1, 2, 0, 0, 0]), segments, k=4)
    assert best.index.tolist() == [1, 2, 4, 0, 5, 6, 7, 0]
    assert best.segments.index.tolist() == [0, 0, 0, 0, 1, 1, 1, 2]
    assert best.segments.ptr.tolist() == [0, 4, 7]
    assert best.score.tolist() == [2, 2, 2, 1, 0, 0, 0, 0]
    assert best.mask.tolist() == [True, True, True, False, True, True, True, True]


def test_two_leading_axes_equal_separate_calls() -> None:
    ptr = torch.tensor([[[0, 2, 6], [0, 5, 5]], [[0, 1, 4], [0, 0, 3]]])
    graph = torch.searchsorted(
        ptr[..., 1:].contiguous(), torch.arange(6).expand(2, 2, 6).contiguous(), right=True
    )
    score = torch.randn(2, 2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.randn(2, 2, 6, 3, dtype=torch.float64)
    best = segment_top_k(score, Segments(ptr, graph), k=2)
    rows = best.select(x)
    for f in range(2):
        for g in range(2):
            single = segment_top_k(score[f, g], Segments(ptr[f, g], graph[f, g]), k=2)
            assert torch.equal(best.index[f, g], single.index)
            assert torch.equal(best.score[f, g], single.score)
            assert torch.equal(best.mask[f, g], single.mask)
            assert torch.equal(best.segments.ptr[f, g], single.segments.ptr)
            assert_equal(rows[f, g], x[f, g, best.index[f, g]])


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    ratio=st.floats(0.001, 1),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_the_number_of_rows_is_always_sufficient(sizes: list[int], ratio: float, dtype: torch.dtype) -> None:
    segments = Segments.from_sizes(torch.tensor(sizes))
    best = segment_top_k(torch.zeros(sum(sizes), dtype=dtype), segments, ratio=ratio)
    assert int(best.segments.ptr[-1]) <= best.index.numel()
    assert int(best.mask.sum()) == int(best.segments.ptr[-1])
    assert best.segments.max_size is not None
    assert int(best.segments.sizes.max()) <= best.segments.max_size


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "segment_top_k: 'k, ratio' must be set one at a time, got none."),
        ({"k": 1, "ratio": 0.5}, "segment_top_k: 'k, ratio' must be set one at a time, got both."),
        ({"k": 0}, "segment_top_k: 'k' must be at least 1, got 0."),
        ({"ratio": 0.0}, "segment_top_k: 'ratio' must be above 0 and at most 1, got 0.0."),
        ({"ratio": 1.5}, "segment_top_k: 'ratio' must be above 0 and at most 1, got 1.5."),
    ],
)
def test_wrong_numbers_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}$"):
        segment_top_k(torch.rand(4), Segments.from_sizes(torch.tensor([4])), **arguments)


def test_one_score_per_row_is_required() -> None:
    with pytest.raises(ShapeError, match=r"^segment_top_k: 'score' must have the shape \[4\], got \[3\]\.$"):
        segment_top_k(torch.rand(3), Segments.from_sizes(torch.tensor([4])), k=1)
