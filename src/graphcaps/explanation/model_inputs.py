"""Encoded input graphs of a model: features by its recipe, truncated as in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphcaps.data.batching import size_chunks
from graphcaps.data.coercion import coerce
from graphcaps.data.features.compatibility import UnseenPolicy
from graphcaps.data.features.encoding import encode_checked
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.inference.fitted_model import Answer, FittedModel
from graphcaps.nn.graph_model import GraphModel
from graphcaps.nn.hgcn import HGCN

__all__ = [
    "ExplainedModel",
    "ModelInputs",
    "batch_spans",
    "encode_for_model",
    "select_graphs",
    "unwrap_hgcn",
    "unwrap_members",
    "unwrap_network",
]


@dataclass(frozen=True, eq=False)
class MixedAnswer:
    """The answers of a model with companions, for G graphs.

    Args:
        probabilities (Tensor): Those of the whole model, float64 ``[G, O]``.
        part_names (tuple): Names of the network and of its companions.
        network_share (Tensor): Share of the network in the probability of the predicted class, float64 ``[G]``.
    """

    probabilities: Tensor
    part_names: tuple[str, ...]
    network_share: Tensor

    def select(self, graphs: Tensor) -> MixedAnswer:
        """The answers for some of the graphs."""
        graphs = graphs.cpu()
        return MixedAnswer(self.probabilities[graphs], self.part_names, self.network_share[graphs])


ExplainedModel = HGCN | FittedModel
"""An HGCN, alone or in a fitted model."""


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """Graphs encoded for a model.

    Args:
        store (GraphStore): The graphs, truncated to the model's ``max_nodes``.
        x (Tensor): Features of all their nodes, ``[N, in]``.
        class_names (tuple): The model's classes.
        true_class (Tensor, optional): True class of each graph, −1 if it is not a class of the model, ``[G]``.
        nodes (Tensor, optional): Index of each node in its original graph, ``[N]``, if any graph was truncated.
        to_probabilities (Callable, optional): The model's map from scores, ``[G, O]`` or of its members ``[M, G, O]``,
            and the indices of graphs without nodes, to probabilities, float64 ``[G, O]``.
        smiles (tuple, optional): Canonical SMILES of each graph, ``None`` for a truncated one, if they are molecules.
        answer (MixedAnswer, optional): Answers of a model with companions; ``to_probabilities`` gives the probabilities
            of its network.
    """

    store: GraphStore
    x: Tensor
    class_names: tuple[str, ...]
    true_class: Tensor | None
    nodes: Tensor | None
    to_probabilities: Callable[[Tensor, Tensor], np.ndarray] | None = None
    smiles: tuple[str | None, ...] | None = None
    answer: MixedAnswer | None = None


def unwrap_members(model: nn.Module | FittedModel) -> tuple[HGCN, ...]:
    """The members of a fitted model, one unless it is a committee, or the model itself.

    Raises:
        ArgumentError: If they are another kind of model, or hold several replicas.
    """
    members: tuple[object, ...] = model.members if isinstance(model, FittedModel) else (model,)
    networks = tuple(member for member in members if isinstance(member, HGCN))
    if len(networks) < len(members):
        fix = "Other models have no capsules to explain."
        expected = "be an HGCN, or a FittedModel with one"
        raise ArgumentError("explain", "model", expected, type(members[0]).__name__, fix)
    for network in networks:
        if network.lead:
            raise ArgumentError("explain", "model", "be a single model", f"{network.lead[0]} replicas")
    return networks


def unwrap_hgcn(model: nn.Module | FittedModel) -> HGCN:
    """The HGCN of a fitted model, the first member of a committee, or the model itself.

    Raises:
        ArgumentError: As :func:`unwrap_members` does.
    """
    return unwrap_members(model)[0]


def unwrap_network(model: nn.Module | FittedModel) -> GraphModel:
    """The network of a fitted model, the first member of a committee, or the model itself.

    Raises:
        ArgumentError: If it is no network, holds several replicas, or needs precomputed structures.
    """
    network = model.members[0] if isinstance(model, FittedModel) else model
    if not isinstance(network, GraphModel):
        expected = "be a network, or a FittedModel with one"
        raise ArgumentError("explain", "model", expected, type(network).__name__)
    if network.lead:
        raise ArgumentError("explain", "model", "be a single model", f"{network.lead[0]} replicas")
    if network.precomputation is not None:
        expected = "be a network that reads nothing but features and edges"
        raise ArgumentError("explain", "model", expected, type(network).__name__)
    return network


def encode_for_model(
    model: ExplainedModel,
    graphs: Any,
    *,
    x: Tensor | None = None,
    unseen: UnseenPolicy = "refuse",
    true_classes: Sequence[str] | None = None,
) -> ModelInputs:
    """Encodes graphs with the recipe of a fitted model, or takes ``x`` as the features of a bare HGCN.

    Args:
        model: A ``FittedModel`` or an HGCN.
        graphs: Anything that :func:`graphcaps.data.coerce` accepts, or the result of ``FittedModel.check``.
        x (Tensor, optional): Features of all nodes, ``[N, in]``, for a bare HGCN.
        unseen (str): As in :meth:`FittedModel.scores`. (default: ``"refuse"``)
        true_classes (sequence, optional): Class name of each graph, "" if it is unknown, for a fitted model. (default:
            those of the store, if it has classes)
    """
    if isinstance(model, HGCN):  # it has no feature recipe
        network = unwrap_hgcn(model)
        store = coerce(graphs, owner="explain").store
        if x is None:
            fix = "Pass x=…, or a model from graphcaps.load."
            raise ArgumentError("explain", "x", "be passed with a bare HGCN", "None", fix)
        if tuple(x.shape) != (store.num_nodes, network.in_channels):
            expected = f"have the shape {[store.num_nodes, network.in_channels]}"
            raise ShapeError("explain", "x", expected, list(x.shape))
        names = store.class_names
        if len(names) != network.num_classes:
            names = tuple(str(number) for number in range(network.num_classes))
        return ModelInputs(store, x, names, store.y, None, smiles=store.smiles)
    if x is not None:
        raise ArgumentError("explain", "x", "be omitted with a fitted model", "features")
    checked = model.check(graphs, unseen=unseen, owner="explain")
    store, max_nodes = checked.require(), model.config.features.max_nodes
    encoded = encode_checked(store, model.recipe, max_nodes=max_nodes, dtype=model.dtype)
    nodes = encoded.nodes
    if nodes is not None:  # their index in the original graph
        nodes = nodes - store.node_ptr[store.node_graph[nodes]]
    true_class = _true_class(store, model.class_names, true_classes)
    smiles: tuple[str | None, ...] | None = store.smiles
    if smiles is not None and nodes is not None:
        whole = (store.host_node_ptr.diff() == encoded.store.host_node_ptr.diff()).tolist()
        smiles = tuple(text if complete else None for text, complete in zip(smiles, whole, strict=True))
    answer = None
    if len(model.part_names) > 1:
        answer = _mixed_answer(model.answer(checked.without_warnings()))  # require() has warned
    return ModelInputs(
        encoded.store,
        encoded.x,
        model.class_names,
        true_class,
        nodes,
        model.to_probabilities,
        smiles,
        answer,
    )


def _mixed_answer(found: Answer) -> MixedAnswer | None:
    """The answers of a model with companions; ``None`` without any."""
    if found.parts is None:
        return None
    share = found.parts.contributions(found.probabilities.argmax(-1))[0].copy()
    return MixedAnswer(torch.from_numpy(found.probabilities), found.parts.names, torch.from_numpy(share))


def select_graphs(encoded: ModelInputs, graphs: Tensor) -> ModelInputs:
    """A subset of the graphs, in the order of their indices ``graphs``."""
    first, sizes = encoded.store.node_ptr[graphs], encoded.store.sizes[graphs]
    ranges = zip(first.tolist(), sizes.tolist(), strict=True)
    rows = torch.cat([torch.arange(0), *(torch.arange(n) + start for start, n in ranges)])
    true_class = None if encoded.true_class is None else encoded.true_class[graphs]
    nodes = None if encoded.nodes is None else encoded.nodes[rows]
    smiles = None if encoded.smiles is None else tuple(encoded.smiles[graph] for graph in graphs.tolist())
    return replace(
        encoded,
        answer=None if encoded.answer is None else encoded.answer.select(graphs),
        store=encoded.store[graphs],
        x=encoded.x[rows],
        true_class=true_class,
        nodes=nodes,
        smiles=smiles,
    )


def batch_spans(store: GraphStore, nodes: int = 1 << 13, entries: int = 1 << 17) -> Iterator[tuple[int, int]]:
    """First graph and end of consecutive batches; with the defaults a batch takes at most about 100 MB."""
    return size_chunks(store, nodes, entries)


def _true_class(
    store: GraphStore, names: tuple[str, ...], true_classes: Sequence[str] | None
) -> Tensor | None:
    """True class of each graph as a class index of the model, −1 for any other name; ``None`` without classes."""
    number_of = {name: number for number, name in enumerate(names)}
    if true_classes is not None:
        if len(true_classes) != len(store):
            expected = f"have one entry per graph, {len(store)}"
            raise ShapeError("explain", "true_classes", expected, len(true_classes))
        return torch.tensor([number_of.get(name, -1) for name in true_classes], dtype=torch.long)
    if store.y is None:
        return None
    index = torch.tensor([number_of.get(name, -1) for name in store.class_names], dtype=torch.long)
    return index[store.y.cpu()] if index.numel() else None
