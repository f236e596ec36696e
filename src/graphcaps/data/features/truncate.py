"""Truncation of large graphs to their nodes of highest degree, as in the published results."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError

__all__ = ["TruncatedStore", "TruncationWarning", "describe_cuts", "describe_truncation", "truncate_nodes"]


class TruncationWarning(UserWarning):
    """Graphs have more nodes than the model reads."""


@dataclass(frozen=True, eq=False)
class TruncatedStore:
    """Result of :func:`truncate_nodes`.

    Args:
        store (GraphStore): The graphs, none over the limit.
        x (Tensor, optional): The rows of ``x`` of the kept nodes.
        nodes (Tensor): Kept nodes, ascending, as rows of the original store.
        truncated_graphs (int): Number of graphs that were truncated.
        removed_nodes (int): Number of removed nodes.
        removed_edges (int): Number of undirected edges removed with them.
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


def describe_truncation(
    store: GraphStore, max_nodes: int | None, fix: str = "--max-nodes 0 keeps all"
) -> str:
    """A sentence on the nodes that :func:`truncate_nodes` leaves out; "" if there are none.

    Args:
        store (GraphStore): Graphs of any size.
        max_nodes (int, optional): Limit; ``None`` for no limit.
        fix (str): What to do about it, or "".
    """
    if max_nodes is None or store.max_size <= max_nodes:
        return ""
    over = (store.sizes - max_nodes).clamp_min(0)
    count, removed = int((over > 0).sum()), int(over.sum())
    share = 100 * removed / store.num_nodes
    percent = f"{share:.0f} %" if share >= 1 else "less than 1 %"
    return (
        f"{store.name}: {count:,} of {len(store):,} graphs {'has' if count == 1 else 'have'} more than {max_nodes:,} "
        f"nodes; {percent} of all nodes, those of lowest degree, are left out{f'; {fix}' if fix else ''}."
    )


def describe_cuts(store: GraphStore, max_nodes: int | None) -> dict[int, str]:
    """For each graph that :func:`truncate_nodes` truncates, by index from 0, what is left of it in words.

    Args:
        store (GraphStore): Graphs of any size.
        max_nodes (int, optional): Limit; ``None`` for no limit.
    """
    if max_nodes is None or store.max_size <= max_nodes:
        return {}
    return {
        graph: f"it has {size:,} nodes, of which the model reads the {max_nodes:,} of highest degree"
        for graph, size in enumerate(store.sizes.tolist())
        if size > max_nodes
    }


def truncate_nodes(store: GraphStore, max_nodes: int, x: Tensor | None = None) -> TruncatedStore:
    """Truncates every graph with more than ``max_nodes`` nodes to its ``max_nodes`` nodes of highest degree.

    Among equal degrees the lower index is kept. Kept nodes keep their order and the edges between them. Features in
    ``x`` are not recomputed: apply the ``FeatureRecipe`` before truncation, so that degrees are those of the whole
    graph. ``report`` goes on describing the source.

    Args:
        store (GraphStore): Graphs of any size.
        max_nodes (int): Limit, at least 1 (the released program uses 1000).
        x (Tensor, optional): Features of all nodes of the store, ``[N, in]``.

    Raises:
        ArgumentError: If ``max_nodes`` is not a positive integer.
        ShapeError: If ``x`` does not have one row per node.
    """
    if type(max_nodes) is not int or max_nodes < 1:
        raise ArgumentError("truncate_nodes", "max_nodes", "be a positive integer", max_nodes)
    if x is not None and x.size(0) != store.num_nodes:
        raise ShapeError("truncate_nodes", "x", f"have one row per node, {store.num_nodes}", x.size(0))
    over = store.sizes > max_nodes
    truncated_graphs = int(over.sum())
    if not truncated_graphs:
        return TruncatedStore(store, x, torch.arange(store.num_nodes, device=store.device))

    graph = store.node_graph
    # Two stable sorts, by descending degree and then by graph: ties keep the order of their index.
    order = store.degree.neg().argsort(stable=True)
    order = order[graph[order].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel(), device=order.device) - store.node_ptr[graph[order]]
    keep = rank < max_nodes  # [N]
    nodes = keep.nonzero().squeeze(-1)

    node_ptr = torch.nn.functional.pad(store.sizes.clamp_max(max_nodes).cumsum(0), (1, 0))
    new_row = keep.cumsum(0) - 1  # defined for kept nodes
    source, target = store.entry_rows()
    entries = (keep[source] & keep[target]).nonzero().squeeze(-1)
    source, target = source[entries], target[entries]
    local = new_row[target] - node_ptr[graph[source]]
    degree = torch.bincount(new_row[source], minlength=nodes.numel())
    truncated = replace(
        store,
        node_ptr=node_ptr,
        edge_ptr=torch.nn.functional.pad(degree.cumsum(0), (1, 0)),
        neighbours=local.to(store.neighbours.dtype),
        **store.select_columns(nodes, entries),
        structure=None,
    )
    return TruncatedStore(
        truncated,
        None if x is None else x[nodes],
        nodes,
        truncated_graphs,
        store.num_nodes - nodes.numel(),
        store.num_edges - truncated.num_edges,
    )
