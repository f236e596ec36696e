"""Pure functions on tensors, with any leading axes; reference implementations stand beside the fast forms.

Public names are imported on first use, as in :mod:`graphcaps.data`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphcaps.ops.squash import squash  # at once: a module has the same name

if TYPE_CHECKING:
    from graphcaps.ops.coarsening import clamp_adjacency, coarsen, dense_coarsen
    from graphcaps.ops.edges import CleanEdges, EdgeReport, clean_edges, edge_table
    from graphcaps.ops.propagation.modulated_hop import modulated_hop
    from graphcaps.ops.propagation.propagation import (
        degrees,
        dense_propagate,
        induced_scale,
        neighbour_count,
        neighbour_mean,
        neighbour_sum,
        propagate,
        to_edge_index,
    )
    from graphcaps.ops.ragged.reductions import clear_padding, segment_max, segment_mean
    from graphcaps.ops.ragged.segment_sort import segment_sort
    from graphcaps.ops.ragged.selection import Selection, select_top, selected_max, selected_mean
    from graphcaps.ops.ragged.tiles import segment_broadcast, segment_sum
    from graphcaps.ops.ragged.top_k import TopK, segment_top_k
    from graphcaps.ops.reconstruction.pair_loss import reconstruction_loss
    from graphcaps.ops.reconstruction.pair_loss_naive import (
        PAPER,
        RELEASED,
        PairRule,
        reconstruction_loss_naive,
    )
    from graphcaps.ops.routing import route, route_dense, route_votes
    from graphcaps.ops.structure.pool_members import pool_members
    from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, PlainGraph, Precomputation

_NAMES = {
    "CleanEdges": "graphcaps.ops.edges",
    "EdgeReport": "graphcaps.ops.edges",
    "GraphLevel": "graphcaps.ops.structure.precomputation",
    "GraphStructure": "graphcaps.ops.structure.precomputation",
    "PAPER": "graphcaps.ops.reconstruction.pair_loss_naive",
    "PairRule": "graphcaps.ops.reconstruction.pair_loss_naive",
    "PlainGraph": "graphcaps.ops.structure.precomputation",
    "Precomputation": "graphcaps.ops.structure.precomputation",
    "RELEASED": "graphcaps.ops.reconstruction.pair_loss_naive",
    "Selection": "graphcaps.ops.ragged.selection",
    "TopK": "graphcaps.ops.ragged.top_k",
    "clamp_adjacency": "graphcaps.ops.coarsening",
    "clean_edges": "graphcaps.ops.edges",
    "clear_padding": "graphcaps.ops.ragged.reductions",
    "coarsen": "graphcaps.ops.coarsening",
    "degrees": "graphcaps.ops.propagation.propagation",
    "dense_coarsen": "graphcaps.ops.coarsening",
    "dense_propagate": "graphcaps.ops.propagation.propagation",
    "edge_table": "graphcaps.ops.edges",
    "induced_scale": "graphcaps.ops.propagation.propagation",
    "modulated_hop": "graphcaps.ops.propagation.modulated_hop",
    "neighbour_count": "graphcaps.ops.propagation.propagation",
    "neighbour_mean": "graphcaps.ops.propagation.propagation",
    "neighbour_sum": "graphcaps.ops.propagation.propagation",
    "pool_members": "graphcaps.ops.structure.pool_members",
    "propagate": "graphcaps.ops.propagation.propagation",
    "reconstruction_loss": "graphcaps.ops.reconstruction.pair_loss",
    "reconstruction_loss_naive": "graphcaps.ops.reconstruction.pair_loss_naive",
    "route": "graphcaps.ops.routing",
    "route_dense": "graphcaps.ops.routing",
    "route_votes": "graphcaps.ops.routing",
    "segment_broadcast": "graphcaps.ops.ragged.tiles",
    "segment_max": "graphcaps.ops.ragged.reductions",
    "segment_mean": "graphcaps.ops.ragged.reductions",
    "segment_sort": "graphcaps.ops.ragged.segment_sort",
    "segment_sum": "graphcaps.ops.ragged.tiles",
    "segment_top_k": "graphcaps.ops.ragged.top_k",
    "select_top": "graphcaps.ops.ragged.selection",
    "selected_max": "graphcaps.ops.ragged.selection",
    "selected_mean": "graphcaps.ops.ragged.selection",
    "to_edge_index": "graphcaps.ops.propagation.propagation",
}

__all__ = [
    "PAPER",
    "RELEASED",
    "CleanEdges",
    "EdgeReport",
    "GraphLevel",
    "GraphStructure",
    "PairRule",
    "PlainGraph",
    "Precomputation",
    "Selection",
    "TopK",
    "clamp_adjacency",
    "clean_edges",
    "clear_padding",
    "coarsen",
    "degrees",
    "dense_coarsen",
    "dense_propagate",
    "edge_table",
    "induced_scale",
    "modulated_hop",
    "neighbour_count",
    "neighbour_mean",
    "neighbour_sum",
    "pool_members",
    "propagate",
    "reconstruction_loss",
    "reconstruction_loss_naive",
    "route",
    "route_dense",
    "route_votes",
    "segment_broadcast",
    "segment_max",
    "segment_mean",
    "segment_sort",
    "segment_sum",
    "segment_top_k",
    "select_top",
    "selected_max",
    "selected_mean",
    "squash",
    "to_edge_index",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'graphcaps.ops' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
