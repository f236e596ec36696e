"""Node attribution methods for comparison: gradient, integrated gradients, GNNExplainer, random.

All use centred features (:class:`GraphProbabilities`), in which zero is the reference node.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.explain import Explainer, GNNExplainer

from graphcaps.explanation.pyg_explainer import CapsuleExplainer, GraphProbabilities, node_scores

__all__ = ["ATTRIBUTION_METHODS", "MODEL_CONFIG", "PyGBatch", "attribute_nodes", "make_explainer"]

MODEL_CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "probs"}
"""Model description for torch-geometric's ``Explainer``."""

INTEGRATION_STEPS = 32
"""Steps of the path integral of integrated gradients."""
GNN_EXPLAINER_EPOCHS = 100
"""Training epochs of GNNExplainer (its default)."""


@dataclass(frozen=True, eq=False)
class PyGBatch:
    """A torch-geometric batch with the target class of each graph.

    Args:
        x (Tensor): Centred features, ``[V, in]``.
        edge_index (Tensor): Both directions, ``[2, E]``.
        batch (Tensor): ``[V]``.
        target (Tensor): ``[B]``.
        edge_attr (Tensor, optional): Labels of the edges, for a model that reads them, ``[E, C]``.
    """

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    target: Tensor
    edge_attr: Tensor | None = None


def attribute_nodes(method: str, model: GraphProbabilities, graphs: PyGBatch, seed: int = 0) -> Tensor:
    """Node scores by one of :data:`ATTRIBUTION_METHODS`, ``[V]``; a higher score means more support for the target."""
    torch.manual_seed(seed)
    scores: Tensor = ATTRIBUTION_METHODS[method](model, graphs)
    return scores.detach()


def _capsules(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    return node_scores(
        model,
        graphs.x,
        graphs.edge_index,
        graphs.batch,
        target=graphs.target,
        edge_attr=graphs.edge_attr,
    )


def _probability_gradient(model: GraphProbabilities, graphs: PyGBatch, x: Tensor) -> Tensor:
    """Gradient of the target probability with respect to the features."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        probabilities = model(x, graphs.edge_index, graphs.batch, graphs.edge_attr)
        probability = probabilities.gather(-1, graphs.target.unsqueeze(-1))
        (gradient,) = torch.autograd.grad(probability.sum(), x)
    return gradient


def _gradient(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """Gradient times input."""
    return (_probability_gradient(model, graphs, graphs.x) * graphs.x).sum(-1)


def _integrated(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """Integrated gradients along the straight path from the reference (midpoint rule)."""
    total = torch.zeros_like(graphs.x)
    for step in range(INTEGRATION_STEPS):
        total += _probability_gradient(model, graphs, graphs.x * ((step + 0.5) / INTEGRATION_STEPS))
    return (total / INTEGRATION_STEPS * graphs.x).sum(-1)


def _gnn_explainer(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """torch-geometric's GNNExplainer with default settings and a node mask, graph by graph."""
    scores = torch.zeros_like(graphs.x[:, 0])
    explainer = Explainer(
        model,
        GNNExplainer(epochs=GNN_EXPLAINER_EPOCHS),
        explanation_type="model",
        node_mask_type="object",
        model_config=MODEL_CONFIG,
    )
    for graph in range(graphs.target.numel()):
        rows = (graphs.batch == graph).nonzero().squeeze(-1)
        edges = graphs.batch[graphs.edge_index[0]] == graph
        labels = {} if graphs.edge_attr is None else {"edge_attr": graphs.edge_attr[edges]}
        explanation = explainer(graphs.x[rows], graphs.edge_index[:, edges] - rows[0], **labels)
        scores[rows] = explanation.node_mask.squeeze(-1)
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
"""Attribution methods by name; ``capsules`` is that of :func:`graphcaps.explain`."""


def make_explainer(model: GraphProbabilities) -> Explainer:
    """An ``Explainer`` for torch-geometric's metrics."""
    return Explainer(
        model,
        CapsuleExplainer(),
        explanation_type="model",
        node_mask_type="object",
        model_config=MODEL_CONFIG,
    )
