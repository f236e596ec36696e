r"""A hash of each graph that does not depend on the store, the order of nodes or the order of graphs.

The hash of a graph is made from the Weisfeiler-Lehman colours of its nodes after a fixed number of rounds
(:mod:`graphcaps.data.quality.weisfeiler_lehman`):

.. math::
    \mathrm{hash}(g) = \mathrm{mix}\big(\mathrm{mix}(n_g) + \textstyle\sum_{i \in g} \mathrm{mix}(c_i)\big) \bmod 2^{64}

with n the number of nodes. Equal graphs have equal hashes in every store. Different graphs have different hashes unless
message passing over as many rounds cannot tell them apart, or by a collision: with a million graphs on record, a new
graph collides with probability 5e-14.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from graphcaps.data.features.compatibility import InputColumns, replace_unseen
from graphcaps.data.quality.weisfeiler_lehman import ColourRefinement, mix64, row_colours
from graphcaps.data.store import GraphStore

__all__ = ["HASH_ROUNDS", "graph_hashes"]

HASH_ROUNDS = 8
"""Rounds of colour refinement: a node's colour depends on the nodes up to this distance."""


def graph_hashes(store: GraphStore, recipe: InputColumns) -> NDArray[np.uint64]:
    """Hash of each graph as a model reads it, ``[G]``.

    Edges and edge weights always count; an edge without a weight has weight 1. Node labels, node attributes (in
    float32) and edge labels count if the recipe reads them. If it reads none of the three, as that of a model which
    reads something else, all of them count. Values that no training molecule has count as "other", as the model reads
    them: a molecule has the same hash before and after :func:`~graphcaps.data.features.compatibility.check_graphs`.

    Args:
        store (GraphStore): Graphs.
        recipe (FeatureRecipe): The recipe of the model.
    """
    store = store.to("cpu")
    if not len(store):
        return np.zeros(0, np.uint64)
    store, _ = replace_unseen(store, recipe)
    reads = (recipe.labels, recipe.attributes, bool(recipe.edge_labels))
    labels, attributes, edge_labels = reads if any(reads) else (True, True, True)
    values = store.node_attributes if attributes else None
    tables = (store.node_labels if labels else None, None if values is None else values.float())
    colours = row_colours(store.num_nodes, tables)
    refine = ColourRefinement(store, _edge_terms(store, edge_labels))
    for _ in range(HASH_ROUNDS):
        colours = refine(colours)
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix64(colours), dtype=np.uint64)])
    bounds = store.node_ptr.numpy()
    sizes = np.diff(bounds).astype(np.uint64)
    return mix64(mix64(sizes) + running[bounds[1:]] - running[bounds[:-1]])


def _edge_terms(store: GraphStore, labels: bool) -> NDArray[np.uint64]:
    """A number for each edge entry, ``[M]``: 0 for an edge of weight 1 without labels, whatever the store holds."""
    terms = row_colours(store.neighbours.numel(), (store.edge_labels if labels else None,))
    if store.edge_weight is not None:
        weight = store.edge_weight.float().double().contiguous()
        hashed = mix64(weight.numpy().view(np.uint64))
        terms = terms + np.where((weight == torch.ones(())).numpy(), np.uint64(0), hashed)
    return terms
