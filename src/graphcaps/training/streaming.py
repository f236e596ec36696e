"""Data sets that are too large for a GPU: they stay in host memory and are copied to the device batch by batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.training.device import total_memory
from graphcaps.types import FeatureTable, GraphBatch

__all__ = ["StreamedStore", "batch_source", "dataset_bytes", "move_to_device"]

MAX_RESIDENT_FRACTION = 0.5
"""Largest fraction of a GPU's memory that a data set may occupy to be kept there."""


class StreamedStore:
    """A store in host memory whose batches are on another device.

    The graphs of a step are copied into pinned memory while the device works on the step before, and transferred
    asynchronously. A graph that several replicas need is transferred once.

    Args:
        store (GraphStore): Graphs in host memory.
        device (device): Device of the batches.
    """

    def __init__(self, store: GraphStore, device: torch.device) -> None:
        self.store, self.device = store, device
        self._graphs = _structure_only(store)

    def batch(self, x: Tensor | FeatureTable, graphs: Tensor) -> GraphBatch:
        """As :meth:`GraphStore.batch`; ``x`` and ``graphs`` are in host memory."""
        # Rows are transferred with their graphs; a feature table of the whole store would stay on the host.
        assert isinstance(x, Tensor)
        used, position = graphs.clamp_min(0).unique(return_inverse=True)
        subset = self._graphs[used]
        first = self.store.node_ptr[used]
        rows = torch.arange(subset.num_nodes) + (first - subset.node_ptr[:-1]).repeat_interleave(subset.sizes)
        features = _pinned(x[rows], self.device).to(self.device, non_blocking=True)
        names = ("node_ptr", "edge_ptr", "neighbours", "y", "edge_weight", "edge_kind")
        arrays: dict[str, Any] = {name: _pinned(getattr(subset, name), self.device) for name in names}
        on_device = replace(subset, **arrays).to(self.device)
        on_device.__dict__["bits"] = None  # adjacency bits are worth computing per store, not per batch
        return on_device.batch(features, position.masked_fill(graphs < 0, -1))


def batch_source(store: GraphStore, device: torch.device) -> GraphStore | StreamedStore:
    """An object to draw batches from: the store itself if it is on the device, else a :class:`StreamedStore`."""
    return store if store.device.type == device.type else StreamedStore(store, device)


def dataset_bytes(store: GraphStore, x: Tensor) -> int:
    """Upper bound on the bytes that graphs and features occupy on a device, adjacency bits included."""
    edges = (store.edge_ptr, store.neighbours, store.edge_weight, store.edge_kind)
    arrays = (store.node_ptr, *edges, store.y, x)
    listed = sum(array.numel() * array.element_size() for array in arrays if array is not None)
    listed += 0 if store.structure is None else store.structure.num_bytes
    words = store.bit_words
    N, C = x.shape
    table = 8 * N * min(C, max(16, C // 8)) + 16 * len(store) * C  # a sparse feature table, where one is made
    return listed + table + (0 if words is None else 4 * words + 8 * N)


def move_to_device(store: GraphStore, x: Tensor, device: torch.device) -> tuple[GraphStore, Tensor]:
    """Moves graphs and features to the device, or leaves them in host memory if they are too large for it.

    Edge weights on the device have the type of the features, which kernels need.
    """
    total = total_memory(device)
    if device.type == "cpu" or (
        total is not None and dataset_bytes(store, x) > MAX_RESIDENT_FRACTION * total
    ):
        return store, x
    if store.edge_weight is not None:
        store = store.with_unchecked(edge_weight=store.edge_weight.to(x.dtype))
    return _structure_only(store).to(device), x.to(device)


def _structure_only(store: GraphStore) -> GraphStore:
    """The store without labels and attributes of nodes and edges, which features and ``edge_kind`` encode, and without
    SMILES."""
    return replace(
        store,
        node_labels=None,
        node_attributes=None,
        edge_labels=None,
        edge_attributes=None,
        truth={},
        smiles=None,
    )


def _pinned(tensor: Any, device: torch.device) -> Any:
    return tensor if tensor is None or device.type != "cuda" else tensor.contiguous().pin_memory()
