"""Batches with padding, for tests."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.nn.functional import pad

from graphcaps.types import CoarseLevel, EdgeTable, GraphBatch, Segments

__all__ = ["with_padding"]


def with_padding(
    batch: GraphBatch, rows: int = 3, graphs: int = 2, value: float = float("nan")
) -> GraphBatch:
    """The batch followed by padding rows and by graphs without nodes.

    Args:
        batch (GraphBatch): A batch of one model, without leading axes.
        rows (int): Number of padding rows. (default: 3)
        graphs (int): Number of graphs without nodes; their class is −1. (default: 2)
        value (float): Value of all features of the padding rows. (default: NaN)
    """
    x, segments, edges = batch.x, batch.segments, batch.edges
    table = EdgeTable(
        edges.ptr,
        edges.neighbours,
        edges.weight,
        pad(edges.node, (0, rows), value=-1),
        pad(edges.first, (0, rows)),
        edges.num_entries,
        kind=edges.kind,
    )
    return GraphBatch(
        torch.cat([x, x.new_full((rows, x.size(-1)), value)]),
        Segments(
            torch.cat([segments.ptr, segments.ptr[-1:].expand(graphs)]),
            pad(segments.index, (0, rows), value=segments.num_graphs + graphs),
            padded=True,
        ),
        table,
        None if batch.y is None else pad(batch.y, (0, graphs), value=-1),
        tuple(_with_empty_graphs(level, graphs) for level in batch.levels),
        None if batch.columns is None else pad(batch.columns, (0, 0, 0, rows), value=value),
    )


def _with_empty_graphs(level: CoarseLevel, graphs: int) -> CoarseLevel:
    """The level of the same graphs and of further ones without nodes."""
    segments = level.segments
    padding = segments.index == segments.num_graphs
    extended = Segments(
        torch.cat([segments.ptr, segments.ptr[-1:].expand(graphs)]),
        segments.index.masked_fill(padding, segments.num_graphs + graphs),
        padded=True,
        max_size=segments.max_size,
    )
    return replace(level, segments=extended)
