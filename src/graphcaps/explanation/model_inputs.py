"""Graphs as a model reads them: features by its own recipe, cut as in training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.batching import size_chunks
from graphcaps.data.coerce import as_store
from graphcaps.data.features.compatibility import check_compatible
from graphcaps.data.features.truncate import truncate_nodes
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.nn.hgcn import HGCN

__all__ = ["EncodedGraphs", "batch_spans", "encode_for_model", "select_graphs", "unwrap_hgcn"]


@dataclass(frozen=True, eq=False)
class EncodedGraphs:
    """Graphs as a model reads them.

    Args:
        store (GraphStore): The graphs, cut where the model reads only so many nodes.
        x (Tensor): Features of all their nodes, ``[N, in]``.
        class_names (tuple): The model's classes.
        true_class (Tensor, optional): Own class of each graph among these, −1 where it is none of them, ``[G]``.
        nodes (Tensor, optional): Numbers of the nodes in their graphs as given, ``[N]``, where any was cut.
        to_probabilities (Callable, optional): The model's own way from scores to probabilities, float64 ``[G, O]``.
    """

    store: GraphStore
    x: Tensor
    class_names: tuple[str, ...]
    true_class: Tensor | None
    nodes: Tensor | None
    to_probabilities: Callable[[Tensor], np.ndarray] | None = None


def unwrap_hgcn(model: Any) -> HGCN:
    """The HGCN in a fitted model, or the model itself."""
    network = getattr(model, "model", model)
    if not isinstance(network, HGCN):
        fix = "Only HGCN routes nodes to capsules."
        raise ArgumentError("explain", "model", "be an HGCN or a fitted one", type(network).__name__, fix)
    if network.lead:
        raise ArgumentError("explain", "model", "be a single one", f"{network.lead[0]} replicas")
    return network


def encode_for_model(
    model: Any, graphs: Any, *, x: Tensor | None = None, unseen: Literal["refuse", "ignore"] = "refuse"
) -> EncodedGraphs:
    """Graphs as the model reads them: features by its own recipe, or ``x``; cut as in training."""
    network = unwrap_hgcn(model)
    if network is model:  # an HGCN by itself knows no recipe
        store = as_store(graphs, owner="explain")
        if x is None:
            fix = "Pass x=…, or a model from graphcaps.load."
            raise ArgumentError("explain", "x", "be given with a bare HGCN", "None", fix)
        if tuple(x.shape) != (store.num_nodes, network.in_channels):
            wanted = f"have the shape {[store.num_nodes, network.in_channels]}"
            raise ShapeError("explain", "x", wanted, list(x.shape))
        names = store.class_names
        if len(names) != network.num_classes:
            names = tuple(str(number) for number in range(network.num_classes))
        return EncodedGraphs(store, x, names, store.y, None)
    if x is not None:
        raise ArgumentError("explain", "x", "be left out with a fitted model", "features")
    store = as_store(graphs, attributes=bool(model.recipe.num_attributes), owner="explain")
    check_compatible(store, model.recipe, unseen=unseen, dtype=model.dtype, owner="explain")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # told once by check_compatible
        x = model.recipe.apply(store, unseen="ignore", dtype=model.dtype)
    true_class = _true_class(store, model.class_names)
    limit, to_probabilities = model.config.features.max_nodes, getattr(model, "to_probabilities", None)
    if limit is None:
        return EncodedGraphs(store, x, model.class_names, true_class, None, to_probabilities)
    capped = truncate_nodes(store, limit, x)
    assert capped.x is not None
    own = capped.nodes - store.node_ptr[store.node_graph[capped.nodes]]
    nodes = own if capped.truncated_graphs else None
    return EncodedGraphs(capped.store, capped.x, model.class_names, true_class, nodes, to_probabilities)


def select_graphs(encoded: EncodedGraphs, chosen: Tensor) -> EncodedGraphs:
    """The named graphs alone, in that order."""
    first, sizes = encoded.store.node_ptr[chosen], encoded.store.sizes[chosen]
    rows = torch.cat(
        [torch.arange(n) + start for start, n in zip(first.tolist(), sizes.tolist(), strict=True)]
    )
    own = None if encoded.true_class is None else encoded.true_class[chosen]
    nodes = None if encoded.nodes is None else encoded.nodes[rows]
    return replace(encoded, store=encoded.store[chosen], x=encoded.x[rows], true_class=own, nodes=nodes)


def batch_spans(store: GraphStore, nodes: int = 1 << 13, entries: int = 1 << 17) -> Iterator[tuple[int, int]]:
    """Graphs to explain together; at the default, what is computed of them takes a hundred megabytes at most."""
    return size_chunks(store, nodes, entries)


def _true_class(store: GraphStore, names: tuple[str, ...]) -> Tensor | None:
    """Own classes of a store, counted as the model counts them."""
    if store.y is None:
        return None
    known = {name: number for number, name in enumerate(names)}
    there = torch.tensor([known.get(name, -1) for name in store.class_names], dtype=torch.long)
    return there[store.y.cpu()] if there.numel() else None
