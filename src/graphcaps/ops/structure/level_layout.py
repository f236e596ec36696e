"""The coarser levels of the graphs of a batch, by index arithmetic on the arrays of their store."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from graphcaps.ops.batch_layout.layout import layout_batch
from graphcaps.ops.structure.structure import StoredLevel, Structure
from graphcaps.types import CoarseLevel, EdgeTable, GraphBatch, Members, Segments

__all__ = ["attach_structure", "count_level_rows"]


def attach_structure(
    batch: GraphBatch,
    structure: Structure | None,
    graphs: Tensor,
    level_rows: list[tuple[int, int]] | None = None,
) -> GraphBatch:
    """The batch with its precomputed levels and columns, without host–device synchronisation.

    Args:
        batch (GraphBatch): Graphs of a store.
        structure (Structure, optional): Precomputed structures of the store, on the device of the batch.
        graphs (Tensor): Graphs of the batch, −1 for padding, ``[*lead, B]``.
        level_rows (list, optional): For each level the number of coarse rows and members, from
            :func:`count_level_rows`. (default: bounds that depend on the shape of the batch only)
    """
    if structure is None:
        return batch
    V, B = batch.segments.num_rows, batch.num_graphs
    levels: list[CoarseLevel] = []
    for number, level in enumerate(structure.levels):
        if level_rows is None:
            rows, entries = (bound.total(V, B) for bound in (level.node_bound, level.entry_bound))
        else:
            rows, entries = level_rows[number]
        below = levels[-1].segments if levels else batch.segments
        levels.append(_lay_out_level(level, graphs, below, rows, entries, batch.segments.may_be_empty))
    columns = structure.columns
    if columns is not None:
        columns = columns if len(columns) else columns.new_zeros(1, columns.size(-1))
        columns = columns[batch.edges.node.clamp_min(0)]
    return replace(batch, levels=tuple(levels), columns=columns)


def count_level_rows(structure: Structure, graphs: Tensor) -> list[tuple[int, int]]:
    """Coarse rows and members of each level for the graphs ``[*lead, B]`` of a batch, on the host; at least 1."""
    padding, real = graphs < 0, graphs.clamp_min(0)

    def longest(ptr: Tensor) -> int:
        return max(1, int((ptr[real + 1] - ptr[real]).masked_fill(padding, 0).sum(-1).max()))

    return [(longest(level.host_node_ptr), longest(level.host_entry_ptr)) for level in structure.levels]


def _lay_out_level(
    level: StoredLevel, graphs: Tensor, below: Segments, num_rows: int, num_entries: int, may_be_empty: bool
) -> CoarseLevel:
    layout = layout_batch(level.node_ptr, graphs, num_rows)
    segments = Segments(layout.ptr, layout.index, True, level.max_size, may_be_empty=may_be_empty)
    segments.memo["row_mask"] = layout.mask
    edges = EdgeTable(
        level.edge_ptr, level.neighbours, level.edge_weight, layout.node, layout.first,
        max_degree=level.max_degree, graphs=layout.ptr,
    )  # fmt: skip

    # The members of a graph follow one another in the store, so that they are laid out as its nodes are.
    entries = layout_batch(level.entry_ptr, graphs, num_entries)
    entry, padding = entries.node.clamp_min(0), ~entries.mask
    source = below.ptr.gather(-1, entries.index) + level.members[entry]
    owner = layout.ptr.gather(-1, entries.index) + level.owners[entry]
    # First member of each coarse row: its offset within the graph in the store, from the first member in the batch.
    node = layout.node.clamp_min(0)
    graph = layout.index.clamp_max(graphs.size(-1) - 1)
    offset = level.member_ptr[node] - level.entry_ptr[graphs.clamp_min(0)].gather(-1, graph)
    first = entries.ptr[..., :-1].gather(-1, graph) + offset
    end = entries.ptr[..., -1:]
    ptr = torch.cat([torch.where(layout.mask, first, end), end], -1)
    grouped = Segments(ptr, owner.masked_fill(padding, num_rows), True)
    grouped.memo["row_mask"] = entries.mask
    weights = None if level.weights is None else level.weights[entry]
    return CoarseLevel(segments, edges, Members(source.masked_fill(padding, 0), grouped, weights))
