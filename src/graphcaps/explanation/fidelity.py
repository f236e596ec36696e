"""Fidelity of node scores: predictions without the top-scored nodes, and with these nodes only.

Computed by ``torch_geometric.explain.metric.fidelity`` for model explanations. The explanation of a graph is a binary
mask of the top-scored fraction of its nodes.

* fidelity+ is the fraction of graphs whose predicted class changes when these nodes are masked: higher is better.
* fidelity− is the fraction whose class changes when all *other* nodes are masked: lower is better.
* sparsity is the fraction of nodes outside the explanation, mean over graphs.

Masking a node replaces its features by the reference features (the mean over training nodes); edges stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.metric import fidelity

from graphcaps.errors import ArgumentError
from graphcaps.explanation.baselines import make_explainer
from graphcaps.explanation.model_inputs import ModelInputs, batch_spans
from graphcaps.explanation.pyg_explainer import GraphProbabilities, PyGBatch
from graphcaps.ops.edge_kinds import kind_labels

__all__ = ["Fidelity", "node_fidelity", "pyg_batches", "top_nodes"]


@dataclass(frozen=True)
class Fidelity:
    """Fidelity+, fidelity− and sparsity, mean over graphs."""

    plus: float
    minus: float
    sparsity: float


def top_nodes(scores: Tensor, node_ptr: Tensor, share: float) -> Tensor:
    """Mask of the top fraction ``share`` of each graph's nodes, rounded up, ``[N]``; ties go to the first node."""
    if not 0 < share <= 1:
        raise ArgumentError("top_nodes", "share", "be above 0 and at most 1", share)
    sizes = node_ptr.diff()
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes)
    order = scores.argsort(descending=True, stable=True)
    order = order[graph[order].argsort(stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel()) - node_ptr[graph[order]]
    # The small offset makes 20 % of 35 nodes exactly 7, whatever the rounding of the product.
    return rank < (share * sizes - 1e-9).ceil().clamp_min(1)[graph]


def pyg_batches(model: GraphProbabilities, encoded: ModelInputs, target: Tensor) -> Iterator[PyGBatch]:
    """The graphs as torch-geometric has them, so many at a time, their features centred."""
    for first, end in batch_spans(encoded.store, nodes=1 << 12):
        begin, stop = encoded.store.host_node_ptr[[first, end]].tolist()
        part = encoded.store[torch.arange(first, end)]
        x = model.centre(encoded.x[begin:stop].to(model.reference.device))
        batch, edges = part.node_graph.to(x.device), part.entry_rows().to(x.device)
        kinds, labels = model.network.edge_kinds, None
        if kinds and part.edge_kind is not None:
            labels = kind_labels(part.edge_kind, kinds).to(x.device)
        yield PyGBatch(x, edges, batch, target[first:end].to(x.device), labels)


def node_fidelity(
    model: GraphProbabilities, encoded: ModelInputs, target: Tensor, scores: Tensor, share: float
) -> Fidelity:
    """Fidelity of node scores when the top fraction ``share`` of each graph's nodes is the explanation.

    Args:
        model (GraphProbabilities): The model, for centred features.
        encoded (ModelInputs): Graphs.
        target (Tensor): Predicted classes, ``[G]``.
        scores (Tensor): Node scores, ``[N]``.
        share (float): Fraction of a graph's nodes in the explanation.
    """
    ptr = encoded.store.host_node_ptr
    top = top_nodes(scores, ptr, share)
    explainer = make_explainer(model)
    plus = minus = 0.0
    begin = 0
    for graphs in pyg_batches(model, encoded, target):
        mask = top[begin : begin + graphs.x.size(0)].to(graphs.x).unsqueeze(-1)
        begin += graphs.x.size(0)
        arguments = {"batch": graphs.batch}
        if graphs.edge_attr is not None:
            arguments["edge_attr"] = graphs.edge_attr
        explanation = PyGExplanation(
            x=graphs.x, edge_index=graphs.edge_index, node_mask=mask, target=graphs.target, **arguments
        )
        explanation._model_args = list(arguments)
        batch_plus, batch_minus = fidelity(explainer, explanation)
        plus += batch_plus * graphs.target.numel()
        minus += batch_minus * graphs.target.numel()
    G = len(encoded.store)
    kept = torch.zeros(G).index_add_(0, encoded.store.node_graph, top.float()) / ptr.diff()
    return Fidelity(plus / G, minus / G, 1 - float(kept.mean()))
