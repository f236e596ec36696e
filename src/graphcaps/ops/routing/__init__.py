"""Routing by agreement: ``naive`` stores every vote, ``factored`` stores none, ``route_triton`` is fused kernels, and
``iterations`` keeps the assignments of every iteration."""

from graphcaps.ops.routing.factored import route_dense_factored, route_factored
from graphcaps.ops.routing.naive import route_naive, route_votes
from graphcaps.ops.routing.route import RoutingMethod, route, route_dense

__all__ = [
    "RoutingMethod",
    "route",
    "route_dense",
    "route_dense_factored",
    "route_factored",
    "route_naive",
    "route_votes",
]
