"""Some rows of each graph as a mask over all rows: shapes stay those of the batch, also for a selection of a selection.

Masks instead of indices keep every tensor at a size that depends on the shape of the batch alone, so that a step can be
captured as a CUDA graph. Rows that were dropped are computed and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.errors import ShapeError, check_fraction
from graphcaps.ops.ragged.reductions import segment_max
from graphcaps.ops.ragged.tiles import segment_sum
from graphcaps.ops.ragged.top_k import descending_order, of_graph, rank_of_row
from graphcaps.types import Segments, ShapeRepr

__all__ = ["Selection", "select_top", "selected_max", "selected_mean"]


@dataclass(frozen=True, repr=False, eq=False)
class Selection(ShapeRepr):
    """Selected rows of each graph.

    Args:
        mask (Tensor): True at selected rows, False at padding, ``[*lead, V]``.
        count (Tensor): Number of selected rows of each graph, ``[*lead, B]``.
    """

    mask: Tensor
    count: Tensor


def select_top(
    score: Tensor, segments: Segments, ratio: float, *, among: Selection | None = None
) -> Selection:
    r"""Selects the :math:`\lceil \mathrm{ratio} \cdot n \rceil` rows with the highest scores of each graph.

    Among equal scores the earlier row is selected first, as in :func:`graphcaps.ops.segment_top_k`. There is no
    host–device synchronisation.

    Args:
        score (Tensor): Score of each row, ``[*lead, V]``; rows outside ``among`` and padding rows may hold anything.
        segments (Segments): Graph of each row.
        ratio (float): Fraction of the n rows to select, above 0 and at most 1.
        among (Selection, optional): The n rows of each graph. (default: all rows)

    Raises:
        ArgumentError: If ``ratio`` is out of range.
        ShapeError: If there is not one score per row.
    """
    check_fraction("select_top", ratio=ratio)
    if score.shape != segments.index.shape:
        expected = f"have the shape {list(segments.index.shape)}"
        raise ShapeError("select_top", "score", expected, list(score.shape))
    score = score.detach()
    available = segments.sizes
    if among is not None:
        score, available = score.masked_fill(~among.mask, -torch.inf), among.count
    # In the type of the scores, as torch-geometric rounds.
    count = (ratio * available.to(score.dtype)).ceil().long()
    order = descending_order(segments, score)
    selected = rank_of_row(segments) < of_graph(
        count, segments.index
    )  # False at padding, where the count is 0
    return Selection(torch.zeros_like(selected).scatter(-1, order, selected), count)


def selected_mean(x: Tensor, segments: Segments, selection: Selection) -> Tensor:
    """Mean over the selected rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d]``; 0 for a graph without rows."""
    total = segment_sum(x.masked_fill(~selection.mask.unsqueeze(-1), 0), segments)
    return total / selection.count.to(x.dtype).clamp_min(1).unsqueeze(-1)


def selected_max(x: Tensor, segments: Segments, selection: Selection) -> Tensor:
    """Maximum of each column over the selected rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d]``.

    A graph without rows has 0. Every other graph must have a selected row. Rows that share a maximum share its
    gradient equally.
    """
    return segment_max(x.masked_fill(~selection.mask.unsqueeze(-1), -torch.inf), segments)
