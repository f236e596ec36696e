"""Networks in torch-geometric's ``Explainer``: a model wrapper, and the capsule scores as an explanation algorithm."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType, ModelMode, ModelTaskLevel
from torch_geometric.nn import MessagePassing

from graphcaps.errors import ArgumentError
from graphcaps.explanation.attributions import node_attributions, reference_features
from graphcaps.explanation.model_inputs import unwrap_hgcn, unwrap_network
from graphcaps.explanation.truth_metrics import connected_nodes
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.nn.hard_assignment import group_nodes, hard_assignment
from graphcaps.nn.hgcn import HGCN
from graphcaps.ops.edge_kinds import edge_kind
from graphcaps.ops.edges import edge_table
from graphcaps.types import GraphBatch, Segments

__all__ = ["CapsuleExplainer", "GraphProbabilities", "PyGBatch", "groups_of_nodes", "node_scores"]


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


class GraphProbabilities(nn.Module):
    """A network with the call signature of torch-geometric's explainers: features and edges to probabilities.

    Edge masks that an explainer sets are used as edge weights.

    Args:
        model: An :class:`graphcaps.nn.HGCN` or another network, or a ``FittedModel`` with one; it is put into
            evaluation mode.
        centred (bool): Whether features are differences from the reference features, see :meth:`centre`. Explainers
            mask a node by setting its features to zero. With centred features a masked node equals the average node
            instead of an input that never occurred in training. (default: False)
        reference (Tensor, optional): Reference features, ``[in]``. (default: those of
            :func:`graphcaps.explanation.attributions.reference_features` for an HGCN, zeros for other networks)

    Returns (from ``forward``):
        Tensor: Lengths of the class capsules divided by their sum, or the softmax of logits, ``[B, O]``.
    """

    reference: Tensor

    def __init__(
        self,
        model: nn.Module | FittedModel,
        *,
        centred: bool = False,
        reference: Tensor | None = None,
    ) -> None:
        super().__init__()
        members = model.members if isinstance(model, FittedModel) else (model,)
        if len(members) > 1:
            fix = "Explain one of its members, such as model.member(0)."
            raise ArgumentError(
                "GraphProbabilities", "model", "be a single model", f"{len(members)} members", fix
            )
        self.network = unwrap_network(model).eval()
        row = next(self.network.parameters()).new_zeros(self.network.in_channels)
        if reference is not None:
            row = reference.to(row)
        elif isinstance(self.network, HGCN):
            row = reference_features(self.network)
        self.register_buffer("reference", row if centred else torch.zeros_like(row))
        self.edge_masks = _EdgeMasks()
        # torch-geometric's Explainer restores the mode that it finds. In training mode the norms would update their
        # statistics with the masked inputs.
        self.eval()

    def centre(self, x: Tensor) -> Tensor:
        """Features of a recipe minus the reference features, as ``forward`` expects them."""
        return x - self.reference

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Probabilities of the graphs; arguments as in :meth:`graphcaps.nn.HGCN.forward`."""
        weight = self.edge_masks.weights()
        output = self.network(x + self.reference, edge_index, batch, edge_weight=weight, edge_attr=edge_attr)
        scores: Tensor = output.class_scores
        # Explainers take the logarithm of a probability, whose gradient must be finite.
        smallest = torch.finfo(scores.dtype).tiny ** 0.5
        if self.network.scores == "logits":
            return scores.softmax(-1).clamp_min(smallest)
        scores = scores.clamp_min(smallest)
        return scores / scores.sum(-1, keepdim=True)

    @torch.no_grad()
    def embeddings(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Embeddings of the nodes: the output of the last module that gives one row per node, ``[V, d]``."""
        rows: list[Tensor] = []

        def keep(module: nn.Module, arguments: tuple[Any, ...], output: object) -> None:
            if isinstance(output, Tensor) and output.dim() == 2 and output.size(0) == x.size(0):
                rows.append(output)

        hooks = [module.register_forward_hook(keep) for module in self.network.modules()]
        try:
            self(x, edge_index, batch, edge_attr)
        finally:
            for hook in hooks:
                hook.remove()
        return rows[-1] if rows else x


class _EdgeMasks(MessagePassing):
    """Receives the edge masks that torch-geometric sets on ``MessagePassing`` layers; it passes no messages."""

    _edge_mask: Tensor | None
    _apply_sigmoid: bool

    def weights(self) -> Tensor | None:
        mask = self._edge_mask
        if mask is None:
            return None
        return mask.sigmoid() if self._apply_sigmoid else mask


class CapsuleExplainer(ExplainerAlgorithm):
    """HGCN's own node and edge scores as a torch-geometric ``ExplainerAlgorithm``.

    Masks are the positive scores of :func:`graphcaps.explain` for the target, divided by the largest of each graph.
    They take one forward and one backward pass for all graphs; nothing is trained.

    Example:
        >>> explainer = torch_geometric.explain.Explainer(           # doctest: +SKIP
        ...     GraphProbabilities(model), CapsuleExplainer(), explanation_type="model",
        ...     node_mask_type="object", edge_mask_type="object",
        ...     model_config=dict(mode="multiclass_classification", task_level="graph", return_type="probs"))
        >>> explainer(x, edge_index, batch=batch).node_mask          # doctest: +SKIP
    """

    def forward(
        self,
        model: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        **kwargs: Any,
    ) -> PyGExplanation:
        if batch is None:
            batch = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        scores = node_scores(model, x, edge_index, batch, target=target, edge_attr=edge_attr).clamp_min(0)
        largest = scores.new_zeros(target.numel()).scatter_reduce(0, batch, scores, "amax")
        mask = scores / largest.clamp_min(torch.finfo(scores.dtype).tiny)[batch]
        if index is not None:  # explain only these graphs of the batch
            selected = torch.zeros(target.numel(), dtype=torch.bool, device=x.device)
            selected[index] = True
            mask = mask.masked_fill(~selected[batch], 0)
        ends = mask[edge_index].mean(0)
        nodes = self.explainer_config.node_mask_type is not None
        edges = self.explainer_config.edge_mask_type is not None
        return PyGExplanation(
            node_mask=mask.unsqueeze(-1) if nodes else None, edge_mask=ends if edges else None
        )

    def supports(self) -> bool:
        config, model = self.explainer_config, self.model_config
        for what, kind in (("node", config.node_mask_type), ("edge", config.edge_mask_type)):
            if kind not in (None, MaskType.object):
                logging.error(
                    f"'CapsuleExplainer' has one score per {what}; the mask type '{kind.value}' is not supported"
                )
                return False
        if model.mode != ModelMode.multiclass_classification or model.task_level != ModelTaskLevel.graph:
            logging.error("'CapsuleExplainer' supports graph-level 'multiclass_classification' only")
            return False
        return True


def node_scores(
    model: nn.Module,
    x: Tensor,
    edge_index: Tensor,
    batch: Tensor,
    *,
    target: Tensor,
    edge_attr: Tensor | None = None,
) -> Tensor:
    """Node scores of :func:`graphcaps.explain` for a torch-geometric batch, ``[V]``.

    Args:
        model (Module): A :class:`GraphProbabilities` or an HGCN; ``x`` holds the features that it expects.
        x, edge_index, batch (Tensor): ``[V, in]``, ``[2, E]``, ``[V]``.
        target (Tensor): Class of each graph, ``[B]``.
        edge_attr (Tensor, optional): Labels of the edges, as in :meth:`graphcaps.nn.HGCN.forward`.
    """
    network, graphs = _hgcn_batch(model, x, edge_index, batch, target.numel(), edge_attr)
    with torch.enable_grad():
        return node_attributions(network, network.forward_batch(graphs, trace=True), target)


@torch.no_grad()
def groups_of_nodes(model: nn.Module, graphs: PyGBatch) -> Tensor:
    """Number of the group of each node, from 0 without gaps, ``[V]``: nodes that an HGCN assigns together, or
    connected nodes of the same capsule if it assigns every node by itself."""
    count = graphs.target.numel()
    network, batch = _hgcn_batch(model, graphs.x, graphs.edge_index, graphs.batch, count, graphs.edge_attr)
    if network.assigns_groups:
        return group_nodes(batch).unique(return_inverse=True)[1]
    c, means = network.forward_batch(batch).levels[0].assignment, network.mean_coefficients
    mean, graph = None if means is None else means[0][-1], batch.segments.index
    capsule, (source, target) = hard_assignment(c, mean, graph=graph), graphs.edge_index
    same = capsule[source] == capsule[target]
    return connected_nodes(graphs.x.size(0), source[same], target[same])


def _hgcn_batch(
    model: nn.Module,
    x: Tensor,
    edge_index: Tensor,
    batch: Tensor,
    num_graphs: int,
    edge_attr: Tensor | None,
) -> tuple[HGCN, GraphBatch]:
    """The HGCN and its batch, for the features that ``model`` expects."""
    if isinstance(model, GraphProbabilities):
        network, x = unwrap_hgcn(model.network), x + model.reference
    else:
        network = unwrap_hgcn(model)
    kind = None if edge_attr is None else edge_kind(edge_attr, network.edge_kinds, "node_scores")
    table = edge_table(edge_index, x.size(0), kind=kind)
    return network, GraphBatch(x, Segments.from_index(batch, num_graphs), table)
