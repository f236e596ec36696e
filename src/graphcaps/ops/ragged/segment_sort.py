"""The first rows of each graph in the order of some columns, as a matrix of fixed height."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.ragged.tiles import flat_index, take_rows
from graphcaps.ops.ragged.top_k import descending_order, of_graph, rank_of_row
from graphcaps.types import Segments

__all__ = ["Places", "segment_sort", "sorted_places"]


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
    order = descending_order(segments, *(x[..., key] for key in keys))
    return sorted_places(segments, order, k, segments.sizes).take(x)


@dataclass(frozen=True, eq=False)
class Places:
    """Rows of a ragged tensor in B matrices of K places each; every row is in at most one place.

    Args:
        row (Tensor): Row in each place, any row in unused places, ``[*lead, B, K]``.
        unused (Tensor): True in places without a row, ``[*lead, B, K]``.
        place (Tensor): Place of each row in its graph, −1 for rows that have none, ``[*lead, V]``.
        graph (Tensor): Graph of each row, B at padding, ``[*lead, V]``.
    """

    row: Tensor
    unused: Tensor
    place: Tensor
    graph: Tensor

    @property
    def places(self) -> int:
        """K."""
        return self.row.size(-1)

    def take(self, x: Tensor) -> Tensor:
        """The rows of ``x [*lead, V, d]`` in their places, ``[*lead, B, K, d]``; 0 in unused places."""
        *lead, B, K = self.row.shape
        left_out = self.place < 0
        target = (self.graph * K + self.place).masked_fill(left_out, 0)
        taken = take_rows(
            x.reshape(-1, x.size(-1)),
            flat_index(self.row, x.size(-2), axes=2),
            self.unused.reshape(-1),
            flat_index(target, B * K),
            left_out.reshape(-1),
        )
        return taken.reshape(*lead, B, K, x.size(-1))


def sorted_places(segments: Segments, order: Tensor, places: int, count: Tensor) -> Places:
    """The first rows of each graph in an order, in that order.

    Args:
        segments (Segments): Graph of each row.
        order (Tensor): Rows of each graph in order, of :func:`graphcaps.ops.ragged.top_k.descending_order`.
        places (int): Places of a graph K.
        count (Tensor): Number of rows to take of each graph, at most its size, ``[*lead, B]``; at most K are taken.
    """
    position = torch.arange(places, device=order.device)
    unused = position >= count.unsqueeze(-1)  # [*lead, B, K]
    source = (segments.ptr[..., :-1].unsqueeze(-1) + position).masked_fill(unused, 0)
    row = order.gather(-1, source.flatten(-2)).reshape(source.shape)
    rank = rank_of_row(segments).expand_as(order)
    rank = torch.empty_like(rank).scatter(-1, order, rank)
    # Padding rows have a count of 0.
    limit = of_graph(count, segments.index).clamp_max(places)
    return Places(row, unused, rank.masked_fill(rank >= limit, -1), segments.index)
