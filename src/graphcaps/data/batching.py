"""Collates graphs of a store into one ragged batch, by index arithmetic on the store's arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.batch_layout.layout import layout_batch
from graphcaps.ops.structure.level_layout import attach_structure, count_level_rows
from graphcaps.ops.structure.structure import SizeBound, Structure
from graphcaps.types import (
    AdjacencyBits,
    BatchLayout,
    EdgeTable,
    FeatureRows,
    FeatureTable,
    GraphBatch,
    Segments,
)

__all__ = ["BatchSource", "batch_from_layout", "collate", "collate_padded", "size_chunks"]


class BatchSource(Protocol):
    """The arrays of a :class:`graphcaps.data.GraphStore` that batches are made from."""

    def __len__(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def node_ptr(self) -> Tensor: ...
    @property
    def edge_ptr(self) -> Tensor: ...
    @property
    def neighbours(self) -> Tensor: ...
    @property
    def edge_weight(self) -> Tensor | None: ...
    @property
    def edge_kind(self) -> Tensor | None: ...
    @property
    def y(self) -> Tensor | None: ...
    @property
    def structure(self) -> Structure | None: ...
    @property
    def bits(self) -> AdjacencyBits | None: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def empty_graphs(self) -> Tensor: ...
    @property
    def max_size(self) -> int: ...
    @property
    def max_degree(self) -> int: ...
    @property
    def host_node_ptr(self) -> Tensor: ...
    @property
    def host_entry_ptr(self) -> Tensor: ...
    @property
    def entry_bound(self) -> SizeBound: ...


def size_chunks(store: BatchSource, max_nodes: int, max_entries: int) -> Iterator[tuple[int, int]]:
    """Splits a store into runs of consecutive graphs of bounded size; yields first graph and end of each.

    Args:
        store (GraphStore): Graphs.
        max_nodes (int): Nodes of a run at most.
        max_entries (int): Edge entries of a run at most. A graph above either limit is a run of its own.
    """
    if len(store) and store.num_nodes <= max_nodes and store.neighbours.numel() <= max_entries:
        yield 0, len(store)
        return
    node, entry = store.host_node_ptr, store.host_entry_ptr
    first = 0
    while first < len(store):
        by_nodes = int(torch.searchsorted(node, node[first] + max_nodes, right=True)) - 1
        by_entries = int(torch.searchsorted(entry, entry[first] + max_entries, right=True)) - 1
        end = max(min(by_nodes, by_entries), first + 1)
        yield first, end
        first = end


def collate(
    store: BatchSource, x: Tensor | FeatureTable, graphs: Sequence[int] | Tensor | None = None
) -> GraphBatch:
    """Makes the batch of :meth:`graphcaps.data.GraphStore.batch`.

    Arguments are checked, and the number of rows is exact: it is computed from the sizes on the host. Padding rows
    of the features are zero. There is at least one row, also for graphs without nodes.
    """
    num_rows = len(x.x if isinstance(x, FeatureTable) else x)
    if num_rows != store.num_nodes:
        raise ShapeError("GraphStore.batch", "x", f"have one row per node, {store.num_nodes}", num_rows)
    indices = torch.arange(len(store)) if graphs is None else torch.as_tensor(graphs)
    if indices.numel() == 0:
        raise ShapeError("GraphStore.batch", "graphs", "name at least one graph", "none")
    if indices.dtype == torch.bool or indices.is_floating_point():
        fix = "Use mask.nonzero() for a mask."
        raise ArgumentError("GraphStore.batch", "graphs", "hold integers", str(indices.dtype), fix)
    host = indices.cpu().long()
    if int(host.max()) >= len(store) or int(host.min()) < -1:
        wrong = int(host.max()) if int(host.max()) >= len(store) else int(host.min())
        raise ArgumentError(
            "GraphStore.batch", "graphs", f"be from 0 to {len(store) - 1} (−1 for padding)", wrong
        )
    padding = host < 0
    real = host.clamp_min(0)
    if not store.num_nodes:
        features = x.x if isinstance(x, FeatureTable) else x
        y = None if store.y is None else store.y.cpu()[real].masked_fill(padding, -1).to(store.device)
        batch = GraphBatch.without_nodes(tuple(host.shape[:-1]), host.size(-1), features, y)
        return attach_structure(batch, store.structure, torch.full_like(host, -1).to(store.device))
    sizes = (store.host_node_ptr[real + 1] - store.host_node_ptr[real]).masked_fill(padding, 0)
    entries = (store.host_entry_ptr[real + 1] - store.host_entry_ptr[real]).masked_fill(padding, 0)
    longest = max(int(sizes.sum(-1).max()), 1)  # operations need a row, also for graphs without nodes only
    padded = bool((sizes == 0).any()) or bool((sizes.sum(-1) < longest).any())
    num_entries, max_size = int(entries.sum()), int(sizes.max())

    batch = collate_padded(
        store, x, indices.long().to(store.device), longest,
        padded=padded, max_size=max_size, num_entries=num_entries,
        level_rows=None if store.structure is None else count_level_rows(store.structure, host),
    )  # fmt: skip
    if not padded:
        return batch
    if isinstance(batch.features, FeatureRows):
        return replace(batch, features=replace(batch.features, cleared=True))
    outside = batch.edges.node < 0
    if batch.x.requires_grad or batch.x.is_cuda:
        return replace(batch, features=batch.x.masked_fill(outside.unsqueeze(-1), 0))
    # The rows were copied above and few of them are padding: only those are written.
    batch.x.view(-1, batch.x.size(-1)).index_fill_(0, outside.reshape(-1).nonzero().squeeze(-1), 0)
    return batch


def collate_padded(
    store: BatchSource,
    x: Tensor | FeatureTable,
    graphs: Tensor,
    num_rows: int,
    *,
    padded: bool = True,
    max_size: int | None = None,
    num_entries: int | None = None,
    level_rows: list[tuple[int, int]] | None = None,
) -> GraphBatch:
    """Makes a batch with a given number of rows, without host–device synchronisation.

    Rows after the last graph of a replica are padding; their rows of ``x`` are undefined. Sizes that are not given
    are bounds over the whole store.

    Args:
        store (GraphStore): All graphs.
        x (Tensor or FeatureTable): Features of all its nodes, ``[N, in]``. Rows of a table are gathered only when
            ``batch.x`` is read.
        graphs (Tensor): Graphs of the batch, on the store's device, ``[*lead, B]``, −1 for padding.
        num_rows (int): V, at least 1 and at least the total number of nodes of each replica's graphs.
        padded (bool): Whether there may be padding rows, padding graphs or graphs without nodes. (default: True)
        max_size (int, optional): Nodes of the largest graph. (default: of the largest in the store)
        num_entries (int, optional): Edge entries of all rows, where known on the host.
        level_rows (list, optional): Rows and members of each precomputed level, where known on the host.
    """
    layout = layout_batch(store.node_ptr, graphs, num_rows, classes=store.y)
    return batch_from_layout(
        store, x, layout, padded=padded, max_size=max_size, num_entries=num_entries, level_rows=level_rows
    )


def batch_from_layout(
    store: BatchSource,
    x: Tensor | FeatureTable,
    layout: BatchLayout,
    *,
    padded: bool = True,
    max_size: int | None = None,
    num_entries: int | None = None,
    level_rows: list[tuple[int, int]] | None = None,
) -> GraphBatch:
    """Makes the batch of a computed layout; the other arguments as in :func:`collate_padded`."""
    bound = store.max_size if max_size is None else max_size
    *lead, B = layout.graphs.shape
    entries = num_entries
    if entries is None:
        entries = math.prod(lead) * store.entry_bound.total(layout.index.size(-1), B)
    segments = Segments(
        layout.ptr, layout.index, padded, bound, may_be_empty=padded and bool(store.empty_graphs.numel())
    )
    segments.memo["row_mask"], segments.memo["graph_mask"] = layout.mask, layout.graph_mask
    table = EdgeTable(
        store.edge_ptr, store.neighbours, store.edge_weight, layout.node, layout.first, num_entries,
        store.max_degree, store.bits, layout.ptr, kind=store.edge_kind, max_entries=entries,
    )  # fmt: skip
    features: Tensor | FeatureRows
    if isinstance(x, FeatureTable):
        features = FeatureRows(x, layout.node, layout.graphs)
    else:
        nodes = layout.node.clamp_min(0)
        features = x.index_select(0, nodes.reshape(-1)).reshape(*nodes.shape, x.size(-1))
    batch = GraphBatch(features, segments, table, layout.y)
    return attach_structure(batch, store.structure, layout.graphs, level_rows)
