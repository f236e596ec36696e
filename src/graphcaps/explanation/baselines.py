"""Other ways to score nodes, for comparison: gradient, integrated gradients, GNNExplainer, chance.

All read centred features (:class:`GraphProbabilities`), in which zero is a node that says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.explain import Explainer, GNNExplainer

from graphcaps.explanation.pyg_explainer import CapsuleExplainer, GraphProbabilities, node_scores

__all__ = ["ATTRIBUTION_METHODS", "CONFIG", "PyGBatch", "attribute_nodes", "make_explainer"]

CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "probs"}
"""What torch-geometric is told about the model."""

STEPS = 32
"""Points on the way from blank nodes to the graph at which integrated gradients are taken."""
EPOCHS = 100
"""GNNExplainer's default."""


@dataclass(frozen=True, eq=False)
class PyGBatch:
    """Graphs in torch-geometric's form, and the class that each is explained for.

    Args:
        x (Tensor): Centred features, ``[V, in]``.
        edge_index (Tensor): Both directions, ``[2, E]``.
        batch (Tensor): ``[V]``.
        target (Tensor): ``[B]``.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    target: Tensor


def attribute_nodes(method: str, model: GraphProbabilities, graphs: PyGBatch, seed: int = 0) -> Tensor:
    """Scores of one of :data:`ATTRIBUTION_METHODS`, ``[V]``; higher speaks more for the target."""
    torch.manual_seed(seed)
    scores: Tensor = ATTRIBUTION_METHODS[method](model, graphs)
    return scores.detach()


def _capsules(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    return node_scores(model, graphs.x, graphs.edge_index, graphs.batch, target=graphs.target)


def _slope(model: GraphProbabilities, graphs: PyGBatch, x: Tensor) -> Tensor:
    """Of the target's probability, in the features."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        share = model(x, graphs.edge_index, graphs.batch).gather(-1, graphs.target.unsqueeze(-1))
        (slope,) = torch.autograd.grad(share.sum(), x)
    return slope


def _gradient(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """Gradient times input."""
    return (_slope(model, graphs, graphs.x) * graphs.x).sum(-1)


def _integrated(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """The same, its gradient averaged along the straight way from all nodes blank (midpoints of equal steps)."""
    total = torch.zeros_like(graphs.x)
    for step in range(STEPS):
        total += _slope(model, graphs, graphs.x * ((step + 0.5) / STEPS))
    return (total / STEPS * graphs.x).sum(-1)


def _gnn_explainer(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """torch-geometric's, as it comes, graph by graph, with a mask on nodes."""
    scores = torch.zeros_like(graphs.x[:, 0])
    explainer = Explainer(
        model,
        GNNExplainer(epochs=EPOCHS),
        explanation_type="model",
        node_mask_type="object",
        model_config=CONFIG,
    )
    for graph in range(graphs.target.numel()):
        rows = (graphs.batch == graph).nonzero().squeeze(-1)
        own = graphs.batch[graphs.edge_index[0]] == graph
        found = explainer(graphs.x[rows], graphs.edge_index[:, own] - rows[0])
        scores[rows] = found.node_mask.squeeze(-1)
    return scores


def _random(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    return torch.rand(graphs.x.size(0), dtype=graphs.x.dtype)


ATTRIBUTION_METHODS = {
    "capsules": _capsules,
    "gradient": _gradient,
    "integrated-gradients": _integrated,
    "gnnexplainer": _gnn_explainer,
    "random": _random,
}
"""Ways to score nodes, ours first."""


def make_explainer(model: GraphProbabilities) -> Explainer:
    """What torch-geometric's metrics ask for predictions."""
    return Explainer(
        model, CapsuleExplainer(), explanation_type="model", node_mask_type="object", model_config=CONFIG
    )
