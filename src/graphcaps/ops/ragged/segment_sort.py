"""The first rows of each graph in the order of some columns, as a matrix of fixed height."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.ragged.tiles import flat_index, take_rows
from graphcaps.ops.ragged.top_k import descending_order, rank_of_row
from graphcaps.types import Segments

__all__ = ["segment_sort"]


def segment_sort(x: Tensor, segments: Segments, k: int, keys: Sequence[int] = (-1,)) -> Tensor:
    """Sorts the rows of each graph by columns, in descending order, and keeps the first k.

    Shapes depend on B and k alone: no host–device synchronisation. No gradient flows through the order.

    Args:
        x (Tensor): Rows, ``[*lead, V, d]``; padding rows may hold anything.
        segments (Segments): Graph of each row.
        k (int): Number of rows to keep, at least 1; graphs with fewer rows are filled with zeros.
        keys (sequence of int): Columns to sort by; among equal values of one, the next decides, and at last the order
            of rows. (default: the last column)

    Returns:
        Tensor: ``[*lead, B, k, d]``.

    Raises:
        ArgumentError: If ``k`` is below 1 or ``keys`` is empty.
        ShapeError: If ``x`` has another number of rows than the segments.
    """
    if k < 1:
        raise ArgumentError("segment_sort", "k", "be at least 1", k)
    if not keys:
        raise ArgumentError("segment_sort", "keys", "name at least one column", "none")
    if x.shape[:-1] != segments.index.shape:
        expected = f"have one row per row of the segments, {list(segments.index.shape)}"
        raise ShapeError("segment_sort", "x", expected, list(x.shape[:-1]))
    *lead, V, d = x.shape
    B = segments.num_graphs
    order, rank = descending_order(segments, *(x[..., key] for key in keys)), rank_of_row(segments)

    # Where each place of the result comes from, and the other way round: every row is taken at most once.
    place = torch.arange(k, device=x.device)
    unused = place >= segments.sizes.unsqueeze(-1)  # [*lead, B, k]
    source = (segments.ptr[..., :-1].unsqueeze(-1) + place).masked_fill(unused, 0).flatten(-2)
    row = order.gather(-1, source)
    rank = torch.empty_like(rank.expand_as(order)).scatter(-1, order, rank.expand_as(order))
    left_out = rank >= k
    if segments.padded:
        left_out = left_out | (segments.index == B)
    target = (segments.index * k + rank).masked_fill(left_out, 0)
    taken = take_rows(
        x.reshape(-1, d),
        flat_index(row, V),
        unused.reshape(-1),
        flat_index(target, B * k),
        left_out.reshape(-1),
    )
    return taken.reshape(*lead, B, k, d)
