"""Routing by agreement with every vote stored: the paper's loop, the reference implementation of the fast forms.

It also routes votes that are not linear in the input capsules, which the factored form cannot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.squash import RELEASED_EPSILON, squash
from graphcaps.types import Routing, Segments

__all__ = ["route_channels_naive", "route_naive", "route_votes"]


def route_naive(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """Same arguments and result as :func:`graphcaps.ops.routing.factored.route_factored`."""
    h = h.masked_fill((segments.index >= segments.num_graphs).unsqueeze(-1), 0)
    # v_{j|i} = W_jᵀ h_i + e_j                                              [*lead, V, J, d']
    votes = torch.einsum("...vd,...jde->...vje", h, weight) + bias.unsqueeze(-3)
    return route_votes(votes, segments, iterations, residual, detach, epsilon)


def route_channels_naive(
    u: Tensor,
    weight: Tensor,
    segments: Segments | None,
    iterations: int,
    *,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    """Same arguments and result as :func:`graphcaps.ops.routing.channels.route_channels`."""
    # v_{j|ik} = W_{kj}ᵀ u_ik                                              [*lead, V, C, J, d']
    votes = torch.einsum("...vcd,...jcde->...vcje", u, weight)
    if segments is None:  # the capsules of a graph with one node are the rows of one graph
        *lead, B, C, _ = u.shape
        rows = torch.arange(B, device=u.device).expand(*lead, B)
        ptr = torch.arange(B + 1, device=u.device).expand(*lead, B + 1)
        sizes = None
    else:
        C, rows, ptr, sizes = u.size(-2), segments.index, segments.ptr, segments.sizes.clamp_min(1)
    index = rows.unsqueeze(-1).expand(*rows.shape, C).flatten(-2)  # every capsule is a row of its own
    return route_votes(
        votes.flatten(-4, -3), Segments(C * ptr, index), iterations, None, detach, epsilon, sizes
    ).capsules


def route_votes(
    votes: Tensor,
    segments: Segments,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
    divisor: Tensor | None = None,
) -> Routing:
    """Routes votes, ``[*lead, V, J, d]``, to J output capsules per graph.

    Args:
        votes (Tensor): Vote of each input capsule for each output capsule.
        segments (Segments): Which row belongs to which graph.
        iterations (int): Routing iterations R.
        residual (Tensor, optional): Added to every sum before the last squash, ``[*lead, B, 1, d]``.
        detach (bool): Whether c is a constant for the gradient, as in the released program.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        divisor (Tensor, optional): What the sums over the votes of a graph are divided by, ``[*lead, B]``.
            (default: 1)
    """
    *lead, V, J, d = votes.shape
    B = segments.num_graphs
    padding = (segments.index >= B).reshape(*lead, V, 1)
    votes = votes.masked_fill(padding.unsqueeze(-1), 0)
    graph = segments.index.clamp_max(B - 1)[..., None, None].expand(*lead, V, J, d)
    b = votes.new_zeros(*lead, V, J)
    for iteration in range(iterations):
        last = iteration == iterations - 1
        v = votes.detach() if detach and not last else votes
        c = b.softmax(-1).masked_fill(padding, 0)
        s = v.new_zeros(*lead, B, J, d).scatter_add(len(lead), graph, c.unsqueeze(-1) * v)
        if divisor is not None:
            s = s / divisor[..., None, None]
        if last and residual is not None:
            s = s + residual
        u = squash(s, epsilon)
        if not last:
            b = b + (v * u.gather(len(lead), graph)).sum(-1)  # agreement of a vote with its output capsule
    return Routing(u, c)
