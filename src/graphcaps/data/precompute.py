"""Computes what a model needs of each graph before it sees a batch, once per data set.

A :class:`~graphcaps.ops.structure.precomputation.Precomputation` is a function of one graph. Its results for all graphs
of a store become the ``structure`` of that store, from which batches are made by index arithmetic, on any device. The
results of a training are kept in the cache folder, under a checksum of the graphs and of the options.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import torch

from graphcaps._io.tensor_digest import digest_tensors
from graphcaps.data.datasets.cache import load_structure, save_structure
from graphcaps.data.store import GraphStore
from graphcaps.errors import UsageError
from graphcaps.ops.structure.computation import compute_graphs
from graphcaps.ops.structure.precomputation import GraphStructure, PlainGraph, Precomputation
from graphcaps.ops.structure.structure import Structure, join_structures

__all__ = ["MAX_ENTRIES", "compute_structure", "precompute", "structure_key"]

MAX_ENTRIES = 1 << 27
"""Most edges and members of the coarser levels of a store: they take one to two gigabytes."""


def precompute(
    store: GraphStore,
    precomputation: Precomputation | None,
    *,
    dtype: torch.dtype = torch.float32,
    cached: bool = False,
) -> GraphStore:
    """The store with the structure that a model needs.

    Args:
        store (GraphStore): Graphs as the model reads them, on the CPU.
        precomputation (Precomputation, optional): That of the model; with ``None`` the store is returned unchanged.
        dtype (torch.dtype): Type of weights and columns. (default: ``torch.float32``)
        cached (bool): Whether the structure is read from the cache folder if it is there, and stored there if it is
            not. (default: False)

    Example:
        >>> graphs = precompute(store, model.precomputation)
        >>> model.forward_batch(graphs.batch(x))
    """
    if precomputation is None:
        return store
    structure, key = None, ""
    if cached:
        key = structure_key(store, precomputation)
        structure = load_structure(key, store.sizes)
    if structure is None:
        structure = compute_structure(store, precomputation)
        if cached:
            save_structure(structure, key)
    return store.with_structure(structure.to(dtype=dtype))


def compute_structure(store: GraphStore, precomputation: Precomputation) -> Structure:
    """The structure of all graphs of a store, in float64.

    Raises:
        UsageError: If the coarser levels have more than ``MAX_ENTRIES`` edges and members.
    """
    results: list[GraphStructure | None] = []
    entries = 0
    for result in compute_graphs(precomputation, _plain_graphs(store, precomputation.reads_labels)):
        results.append(result)
        entries += 0 if result is None else result.num_entries
        if entries > MAX_ENTRIES:
            raise UsageError(
                f"precompute: the coarser levels of {len(results):,} of {len(store):,} graphs of '{store.name}' "
                f"already have {entries:,} edges and members, more than {MAX_ENTRIES:,}; lower the number of "
                "levels, or set max_nodes, which keeps the best connected nodes of large graphs."
            )
    return join_structures(precomputation, store.sizes, results)


def structure_key(store: GraphStore, precomputation: Precomputation) -> str:
    """SHA-256 of the graphs and of the computation, the name of its cache file."""
    options = json.dumps(asdict(precomputation), sort_keys=True)
    text = f"{precomputation.kind} {precomputation.version} {options}"
    labels = store.node_labels if precomputation.reads_labels else None
    return digest_tensors([store.node_ptr, store.edge_ptr, store.neighbours, labels], text)


def _plain_graphs(store: GraphStore, labels: bool) -> Iterator[PlainGraph]:
    """The graphs of a store, one after another."""
    edge_ptr = store.edge_ptr.numpy()
    neighbours = store.neighbours.numpy()
    node_labels = store.node_labels.numpy() if labels and store.node_labels is not None else None
    for first, end in pairwise(store.node_ptr.tolist()):
        ptr = edge_ptr[first : end + 1]
        yield PlainGraph(
            ptr - ptr[0],
            neighbours[ptr[0] : ptr[-1]].astype(np.int64),
            None if node_labels is None else node_labels[first:end],
        )
