"""Values kept with an object."""

from __future__ import annotations

import torch

from graphcaps.memo import Memo, remember
from graphcaps.types import Segments


def test_a_value_is_made_once_per_key() -> None:
    memo: Memo = {}
    made = []

    def make() -> None:
        made.append(len(made))

    for key in (("rows", 1), ("rows", 2), ("rows", 1)):
        assert remember(memo, key, make) is None  # a result of None is kept, too
    assert made == [0, 1]


def test_a_kept_value_is_not_made_again() -> None:
    assert remember({"rows": 3}, "rows", lambda: 1 // 0) == 3


def test_segments_keep_their_masks() -> None:
    segments = Segments(torch.tensor([0, 2]), torch.tensor([0, 0, 1]))
    assert segments.row_mask is segments.row_mask
    assert segments.graph_mask is segments.graph_mask
