r"""Routing by agreement in which the votes drop out, exactly.

With linear votes :math:`v_{j|i} = W_j^\top h_i + e_j` the logits of every round are
:math:`b_{ij} = h_i \cdot T_j + \tau_j` with one vector per graph and whole:

.. math::
    c_{ij} &= \mathrm{softmax}_j(h_i \cdot T_j + \tau_j) \\
    G_j &= \textstyle\sum_i c_{ij} h_i, \quad m_j = \sum_i c_{ij} \\
    u_j &= \mathrm{squash}(W_j^\top G_j + m_j e_j) \\
    T_j &\leftarrow T_j + W_j u_j, \quad \tau_j \leftarrow \tau_j + e_j \cdot u_j

Memory is V·d + B·J·d instead of V·J·d', and no logits outlive their round.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from graphcaps.ops.squash import RELEASED_EPSILON, squash
from graphcaps.ops.tiles import from_tiles, sum_tiles, tile_of_graphs, tiles_of, to_tiles
from graphcaps.types import Routing, Segments

__all__ = ["route_dense", "route_factored"]


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
    """Routes V parts of B graphs to J wholes each without storing a vote.

    Args:
        h (Tensor): Propagated parts, ``[*lead, V, d]``.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments): Which part belongs to which graph.
        iterations (int): Rounds R.
        residual (Tensor, optional): Added to every sum before the last squash, ``[*lead, B, 1, d']``.
        detach (bool): Whether the weights c are constants for the gradient, as in the released program.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
    """
    tiles = tiles_of(segments)
    H = to_tiles(h, tiles)  # [*lead, N, t, d]
    size = segments.sizes.to(h.dtype).unsqueeze(-1)  # [*lead, B, 1]

    def weigh(T: Tensor, tau: Tensor) -> Tensor:
        logits = H @ tile_of_graphs(T, tiles).mT + tile_of_graphs(tau, tiles).unsqueeze(-2)
        return logits.softmax(-1).masked_fill(tiles.holes.unsqueeze(-1), 0)  # [*lead, N, t, J]

    def gather(c: Tensor | None, J: int) -> tuple[Tensor, Tensor]:
        if c is None:  # round one: c = 1/J
            G = sum_tiles(H.sum(-2), tiles).unsqueeze(-2).expand(*size.shape[:-1], J, h.size(-1)) / J
            return G, (size / J).expand(*size.shape[:-1], J)
        return sum_tiles(c.mT @ H, tiles), sum_tiles(c.sum(-2), tiles)

    u, c = _rounds(weigh, gather, weight, bias, iterations, residual, detach, epsilon)
    if c is None:
        c = H.new_full((*tiles.holes.shape, weight.size(-3)), 1 / weight.size(-3))
        c = c.masked_fill(tiles.holes.unsqueeze(-1), 0)
    return Routing(u, from_tiles(c, tiles))


def route_dense(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """The same where every graph has the same number of parts, ``h [*lead, B, n, d]``.

    The assignment is ``[*lead, B, n, J]``.
    """

    def weigh(T: Tensor, tau: Tensor) -> Tensor:
        return (h @ T.mT + tau.unsqueeze(-2)).softmax(-1)

    def gather(c: Tensor | None, J: int) -> tuple[Tensor, Tensor]:
        if c is None:
            c = h.new_full((*h.shape[:-1], J), 1 / J)
        return c.mT @ h, c.sum(-2)

    u, c = _rounds(weigh, gather, weight, bias, iterations, residual, detach, epsilon)
    if c is None:
        c = h.new_full((*h.shape[:-1], weight.size(-3)), 1 / weight.size(-3))
    return Routing(u, c)


def _rounds(weigh, gather, weight, bias, iterations, residual, detach, epsilon):  # type: ignore[no-untyped-def]
    """The rounds, given how parts are weighed and summed; c is ``None`` where only round one was run."""
    J = weight.size(-3)
    T = tau = c = u = None
    for round_ in range(iterations):
        last = round_ == iterations - 1
        with torch.no_grad() if detach and not last else nullcontext():
            if T is not None:
                with torch.no_grad() if detach else nullcontext():
                    c = weigh(T, tau)
            G, m = gather(c, J)
            s = torch.einsum("...bjd,...jde->...bje", G, weight) + m.unsqueeze(-1) * bias.unsqueeze(-3)
            if last and residual is not None:
                s = s + residual
            u = squash(s, epsilon)
            if not last:
                toward = torch.einsum("...bje,...jde->...bjd", u, weight)
                agree = (u * bias.unsqueeze(-3)).sum(-1)
                T, tau = (toward, agree) if T is None else (T + toward, tau + agree)
    return u, c
