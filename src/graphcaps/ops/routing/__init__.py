"""Routing by agreement: ``naive`` stores every vote, ``factored`` none, ``dispatch`` picks."""

from graphcaps.ops.routing.dispatch import RoutingMethod, route
from graphcaps.ops.routing.factored import route_dense, route_factored
from graphcaps.ops.routing.naive import route_naive, route_votes

__all__ = ["RoutingMethod", "route", "route_dense", "route_factored", "route_naive", "route_votes"]
