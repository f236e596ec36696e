"""Graphs of a store joined into a batch: by index arithmetic on the store's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops.kernels import kernels_serve
from graphcaps.types import EdgeTable, GraphBatch, Segments

if TYPE_CHECKING:
    from graphcaps.data.store import GraphStore

__all__ = ["assemble", "draw"]


def draw(store: GraphStore, x: Tensor, graphs: Sequence[int] | Tensor | None = None) -> GraphBatch:
    """What :meth:`GraphStore.batch` returns: sized exactly, from the sizes that the host knows."""
    if x.size(0) != store.num_nodes:
        raise ShapeError("GraphStore.batch", "x", f"have one row per node, {store.num_nodes}", x.size(0))
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
    outside = batch.edges.node < 0
    if batch.x.requires_grad or batch.x.is_cuda:
        return replace(batch, x=batch.x.masked_fill(outside.unsqueeze(-1), 0))
    # The rows were gathered here, and few of them are padding: they alone are written.
    batch.x.view(-1, x.size(-1)).index_fill_(0, outside.reshape(-1).nonzero().squeeze(-1), 0)
    return batch


def assemble(
    store: GraphStore,
    x: Tensor,
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
        x (Tensor): Features of all its nodes, ``[N, in]``.
        graphs (Tensor): Graphs of the batch, on the store's device, ``[*lead, B]``, −1 for none.
        num_slots (int): V; at least the nodes of each replica's graphs together.
        padded (bool): Whether there may be padding slots or graphs. (default: True)
        max_size (int, optional): Nodes of the largest graph. (default: of the largest in the store)
        num_entries (int, optional): Edge entries of all slots, where the host knows them.
    """
    ptr, index, node, first = _slots(store.node_ptr, graphs, num_slots)
    segments = Segments(ptr, index, padded, store.max_size if max_size is None else max_size)
    table = EdgeTable(
        store.edge_ptr, store.neighbours, store.edge_weight, node, first, num_entries,
        store.max_degree, store.bits, ptr,
    )  # fmt: skip
    rows = x.index_select(0, node.clamp_min(0).reshape(-1)).reshape(*node.shape, x.size(-1))
    y = None if store.y is None else store.y[graphs.clamp_min(0)].masked_fill(graphs < 0, -1)
    return GraphBatch(rows, segments, table, y)


def _slots(node_ptr: Tensor, graphs: Tensor, num_slots: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Offsets of the graphs, and of each slot its graph, its node of the store and its graph's first slot."""
    if graphs.is_cuda and kernels_serve(graphs):
        from graphcaps.ops.kernels.slots import slots

        return slots(node_ptr, graphs, num_slots)
    *lead, B = graphs.shape
    known = graphs.clamp_min(0)
    start = node_ptr[known]
    sizes = (node_ptr[known + 1] - start).masked_fill(graphs < 0, 0)
    ptr = torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))  # [*lead, B + 1]
    slot = torch.arange(num_slots, device=graphs.device).expand(*lead, num_slots).contiguous()
    index = torch.searchsorted(ptr[..., 1:].contiguous(), slot, right=True)  # B after the last graph
    own = index.clamp_max(B - 1)
    outside = index == B
    first = ptr[..., :-1].gather(-1, own)
    node = (start.gather(-1, own) + slot - first).masked_fill_(outside, -1)
    return ptr, index, node, first.masked_fill_(outside, 0)
