"""Attribution methods for comparison: gradients, occlusion, GNNExplainer, PGExplainer, random.

All use centred features (:class:`GraphProbabilities`), in which zero is the reference node.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explainer, GNNExplainer, PGExplainer

from graphcaps.explanation.occlusion import neighbourhood_occlusion, occlude_groups
from graphcaps.explanation.pyg_explainer import (
    CapsuleExplainer,
    GraphProbabilities,
    PyGBatch,
    groups_of_nodes,
    node_scores,
)

__all__ = ["ATTRIBUTION_METHODS", "MODEL_CONFIG", "Attribution", "attribute", "make_explainer"]

MODEL_CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "probs"}
"""Model description for torch-geometric's ``Explainer``."""

INTEGRATION_STEPS = 32
"""Steps of the path integral of integrated gradients."""
GNN_EXPLAINER_EPOCHS = 100
"""Training epochs of GNNExplainer (its default)."""
PG_EXPLAINER_EPOCHS = 30
"""Training epochs of PGExplainer, as in torch-geometric's documentation."""


@dataclass(frozen=True, eq=False)
class Attribution:
    """Scores of nodes and edges; a higher score means more support for the target.

    Args:
        nodes (Tensor): ``[V]``.
        edges (Tensor): Of each entry of ``edge_index``, equal for both directions, ``[E]``.
    """

    nodes: Tensor
    edges: Tensor


def attribute(method: str, model: GraphProbabilities, graphs: PyGBatch, seed: int = 0) -> Attribution:
    """Scores by one of :data:`ATTRIBUTION_METHODS`.

    The score of an edge is the mean of the scores of its nodes. PGExplainer scores edges instead, and a node has the
    score of its highest edge.
    """
    torch.manual_seed(seed)
    if method == "pgexplainer":
        edges = _pg_explainer(model, graphs)
        lowest = edges.min() if edges.numel() else 0.0
        nodes = torch.full_like(graphs.x[:, 0], float(lowest))
        return Attribution(nodes.scatter_reduce(0, graphs.edge_index[0], edges, "amax"), edges)
    scores = ATTRIBUTION_METHODS[method](model, graphs).detach()
    return Attribution(scores, scores[graphs.edge_index].mean(0))


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


def _group_occlusion(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """Score of each node: the decrease if its group is masked."""
    group = groups_of_nodes(model, graphs)
    nodes = torch.arange(group.numel(), device=group.device)
    return occlude_groups(model, graphs, group, nodes)[group]


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
    for one in _single_graphs(graphs):
        explanation = explainer(one.x, one.edge_index, **one.labels)
        scores[one.rows] = explanation.node_mask.squeeze(-1)
    return scores


class _EmbeddingPGExplainer(PGExplainer):
    """PGExplainer with the embeddings of :meth:`GraphProbabilities.embeddings`."""

    def _get_embeddings(self, model: Any, x: Tensor, edge_index: Tensor, **options: Any) -> Tensor:
        embeddings: Tensor = model.embeddings(x, edge_index, **options)
        return embeddings


def _pg_explainer(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    """Edge scores of torch-geometric's PGExplainer, trained on these graphs and the model's predictions of them."""
    algorithm = _EmbeddingPGExplainer(epochs=PG_EXPLAINER_EPOCHS).to(graphs.x)
    explainer = Explainer(
        model,
        algorithm,
        explanation_type="phenomenon",
        edge_mask_type="object",
        model_config=MODEL_CONFIG,
    )
    singles = [one for one in _single_graphs(graphs) if one.edge_index.size(1)]
    scores = torch.zeros_like(graphs.x[:1, 0]).expand(graphs.edge_index.size(1)).clone()
    with _frozen(model), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Converting a tensor with requires_grad=True")  # it logs its loss
        for epoch in range(PG_EXPLAINER_EPOCHS):
            for one in singles:
                algorithm.train(epoch, model, one.x, one.edge_index, target=one.target, **one.labels)
    for one in singles:
        explanation = explainer(one.x, one.edge_index, target=one.target, **one.labels)
        scores[one.edges] = explanation.edge_mask.detach()
    return _both_directions_mean(scores, graphs)


@contextmanager
def _frozen(model: GraphProbabilities) -> Iterator[None]:
    """Parameters without gradients, so that the training of an explainer leaves none in them."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _both_directions_mean(scores: Tensor, graphs: PyGBatch) -> Tensor:
    """Mean over the two entries of each edge, ``[E]``."""
    source, target = graphs.edge_index
    V = graphs.x.size(0)
    forward, backward = (source * V + target).argsort(), (target * V + source).argsort()
    reverse = torch.empty_like(forward)
    reverse[forward] = backward
    return (scores + scores[reverse]) / 2


@dataclass(frozen=True, eq=False)
class _SingleGraph:
    """One graph of a batch: its rows and entries there, and what an explainer takes."""

    rows: Tensor
    edges: Tensor
    x: Tensor
    edge_index: Tensor
    target: Tensor
    labels: dict[str, Tensor]


def _single_graphs(graphs: PyGBatch) -> list[_SingleGraph]:
    singles = []
    for graph in range(graphs.target.numel()):
        rows = (graphs.batch == graph).nonzero().squeeze(-1)
        edges = (graphs.batch[graphs.edge_index[0]] == graph).nonzero().squeeze(-1)
        labels = {} if graphs.edge_attr is None else {"edge_attr": graphs.edge_attr[edges]}
        edge_index = graphs.edge_index[:, edges] - rows[0]
        singles.append(
            _SingleGraph(rows, edges, graphs.x[rows], edge_index, graphs.target[graph : graph + 1], labels)
        )
    return singles


def _random(model: GraphProbabilities, graphs: PyGBatch) -> Tensor:
    return torch.rand(graphs.x.size(0), dtype=graphs.x.dtype).to(graphs.x.device)


ATTRIBUTION_METHODS: dict[str, Callable[[GraphProbabilities, PyGBatch], Tensor]] = {
    "capsules": _capsules,
    "gradient": _gradient,
    "integrated-gradients": _integrated,
    "occlusion": neighbourhood_occlusion,
    "group-occlusion": _group_occlusion,
    "gnnexplainer": _gnn_explainer,
    "pgexplainer": _pg_explainer,
    "random": _random,
}
"""Attribution methods by name: scores of nodes, of ``pgexplainer`` of edges. ``capsules`` is that of
:func:`graphcaps.explain`."""


def make_explainer(model: GraphProbabilities) -> Explainer:
    """An ``Explainer`` for torch-geometric's metrics."""
    return Explainer(
        model,
        CapsuleExplainer(),
        explanation_type="model",
        node_mask_type="object",
        model_config=MODEL_CONFIG,
    )
