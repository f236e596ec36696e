"""The graphs of a batch up to a size as a batch of their own: by index arithmetic, of the same shape."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.types import EdgeTable, Segments

__all__ = ["SmallGraphs", "select_small_graphs"]


@dataclass(frozen=True, eq=False)
class SmallGraphs:
    """The small graphs of a batch, in front; rows and graphs of the others are padding.

    Args:
        rows (Tensor): Which row of the batch stands in each row, over flattened replicas, ``[F · V]``.
        edges (EdgeTable): Their edges.
        segments (Segments): Which row belongs to which graph; graphs keep their numbers.
    """

    rows: Tensor
    edges: EdgeTable
    segments: Segments


def select_small_graphs(size: int, edges: EdgeTable, segments: Segments) -> SmallGraphs:
    """Graphs of at most ``size`` nodes. How many there are is not asked: shapes stay as they are."""
    index, B = segments.index, segments.num_graphs
    *lead, V = index.shape
    large = segments.sizes > size  # [*lead, B]
    out = torch.nn.functional.pad(large, (0, 1), value=True).gather(-1, index)
    order = out.to(torch.uint8).argsort(dim=-1, stable=True)
    out = out.gather(-1, order)
    graph = index.gather(-1, order).masked_fill(out, B)
    ptr = torch.nn.functional.pad(segments.sizes.masked_fill(large, 0).cumsum(-1), (1, 0))
    # Neighbours move as far as the row itself: a graph stays together.
    first = (edges.first.gather(-1, order) + torch.arange(V, device=index.device) - order).masked_fill(out, 0)
    node = edges.node.gather(-1, order).masked_fill(out, -1)
    known = size if segments.max_size is None else min(size, segments.max_size)
    table = EdgeTable(
        edges.ptr, edges.neighbours, edges.weight, node, first,
        max_degree=edges.max_degree, bits=edges.bits, graphs=ptr,
    )  # fmt: skip
    replica = torch.arange(torch.Size(lead).numel(), device=index.device).unsqueeze(-1)
    rows = (order.reshape(-1, V) + replica * V).reshape(-1)
    return SmallGraphs(rows, table, Segments(ptr, graph, padded=True, max_size=known))
