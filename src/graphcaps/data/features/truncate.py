"""An upper limit on the nodes of a graph, as the published figures were made with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError

__all__ = ["TruncatedStore", "truncate_nodes"]


@dataclass(frozen=True, eq=False)
class TruncatedStore:
    """What :func:`truncate_nodes` kept.

    Args:
        store (GraphStore): The graphs, none over the limit.
        x (Tensor, optional): The rows of ``x`` that belong to the kept nodes.
        nodes (Tensor): Kept nodes, ascending, as rows of the store before the cut.
        truncated_graphs (int): Graphs that lost nodes.
        removed_nodes (int): Nodes that were removed.
        removed_edges (int): Undirected edges that went with them.
    """

    store: GraphStore
    x: Tensor | None
    nodes: Tensor
    truncated_graphs: int = 0
    removed_nodes: int = 0
    removed_edges: int = 0

    def __repr__(self) -> str:
        counts = (
            f"truncated_graphs={self.truncated_graphs}, removed_nodes={self.removed_nodes}, "
            f"removed_edges={self.removed_edges}"
        )
        return f"TruncatedStore({self.store!r}, {counts})"


def truncate_nodes(store: GraphStore, max_nodes: int, x: Tensor | None = None) -> TruncatedStore:
    """Keeps of every graph over ``max_nodes`` its ``max_nodes`` nodes of highest degree.

    Among equal degrees the lower index stays; kept nodes keep their order, and the edges among them stay.
    Degrees, and features handed over in ``x``, are those of the whole graph: apply the ``FeatureRecipe``
    first, then cut. ``report`` goes on describing the source.

    Args:
        store (GraphStore): Graphs of any size.
        max_nodes (int): Limit, at least 1 (the released program uses 1000).
        x (Tensor, optional): Features of all nodes of the store, ``[N, in]``.
    """
    if type(max_nodes) is not int or max_nodes < 1:
        raise ArgumentError("truncate_nodes", "max_nodes", "be a whole number from 1 on", max_nodes)
    if x is not None and x.size(0) != store.num_nodes:
        raise ShapeError("truncate_nodes", "x", f"have one row per node, {store.num_nodes}", x.size(0))
    over = store.sizes > max_nodes
    truncated_graphs = int(over.sum())
    if not truncated_graphs:
        return TruncatedStore(store, x, torch.arange(store.num_nodes, device=store.device))

    graph = store.node_graph
    # Two stable sorts: by falling degree, then by graph, so that ties stay in the order of their index.
    order = store.degree.neg().argsort(stable=True)
    order = order[graph[order].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel(), device=order.device) - store.node_ptr[graph[order]]
    keep = rank < max_nodes  # [N]
    nodes = keep.nonzero().squeeze(-1)

    node_ptr = torch.nn.functional.pad(store.sizes.clamp_max(max_nodes).cumsum(0), (1, 0))
    new_row = keep.cumsum(0) - 1  # where kept
    source = torch.arange(store.num_nodes, device=store.device).repeat_interleave(store.degree)
    target = store.neighbours + store.node_ptr[graph[source]]
    entries = (keep[source] & keep[target]).nonzero().squeeze(-1)
    source, target = source[entries], target[entries]
    local = new_row[target] - node_ptr[graph[source]]
    degree = torch.bincount(new_row[source], minlength=nodes.numel())

    def pick(tensor: Tensor | None, rows: Tensor) -> Tensor | None:
        return None if tensor is None else tensor[rows]

    capped = replace(
        store,
        node_ptr=node_ptr,
        edge_ptr=torch.nn.functional.pad(degree.cumsum(0), (1, 0)),
        neighbours=local.to(store.neighbours.dtype),
        node_labels=pick(store.node_labels, nodes),
        node_attributes=pick(store.node_attributes, nodes),
        edge_labels=pick(store.edge_labels, entries),
        edge_attributes=pick(store.edge_attributes, entries),
        edge_weight=pick(store.edge_weight, entries),
        truth={key: value[nodes] for key, value in store.truth.items()},
    )
    return TruncatedStore(
        capped,
        pick(x, nodes),
        nodes,
        truncated_graphs,
        store.num_nodes - nodes.numel(),
        store.num_edges - capped.num_edges,
    )
