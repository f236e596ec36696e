"""Graphs of a store joined into a batch: by index arithmetic on the store's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.batch_layout.layout import Slots, lay_out
from graphcaps.types import EdgeTable, FeatureRows, FeatureTable, GraphBatch, Segments

if TYPE_CHECKING:
    from graphcaps.data.store import GraphStore

__all__ = ["assemble", "draw", "join"]


def draw(
    store: GraphStore, x: Tensor | FeatureTable, graphs: Sequence[int] | Tensor | None = None
) -> GraphBatch:
    """What :meth:`GraphStore.batch` returns: sized exactly, from the sizes that the host knows."""
    known_rows = len(x.x if isinstance(x, FeatureTable) else x)
    if known_rows != store.num_nodes:
        raise ShapeError("GraphStore.batch", "x", f"have one row per node, {store.num_nodes}", known_rows)
    chosen = torch.arange(len(store)) if graphs is None else torch.as_tensor(graphs)
    if chosen.numel() == 0:
        raise ShapeError("GraphStore.batch", "graphs", "name at least one graph", "none")
    if chosen.dtype == torch.bool or chosen.is_floating_point():
        fix = "Use mask.nonzero() for a mask."
        raise ArgumentError("GraphStore.batch", "graphs", "hold whole numbers", str(chosen.dtype), fix)
    host = chosen.cpu().long()
    if int(host.max()) >= len(store) or int(host.min()) < -1:
        wrong = int(host.max()) if int(host.max()) >= len(store) else int(host.min())
        raise ArgumentError(
            "GraphStore.batch", "graphs", f"name graphs from 0 to {len(store) - 1} (−1 for none)", wrong
        )
    empty = host < 0
    known = host.clamp_min(0)
    sizes = (store.host_node_ptr[known + 1] - store.host_node_ptr[known]).masked_fill(empty, 0)
    entries = (store.host_entry_ptr[known + 1] - store.host_entry_ptr[known]).masked_fill(empty, 0)
    longest = int(sizes.sum(-1).max())
    padded = bool(empty.any()) or bool((sizes.sum(-1) < longest).any())
    num_entries, max_size = int(entries.sum()), int(sizes.max())

    batch = assemble(
        store, x, chosen.long().to(store.device), longest,
        padded=padded, max_size=max_size, num_entries=num_entries,
    )  # fmt: skip
    if not padded:
        return batch
    if isinstance(batch.features, FeatureRows):
        return replace(batch, features=replace(batch.features, cleared=True))
    outside = batch.edges.node < 0
    if batch.x.requires_grad or batch.x.is_cuda:
        return replace(batch, features=batch.x.masked_fill(outside.unsqueeze(-1), 0))
    # The rows were gathered here, and few of them are padding: they alone are written.
    batch.x.view(-1, batch.x.size(-1)).index_fill_(0, outside.reshape(-1).nonzero().squeeze(-1), 0)
    return batch


def assemble(
    store: GraphStore,
    x: Tensor | FeatureTable,
    graphs: Tensor,
    num_slots: int,
    *,
    padded: bool = True,
    max_size: int | None = None,
    num_entries: int | None = None,
) -> GraphBatch:
    """A batch by index arithmetic alone; sizes that the host does not state are bounds over the whole store.

    Slots after the last graph of a replica are padding; what stands in their rows of ``x`` is not defined.

    Args:
        store (GraphStore): All graphs.
        x (Tensor or FeatureTable): Features of all its nodes, ``[N, in]``; of a table no row is gathered
            until somebody asks for ``batch.x``.
        graphs (Tensor): Graphs of the batch, on the store's device, ``[*lead, B]``, −1 for none.
        num_slots (int): V; at least the nodes of each replica's graphs together.
        padded (bool): Whether there may be padding slots or graphs. (default: True)
        max_size (int, optional): Nodes of the largest graph. (default: of the largest in the store)
        num_entries (int, optional): Edge entries of all slots, where the host knows them.
    """
    laid = lay_out(store.node_ptr, graphs, num_slots, classes=store.y)
    return join(store, x, laid, padded=padded, max_size=max_size, num_entries=num_entries)


def join(
    store: GraphStore,
    x: Tensor | FeatureTable,
    laid: Slots,
    *,
    padded: bool = True,
    max_size: int | None = None,
    num_entries: int | None = None,
) -> GraphBatch:
    """The batch of graphs that are laid out; the other arguments as in :func:`assemble`."""
    segments = Segments(laid.ptr, laid.index, padded, store.max_size if max_size is None else max_size)
    segments.memo["row_mask"] = laid.mask
    table = EdgeTable(
        store.edge_ptr, store.neighbours, store.edge_weight, laid.node, laid.first, num_entries,
        store.max_degree, store.bits, laid.ptr,
    )  # fmt: skip
    features: Tensor | FeatureRows
    if isinstance(x, FeatureTable):
        features = FeatureRows(x, laid.node, laid.graphs)
    else:
        nodes = laid.node.clamp_min(0)
        features = x.index_select(0, nodes.reshape(-1)).reshape(*nodes.shape, x.size(-1))
    return GraphBatch(features, segments, table, laid.y)
