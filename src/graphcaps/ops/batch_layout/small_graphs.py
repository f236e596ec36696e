"""The graphs of a batch up to a given size as a batch of the same shape, by index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.types import EdgeTable, Segments

__all__ = ["SmallGraphs", "select_small_graphs"]


@dataclass(frozen=True, eq=False)
class SmallGraphs:
    """The small graphs of a batch, moved to the front; the rows and graphs of the others are padding.

    Args:
        rows (Tensor): Row of the batch in each row, flat over replicas, ``[F · V]``.
        edges (EdgeTable): Their edges.
        segments (Segments): Which row belongs to which graph; graphs keep their indices.
    """

    rows: Tensor
    edges: EdgeTable
    segments: Segments


def select_small_graphs(size: int, edges: EdgeTable, segments: Segments) -> SmallGraphs:
    """Graphs of at most ``size`` nodes. Shapes do not depend on their number, so there is no synchronisation."""
    index, B = segments.index, segments.num_graphs
    *lead, V = index.shape
    large = segments.sizes > size  # [*lead, B]
    padding = torch.nn.functional.pad(large, (0, 1), value=True).gather(-1, index)
    order = padding.to(torch.uint8).argsort(dim=-1, stable=True)
    padding = padding.gather(-1, order)
    graph = index.gather(-1, order).masked_fill(padding, B)
    ptr = torch.nn.functional.pad(segments.sizes.masked_fill(large, 0).cumsum(-1), (1, 0))
    # The rows of a graph stay together, so neighbours move as far as the row itself.
    first = (edges.first.gather(-1, order) + torch.arange(V, device=index.device) - order).masked_fill(
        padding, 0
    )
    node = edges.node.gather(-1, order).masked_fill(padding, -1)
    max_size = size if segments.max_size is None else min(size, segments.max_size)
    table = EdgeTable(
        edges.ptr, edges.neighbours, edges.weight, node, first,
        max_degree=edges.max_degree, bits=edges.bits, graphs=ptr, kind=edges.kind,
    )  # fmt: skip
    replica = torch.arange(torch.Size(lead).numel(), device=index.device).unsqueeze(-1)
    rows = (order.reshape(-1, V) + replica * V).reshape(-1)
    return SmallGraphs(rows, table, Segments(ptr, graph, padded=True, max_size=max_size))
