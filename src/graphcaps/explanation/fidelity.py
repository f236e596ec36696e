"""Fidelity: what the model says when the best-scored nodes are taken away, or alone are left.

The figures are those of ``torch_geometric.explain.metric.fidelity`` for explanations of the model: of the nodes of
each graph a stated share with the highest scores is the explanation, a mask of ones and zeros.

* fidelity+ is the share of graphs whose predicted class changes when these nodes are masked: high is good.
* fidelity− is the share whose class changes when all *other* nodes are masked: low is good.
* sparsity is the share of nodes that are not in the explanation, mean over graphs.

To mask a node is to replace its features by the blank row (the mean of the training graphs); edges stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.metric import fidelity

from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError
from graphcaps.explanation.baselines import PyGBatch, make_explainer
from graphcaps.explanation.model_inputs import EncodedGraphs, batch_spans
from graphcaps.explanation.pyg_explainer import GraphProbabilities

__all__ = ["Fidelity", "node_fidelity", "pyg_batches", "top_nodes"]


@dataclass(frozen=True)
class Fidelity:
    """Fidelity+, fidelity− and sparsity over a set of graphs."""

    plus: float
    minus: float
    sparsity: float


def top_nodes(scores: Tensor, node_ptr: Tensor, share: float) -> Tensor:
    """The highest ``share`` of each graph's nodes, rounded up, as a mask ``[N]``; the first of equals is taken."""
    if not 0 < share <= 1:
        raise ArgumentError("top_nodes", "share", "be above 0 and at most 1", share)
    sizes = node_ptr.diff()
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes)
    order = scores.argsort(descending=True, stable=True)
    order = order[graph[order].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel()) - node_ptr[graph[order]]
    # A hair less than the share, so that 20 % of 35 are 7 whatever the rounding of the product.
    return rank < (share * sizes - 1e-9).ceil().clamp_min(1)[graph]


def pyg_batches(model: GraphProbabilities, encoded: EncodedGraphs, target: Tensor) -> Iterator[PyGBatch]:
    """EncodedGraphs graphs as torch-geometric has them, so many at a time, their features centred."""
    for first, end in batch_spans(encoded.store, nodes=1 << 12):
        begin, stop = encoded.store.host_node_ptr[[first, end]].tolist()
        part = encoded.store[torch.arange(first, end)]
        x = model.centre(encoded.x[begin:stop].to(model.blank.device))
        batch, edges = part.node_graph.to(x.device), _both_directions(part).to(x.device)
        yield PyGBatch(x, edges, batch, target[first:end].to(x.device))


def node_fidelity(
    model: GraphProbabilities, encoded: EncodedGraphs, target: Tensor, scores: Tensor, share: float
) -> Fidelity:
    """Fidelity of node scores ``[N]`` when the best ``share`` of each graph's nodes is the explanation.

    Args:
        model (GraphProbabilities): The model, with centred features.
        encoded (EncodedGraphs): Graphs.
        target (Tensor): Predicted classes, ``[G]``.
        scores (Tensor): Of all nodes, ``[N]``.
        share (float): Of a graph's nodes.
    """
    ptr = encoded.store.host_node_ptr
    top = top_nodes(scores, ptr, share)
    explainer = make_explainer(model)
    plus = minus = 0.0
    begin = 0
    for graphs in pyg_batches(model, encoded, target):
        mask = top[begin : begin + graphs.x.size(0)].to(graphs.x).unsqueeze(-1)
        begin += graphs.x.size(0)
        explanation = PyGExplanation(
            x=graphs.x, edge_index=graphs.edge_index, batch=graphs.batch, node_mask=mask, target=graphs.target
        )
        explanation._model_args = ["batch"]
        found = fidelity(explainer, explanation)
        plus += found[0] * graphs.target.numel()
        minus += found[1] * graphs.target.numel()
    G = len(encoded.store)
    kept = torch.zeros(G).index_add_(0, encoded.store.node_graph, top.float()) / ptr.diff()
    return Fidelity(plus / G, minus / G, 1 - float(kept.mean()))


def _both_directions(store: GraphStore) -> Tensor:
    source = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    return torch.stack([source, store.neighbours.long() + store.node_ptr[store.node_graph[source]]])
