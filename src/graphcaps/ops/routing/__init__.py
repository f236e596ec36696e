"""Routing by agreement: ``naive`` stores every vote, ``factored`` none, ``kernel`` is fused, ``dispatch`` picks."""

from graphcaps.ops.routing.factored import route_dense_factored, route_factored
from graphcaps.ops.routing.fused import route_dense_kernel, route_kernel
from graphcaps.ops.routing.naive import route_naive, route_votes
from graphcaps.ops.routing.route import RoutingMethod, route, route_dense

__all__ = [
    "RoutingMethod",
    "route",
    "route_dense",
    "route_dense_factored",
    "route_dense_kernel",
    "route_factored",
    "route_kernel",
    "route_naive",
    "route_votes",
]
