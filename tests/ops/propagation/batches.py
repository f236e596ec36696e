"""Batches of random graphs for the tests of hops, with adjacency lists or bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from graphcaps.ops.reconstruction.adjacency_bits import pack_adjacency
from graphcaps.types import AdjacencyBits, EdgeTable, Segments
from tests.graphs import random_graphs, with_weights


def random_batch(
    drawn: Any, sizes: list[int], dense: bool, device: str, weighted: bool = False
) -> tuple[EdgeTable, Segments]:
    """Edges and segments of the graphs ``drawn`` from those of the given sizes; dense graphs have bits."""
    graphs = random_graphs(sizes, density=8.0 if dense else 1.5)
    store = graphs.as_store()
    store = (with_weights(store) if weighted else store).to(device)
    batch = store.batch(graphs.x.to(device), torch.tensor(drawn, device=device))
    bits = pack_adjacency(store.edge_ptr, store.neighbours, store.sizes)
    edges = replace(batch.edges, bits=AdjacencyBits(bits.words, bits.start, dense) if dense else None)
    return edges, batch.segments
