"""Occlusion: the probability that a prediction loses when a group of nodes is masked.

Masking a node replaces its features by the reference features, which are zero in centred features; edges stay. All
masked copies of the graphs are predicted in batches.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from graphcaps.explanation.pyg_explainer import GraphProbabilities, PyGBatch

__all__ = ["neighbourhood_occlusion", "occlude_groups"]

_MAX_NODES = 1 << 14  # of the masked copies in a batch


@torch.no_grad()
def occlude_groups(model: GraphProbabilities, graphs: PyGBatch, group: Tensor, node: Tensor) -> Tensor:
    """Decrease of the target's probability if all nodes of a group are masked, for K groups, ``[K]``.

    Groups may overlap; the nodes of one group are of one graph.

    Args:
        model (GraphProbabilities): The model, for centred features.
        graphs (PyGBatch): The graphs; nodes and edges of a graph are consecutive.
        group, node (Tensor): Group and row of each member, ``[M]``; groups are numbered from 0 without gaps.
    """
    B, device = graphs.target.numel(), graphs.x.device
    K = int(group.max()) + 1
    of_graph = torch.zeros(K, dtype=torch.long, device=device).scatter(0, group, graphs.batch[node])
    sizes = torch.bincount(graphs.batch, minlength=B)
    edge_counts = torch.bincount(graphs.batch[graphs.edge_index[0]], minlength=B)
    first_node, first_edge = sizes.cumsum(0) - sizes, edge_counts.cumsum(0) - edge_counts
    before = model(graphs.x, graphs.edge_index, graphs.batch, graphs.edge_attr)
    before = before.gather(1, graphs.target.unsqueeze(1)).squeeze(1)
    decrease = torch.empty(K, dtype=graphs.x.dtype, device=device)
    for copies in _chunks(sizes[of_graph]):
        graph = of_graph[copies]
        copy, rows = _ranges(first_node[graph], sizes[graph])
        starts = sizes[graph].cumsum(0) - sizes[graph]
        edge_copy, edge_rows = _ranges(first_edge[graph], edge_counts[graph])
        edges = graphs.edge_index[:, edge_rows] + (starts - first_node[graph])[edge_copy]
        labels = None if graphs.edge_attr is None else graphs.edge_attr[edge_rows]
        x = graphs.x[rows]
        chosen = (group >= copies[0]) & (group <= copies[-1])
        local = group[chosen] - copies[0]
        x[(starts - first_node[graph])[local] + node[chosen]] = 0
        after = model(x, edges, copy, labels).gather(1, graphs.target[graph].unsqueeze(1)).squeeze(1)
        decrease[copies] = before[graph] - after
    return decrease


def neighbourhood_occlusion(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """Score of each node: the decrease if the node and its neighbours are masked, ``[V]``."""
    nodes = torch.arange(graphs.x.size(0), device=graphs.x.device)
    source, target = graphs.edge_index
    return occlude_groups(model, graphs, torch.cat([nodes, source]), torch.cat([nodes, target]))


def _chunks(sizes: Tensor) -> list[Tensor]:
    """Indices of consecutive copies, so many at a time that their nodes fit into a batch, at least one."""
    bounds = [0]
    total = 0
    for index, size in enumerate(sizes.tolist()):
        if total + size > _MAX_NODES and index > bounds[-1]:
            bounds.append(index)
            total = 0
        total += size
    bounds.append(sizes.numel())
    return [torch.arange(first, end, device=sizes.device) for first, end in pairwise(bounds)]


def _ranges(first: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the range and value of each entry of consecutive ranges ``first[i] … first[i] + counts[i] − 1``."""
    index = torch.arange(first.numel(), device=first.device).repeat_interleave(counts)
    inside = torch.arange(index.numel(), device=first.device) - (counts.cumsum(0) - counts)[index]
    return index, first[index] + inside
