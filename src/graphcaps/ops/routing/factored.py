r"""Routing by agreement without votes: for linear votes an exact reformulation.

With linear votes :math:`v_{j|i} = W_j^\top h_i + e_j` the logits of every iteration are
:math:`b_{ij} = h_i \cdot T_j + \tau_j` with one vector per graph and output capsule:

.. math::
    c_{ij} &= \mathrm{softmax}_j(h_i \cdot T_j + \tau_j) \\
    G_j &= \textstyle\sum_i c_{ij} h_i, \quad m_j = \sum_i c_{ij} \\
    u_j &= \mathrm{squash}(W_j^\top G_j + m_j e_j) \\
    T_j &\leftarrow T_j + W_j u_j, \quad \tau_j \leftarrow \tau_j + e_j \cdot u_j

Memory is V·d + B·J·d instead of V·J·d', and no logits are stored between iterations.

A column of ones appended to h, and e as one more row of W, carry m and τ along, so that every step is one product.
Between the products, values per output capsule are ``[*lead, J, B, …]`` and assignments ``[*lead, N, J, t]``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from graphcaps.ops.ragged.tiles import (
    Tiles,
    from_tiles,
    graphs_to_tiles,
    is_single_graph,
    sum_tiles,
    tile_rows,
    to_tiles,
)
from graphcaps.ops.routing.detached import is_detached_form, route_detached
from graphcaps.ops.squash import RELEASED_EPSILON, squash
from graphcaps.types import Routing, Segments

__all__ = ["route_dense_factored", "route_factored"]


def route_factored(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """Routes V input capsules of B graphs to J output capsules per graph, without storing a vote.

    Args:
        h (Tensor): Propagated input capsules, ``[*lead, V, d]``.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments): Which row belongs to which graph.
        iterations (int): Routing iterations R.
        residual (Tensor, optional): Added to every sum before the last squash, ``[*lead, B, 1, d']``.
        detach (bool): Whether c is a constant for the gradient, as in the released program.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
    """
    if is_single_graph(segments):
        return _route_one(h, weight, bias, iterations, residual, detach, epsilon)
    return _route(h, weight, bias, tile_rows(segments), iterations, residual, detach, epsilon)


def route_dense_factored(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
    sums: Tensor | None = None,
) -> Routing:
    """The same for graphs with the same number n of input capsules, ``h [*lead, B, n, d]``.

    The assignment is ``[*lead, B, n, J]``. ``sums``, those of h over each graph, are not needed here.
    """
    return _route(h, weight, bias, None, iterations, residual, detach, epsilon)


def _route(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    tiles: Tiles | None,
    iterations: int,
    residual: Tensor | None,
    detach: bool,
    epsilon: float,
) -> Routing:
    """Routes ``h [*lead, V, d]`` in tiles, or ``[*lead, B, n, d]`` without."""
    if is_detached_form(h, detach):
        return route_detached(h, weight, bias, tiles, iterations, residual, epsilon)
    H = to_tiles(append_ones(h), tiles)  # [*lead, N, t, d + 1]; zero in the unused rows of a tile

    def assign(T: Tensor) -> Tensor:
        return (graphs_to_tiles(T, tiles) @ H.mT).softmax(-2)

    def weighted_sum(c: Tensor | None) -> Tensor:
        return sum_tiles(H.sum(-2) if c is None else c @ H, tiles)

    u, c = iterate(assign, weighted_sum, weight, bias, iterations, residual, detach, epsilon)
    J = weight.size(-3)
    c = H.new_full((*H.shape[:-1], J), 1 / J) if c is None else c.mT
    return Routing(u, from_tiles(c, tiles))


def _route_one(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    residual: Tensor | None,
    detach: bool,
    epsilon: float,
) -> Routing:
    """The same for a single graph, ``h [V, d]``, which may be very large: its rows are not copied into tiles.

    m and τ are computed beside the products, so no tensor of the size of h is made except its gradient.
    """

    def assign(T: Tensor) -> Tensor:
        return torch.addmm(T[0, :, -1:], T[0, :, :-1], h.mT).softmax(-2)  # [J, V]

    def weighted_sum(c: Tensor | None) -> Tensor:
        if c is None:
            return torch.cat([h.sum(-2), h.new_full((1,), h.size(-2))]).unsqueeze(0)
        return torch.cat([c @ h, c.sum(-1, keepdim=True)], -1).unsqueeze(0)

    u, c = iterate(assign, weighted_sum, weight, bias, iterations, residual, detach, epsilon)
    J = weight.size(-3)
    return Routing(u, h.new_full((h.size(-2), J), 1 / J) if c is None else c.mT)


def append_ones(h: Tensor) -> Tensor:
    return torch.nn.functional.pad(h, (0, 1), value=1)


def iterate(
    assign: Callable[[Tensor], Tensor],
    weighted_sum: Callable[[Tensor | None], Tensor],
    weight: Tensor,
    bias: Tensor | None,
    iterations: int,
    residual: Tensor | None,
    detach: bool,
    epsilon: float,
) -> tuple[Tensor, Tensor | None]:
    """All iterations. Returns u and c; c is ``None`` after a single iteration, in which all assignments are 1 / J.

    ``assign`` maps T and τ, ``[*lead, B, J, d + 1]``, to c. ``weighted_sum`` maps c to G and m of the same shape, and
    ``None`` to the sum of all input capsules, ``[*lead, B, d + 1]``. Without a bias there are no τ and m.
    """
    J = weight.size(-3)
    W = weight if bias is None else torch.cat([weight, bias.unsqueeze(-2)], -2)  # [*lead, J, d + 1, d']
    T = c = None
    u = W  # replaced in the first iteration
    for iteration in range(iterations):
        last = iteration == iterations - 1
        with torch.no_grad() if detach and not last else nullcontext():
            if T is not None:
                with torch.no_grad() if detach else nullcontext():
                    c = assign(T.transpose(-3, -2))
            G = weighted_sum(c)
            s = ((G / J).unsqueeze(-3) if c is None else G.transpose(-3, -2)) @ W  # [*lead, J, B, d']
            if last and residual is not None:
                s = s + residual.transpose(-3, -2)
            u = squash(s, epsilon)
            if not last:
                T = u @ W.mT if T is None else T + u @ W.mT
    return u.transpose(-3, -2), c
