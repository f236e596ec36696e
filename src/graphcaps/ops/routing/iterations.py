"""Routing with a trace: the assignments of every iteration are kept, for explanations.

The iterations are those of :mod:`graphcaps.ops.routing.factored`. All assignments are constants for the gradient, and
the output capsules are computed from the last one, so that gradients are those with all assignments kept. The results
are those of :func:`graphcaps.ops.route` without a trace, up to the rounding of sums in another order. The residual is
added after the last assignment and does not change it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.ops.ragged.tiles import from_tiles, graphs_to_tiles, sum_tiles, tile_rows, to_tiles
from graphcaps.ops.routing.detached import capsules_of_assignment
from graphcaps.ops.routing.factored import append_ones, iterate
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.types import Routing, Segments

__all__ = ["route_traced", "routing_assignments"]


def route_traced(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments | None,
    iterations: int,
    residual: Tensor | None = None,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """Routes V input capsules of B graphs to J output capsules per graph, and keeps the assignments of all iterations.

    Args:
        h (Tensor): Propagated input capsules, ``[*lead, V, d]``, or ``[*lead, B, n, d]`` without segments.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments, optional): Which row belongs to which graph; ``None`` if every graph has n input capsules.
        iterations (int): Routing iterations R, at least 1.
        residual (Tensor, optional): Added to every sum before the last squash, ``[*lead, B, 1, d']``.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
    """
    assignments = routing_assignments(h, weight, bias, segments, iterations, epsilon)
    c, tiles = assignments[-1], None if segments is None else tile_rows(segments)
    u = capsules_of_assignment(h, weight, bias, tiles, c, residual, epsilon)
    return Routing(u, c, assignments)


@torch.no_grad()
def routing_assignments(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments | None,
    iterations: int,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    """Assignments c of each of R iterations, ``[R, *lead, V, J]``; in the first one all are 1 / J.

    Arguments are those of :func:`route_traced`. Without segments the result is ``[R, *lead, B, n, J]``.
    """
    if iterations < 1:
        raise ArgumentError("routing_assignments", "iterations", "be at least 1", iterations)
    tiles = None if segments is None else tile_rows(segments)
    H = to_tiles(append_ones(h), tiles)  # [*lead, N, t, d + 1]
    assignments: list[Tensor] = []

    def assign(T: Tensor) -> Tensor:
        assignments.append((graphs_to_tiles(T, tiles) @ H.mT).softmax(-2))
        return assignments[-1]

    def weighted_sum(c: Tensor | None) -> Tensor:
        return sum_tiles(H.sum(-2) if c is None else c @ H, tiles)

    iterate(assign, weighted_sum, weight, bias, iterations, None, True, epsilon)
    J = weight.size(-3)
    uniform = H.new_full((), 1 / J).expand(*H.shape[:-1], J)
    return torch.stack([from_tiles(c, tiles) for c in (uniform, *(c.mT for c in assignments))])
