"""Routing with a trace: the assignments of every iteration are kept, for explanations.

The iterations are those of :mod:`graphcaps.ops.routing.factored`. All assignments are constants for the gradient, and
the output capsules are computed from the last one, so that gradients are those with all assignments kept. The results
are those of :func:`graphcaps.ops.route` without a trace, up to the rounding of sums in another order. The residual is
added after the last assignment and does not change it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.ragged.tiles import from_tiles, graphs_to_tiles, sum_tiles, tile_rows, to_tiles
from graphcaps.ops.routing.factored import append_ones, iterate
from graphcaps.ops.squash import RELEASED_EPSILON, squash
from graphcaps.types import Routing, Segments

__all__ = [
    "capsules_of_assignment",
    "route_dense_traced",
    "route_traced",
    "routing_assignments",
    "routing_assignments_dense",
]


def route_traced(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    iterations: int,
    residual: Tensor | None = None,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """Routes V input capsules of B graphs to J output capsules per graph, and keeps the assignments of all iterations.

    Args:
        h (Tensor): Propagated input capsules, ``[*lead, V, d]``.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments): Which row belongs to which graph.
        iterations (int): Routing iterations R, at least 1.
        residual (Tensor, optional): Added to every sum before the last squash, ``[*lead, B, 1, d']``.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
    """
    assignments = routing_assignments(h, weight, bias, segments, iterations, epsilon)
    u = capsules_of_assignment(h, weight, bias, segments, assignments[-1], residual, epsilon)
    return Routing(u, assignments[-1], assignments)


def capsules_of_assignment(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    assignment: Tensor,
    residual: Tensor | None = None,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    """Output capsules squash(Σ c v + r) of votes with a given assignment c ``[*lead, V, J]``, ``[*lead, B, J, d']``.

    The other arguments are those of :func:`route_traced`. Gradients reach all of them.
    """
    form = select(
        "capsules_of_assignment", _capsules_of_assignment, h, weight, bias, residual,
        max_size=segments.max_size, num_graphs=segments.num_graphs,
    )  # fmt: skip
    return form(h, weight, bias, segments, assignment, residual, epsilon)


def _capsules_of_assignment(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    assignment: Tensor,
    residual: Tensor | None = None,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    tiles = tile_rows(segments)
    C = to_tiles(assignment, tiles)  # [*lead, N, t, J]
    G = sum_tiles(C.mT @ to_tiles(h, tiles), tiles)
    return _capsules(G, sum_tiles(C.sum(-2), tiles), weight, bias, residual, epsilon)


def route_dense_traced(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    residual: Tensor | None = None,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """The same for graphs with the same number n of input capsules, ``h [*lead, B, n, d]``."""
    assignments = routing_assignments_dense(h, weight, bias, iterations, epsilon)
    c = assignments[-1]
    u = _capsules(c.mT @ h, c.sum(-2), weight, bias, residual, epsilon)
    return Routing(u, c, assignments)


def _capsules(
    G: Tensor, m: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, epsilon: float
) -> Tensor:
    """Output capsules from G, the sums of c h, ``[*lead, B, J, d]``, and m, the sums of c, ``[*lead, B, J]``."""
    s = torch.einsum("...bjd,...jde->...bje", G, weight) + m.unsqueeze(-1) * bias.unsqueeze(-3)
    return squash(s if residual is None else s + residual, epsilon)


@torch.no_grad()
def routing_assignments(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    iterations: int,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    """Assignments c of each of R iterations, ``[R, *lead, V, J]``; in the first one all are 1 / J.

    Args:
        h (Tensor): Propagated input capsules, ``[*lead, V, d]``.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments): Which row belongs to which graph.
        iterations (int): Routing iterations R, at least 1.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
    """
    tiles = tile_rows(segments)
    H = to_tiles(append_ones(h), tiles)  # [*lead, N, t, d + 1]
    assignments: list[Tensor] = []

    def assign(T: Tensor) -> Tensor:
        assignments.append((graphs_to_tiles(T, tiles) @ H.mT).softmax(-2))
        return assignments[-1]

    def weighted_sum(c: Tensor | None) -> Tensor:
        return sum_tiles(H.sum(-2) if c is None else c @ H, tiles)

    _record(assign, weighted_sum, weight, bias, iterations, epsilon)
    J = weight.size(-3)
    uniform = H.new_full((), 1 / J).expand(*H.shape[:-1], J)
    return torch.stack([from_tiles(c, tiles) for c in (uniform, *(c.mT for c in assignments))])


@torch.no_grad()
def routing_assignments_dense(
    h: Tensor, weight: Tensor, bias: Tensor, iterations: int, epsilon: float = RELEASED_EPSILON
) -> Tensor:
    """The same for graphs with n input capsules each, ``h [*lead, B, n, d]``: ``[R, *lead, B, n, J]``."""
    H = append_ones(h)
    assignments: list[Tensor] = []

    def assign(T: Tensor) -> Tensor:
        assignments.append((T @ H.mT).softmax(-2))
        return assignments[-1]

    def weighted_sum(c: Tensor | None) -> Tensor:
        return H.sum(-2) if c is None else c @ H

    _record(assign, weighted_sum, weight, bias, iterations, epsilon)
    J = weight.size(-3)
    return torch.stack([h.new_full((*h.shape[:-1], J), 1 / J), *(c.mT for c in assignments)])


def _record(
    assign: Callable[[Tensor], Tensor],
    weighted_sum: Callable[[Tensor | None], Tensor],
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    epsilon: float,
) -> None:
    if iterations < 1:
        raise ArgumentError("routing_assignments", "iterations", "be at least 1", iterations)
    iterate(assign, weighted_sum, weight, bias, iterations, None, True, epsilon)
