"""The weights of every routing round: what routing itself forgets, for those who look at it.

The rounds are those of :mod:`graphcaps.ops.routing.factored`, watched: the last weights are the assignment that
:func:`graphcaps.ops.route` returns. The residual enters only after the last weights, and so plays no part.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphcaps.errors import ArgumentError
from graphcaps.ops.ragged.tiles import from_tiles, graphs_to_tiles, sum_tiles, tile_rows, to_tiles
from graphcaps.ops.routing.factored import _rounds, _with_ones
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.types import Segments

__all__ = ["routing_assignments", "routing_assignments_dense"]


@torch.no_grad()
def routing_assignments(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    iterations: int,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    """Weights c that each of R rounds sums with, ``[R, *lead, V, J]``; those of round one are all 1 / J.

    Args:
        h (Tensor): Propagated parts, ``[*lead, V, d]``.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments): Which part belongs to which graph.
        iterations (int): Rounds R, at least 1.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
    """
    tiles = tile_rows(segments)
    H = to_tiles(_with_ones(h), tiles)  # [*lead, N, t, d + 1]
    found: list[Tensor] = []

    def weigh(T: Tensor) -> Tensor:
        found.append((graphs_to_tiles(T, tiles) @ H.mT).softmax(-2))
        return found[-1]

    def gather(c: Tensor | None) -> Tensor:
        return sum_tiles(H.sum(-2) if c is None else c @ H, tiles)

    _watch(weigh, gather, weight, bias, iterations, epsilon)
    J = weight.size(-3)
    even = H.new_full((), 1 / J).expand(*H.shape[:-1], J)
    return torch.stack([from_tiles(c, tiles) for c in (even, *(c.mT for c in found))])


@torch.no_grad()
def routing_assignments_dense(
    h: Tensor, weight: Tensor, bias: Tensor, iterations: int, epsilon: float = RELEASED_EPSILON
) -> Tensor:
    """The same where every graph has the same number of parts: ``h [*lead, B, n, d]``, ``[R, *lead, B, n, J]``."""
    H = _with_ones(h)
    found: list[Tensor] = []

    def weigh(T: Tensor) -> Tensor:
        found.append((T @ H.mT).softmax(-2))
        return found[-1]

    def gather(c: Tensor | None) -> Tensor:
        return H.sum(-2) if c is None else c @ H

    _watch(weigh, gather, weight, bias, iterations, epsilon)
    J = weight.size(-3)
    return torch.stack([h.new_full((*h.shape[:-1], J), 1 / J), *(c.mT for c in found)])


def _watch(
    weigh: Callable[[Tensor], Tensor],
    gather: Callable[[Tensor | None], Tensor],
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    epsilon: float,
) -> None:
    if iterations < 1:
        raise ArgumentError("routing_assignments", "iterations", "be at least 1", iterations)
    _rounds(weigh, gather, weight, bias, iterations, None, True, epsilon)
