"""Graphs that stay in host memory and travel to the device batch by batch."""

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
"""Share of a GPU's memory up to which a data set is kept there as a whole."""


class StreamedStore:
    """A store on the host whose batches lie on another device.

    The graphs of a step are cut out on the host, into pinned memory, while the device works on the step before,
    and copied without waiting. Where a graph is drawn by several replicas, it travels once.

    Args:
        store (GraphStore): On the host.
        device (device): Where batches go.
    """

    def __init__(self, store: GraphStore, device: torch.device) -> None:
        self.store, self.device = store, device

    def batch(self, x: Tensor | FeatureTable, graphs: Tensor) -> GraphBatch:
        """As :meth:`GraphStore.batch`; ``x`` and ``graphs`` are on the host."""
        # Features travel with their graphs: a table of all of them would stay behind.
        assert isinstance(x, Tensor)
        store = self.store
        used, place = graphs.clamp_min(0).unique(return_inverse=True)
        part = _bare(store)[used]
        first, sizes = store.node_ptr[used], store.sizes[used]
        rows = torch.arange(part.num_nodes) + (first - part.node_ptr[:-1]).repeat_interleave(sizes)
        columns = _pinned(x[rows], self.device).to(self.device, non_blocking=True)
        names = ("node_ptr", "edge_ptr", "neighbours", "y", "edge_weight")
        arrays: dict[str, Any] = {name: _pinned(getattr(part, name), self.device) for name in names}
        arrived = replace(part, **arrays).to(self.device)
        arrived.__dict__["bits"] = None  # made once for a store; not for every batch
        return arrived.batch(columns, place.masked_fill(graphs < 0, -1))


def _bare(store: GraphStore) -> GraphStore:
    """Only what a batch is made of: labels and attributes are in x already."""
    return replace(
        store, node_labels=None, node_attributes=None, edge_labels=None, edge_attributes=None, truth={}
    )


def _pinned(tensor: Any, device: torch.device) -> Any:
    return tensor if tensor is None or device.type != "cuda" else tensor.contiguous().pin_memory()


def batch_source(store: GraphStore, device: torch.device) -> GraphStore | StreamedStore:
    """Something to draw batches from: the store itself where it lies on the device, else a stream from it."""
    return store if store.device.type == device.type else StreamedStore(store, device)


def dataset_bytes(store: GraphStore, x: Tensor) -> int:
    """Bytes that graphs and input columns take on a device, the edges as bits included."""
    arrays = (store.node_ptr, store.edge_ptr, store.neighbours, store.edge_weight, store.y, x)
    listed = sum(array.numel() * array.element_size() for array in arrays if array is not None)
    words = store.bit_words
    N, C = x.shape
    table = 8 * N * min(C, max(16, C // 8)) + 16 * len(store) * C  # at most, where features are walked
    return listed + table + (0 if words is None else 4 * words + 8 * N)


def move_to_device(store: GraphStore, x: Tensor, device: torch.device) -> tuple[GraphStore, Tensor]:
    """Moves graphs and columns to the device, or leaves them on the host, to be streamed, where they are too large."""
    total = total_memory(device)
    if device.type == "cpu" or (
        total is not None and dataset_bytes(store, x) > MAX_RESIDENT_FRACTION * total
    ):
        return store, x
    return _bare(store).to(device), x.to(device)
