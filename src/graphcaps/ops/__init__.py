"""Pure functions on tensors, with any leading axes; reference implementations stand beside the fast forms.

Public names are imported on first use, as in :mod:`graphcaps.data`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcaps._io.lazy_names import lazy_names
from graphcaps.ops.squash import squash  # at once: a module has the same name

if TYPE_CHECKING:
    from graphcaps.ops.coarsening.coarsening import clamp_adjacency, coarsen, dense_coarsen
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "graphcaps.ops.coarsening.coarsening": ["clamp_adjacency", "coarsen", "dense_coarsen"],
        "graphcaps.ops.edges": ["CleanEdges", "EdgeReport", "clean_edges", "edge_table"],
        "graphcaps.ops.propagation.modulated_hop": ["modulated_hop"],
        "graphcaps.ops.propagation.propagation": [
            "degrees",
            "dense_propagate",
            "induced_scale",
            "neighbour_count",
            "neighbour_mean",
            "neighbour_sum",
            "propagate",
            "to_edge_index",
        ],
        "graphcaps.ops.ragged.reductions": ["clear_padding", "segment_max", "segment_mean"],
        "graphcaps.ops.ragged.segment_sort": ["segment_sort"],
        "graphcaps.ops.ragged.selection": ["Selection", "select_top", "selected_max", "selected_mean"],
        "graphcaps.ops.ragged.tiles": ["segment_broadcast", "segment_sum"],
        "graphcaps.ops.ragged.top_k": ["TopK", "segment_top_k"],
        "graphcaps.ops.reconstruction.pair_loss": ["reconstruction_loss"],
        "graphcaps.ops.reconstruction.pair_loss_naive": [
            "PAPER",
            "PairRule",
            "RELEASED",
            "reconstruction_loss_naive",
        ],
        "graphcaps.ops.routing": ["route", "route_dense", "route_votes"],
        "graphcaps.ops.structure.pool_members": ["pool_members"],
        "graphcaps.ops.structure.precomputation": [
            "GraphLevel",
            "GraphStructure",
            "PlainGraph",
            "Precomputation",
        ],
    },
)

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
