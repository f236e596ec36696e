"""Pure functions on tensors, with any leading axes; slow twins stand beside the fast forms."""

from graphcaps.ops.coarsening import coarsen, dense_coarsen, simplify
from graphcaps.ops.edges import CleanEdges, EdgeReport, clean_edges, edge_table
from graphcaps.ops.propagation.propagation import (
    degrees,
    dense_propagate,
    edge_index_of,
    neighbour_sum,
    propagate,
)
from graphcaps.ops.ragged.tiles import segment_sum, spread
from graphcaps.ops.reconstruction.pair_loss import reconstruction_loss
from graphcaps.ops.reconstruction.pair_loss_naive import PAPER, RELEASED, PairRule, reconstruction_loss_naive
from graphcaps.ops.routing import route, route_dense, route_votes
from graphcaps.ops.squash import squash

__all__ = [
    "PAPER",
    "RELEASED",
    "CleanEdges",
    "EdgeReport",
    "PairRule",
    "clean_edges",
    "coarsen",
    "degrees",
    "dense_coarsen",
    "dense_propagate",
    "edge_index_of",
    "edge_table",
    "neighbour_sum",
    "propagate",
    "reconstruction_loss",
    "reconstruction_loss_naive",
    "route",
    "route_dense",
    "route_votes",
    "segment_sum",
    "simplify",
    "spread",
    "squash",
]
