"""Routing by agreement with every vote stored: the paper's loop, kept as the oracle of the fast one.

It also serves votes that no linear map made, which the factored form cannot.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.squash import RELEASED_EPSILON, squash
from graphcaps.types import Routing, Segments

__all__ = ["route_naive", "route_votes"]


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


def route_votes(
    votes: Tensor,
    segments: Segments,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """Routes given votes, ``[*lead, V, J, d]``, to J wholes per graph.

    Args:
        votes (Tensor): Vote of each part for each whole.
        segments (Segments): Which part belongs to which graph.
        iterations (int): Rounds R.
        residual (Tensor, optional): Added to every sum before the last squash, ``[*lead, B, 1, d]``.
        detach (bool): Whether the weights c are constants for the gradient, as in the released program.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
    """
    *lead, V, J, d = votes.shape
    B = segments.num_graphs
    outside = (segments.index >= B).reshape(*lead, V, 1)
    votes = votes.masked_fill(outside.unsqueeze(-1), 0)
    own = segments.index.clamp_max(B - 1)[..., None, None].expand(*lead, V, J, d)
    b = votes.new_zeros(*lead, V, J)
    for round_ in range(iterations):
        last = round_ == iterations - 1
        v = votes.detach() if detach and not last else votes
        c = b.softmax(-1).masked_fill(outside, 0)
        s = v.new_zeros(*lead, B, J, d).scatter_add(len(lead), own, c.unsqueeze(-1) * v)
        if last and residual is not None:
            s = s + residual
        u = squash(s, epsilon)
        if not last:
            b = b + (v * u.gather(len(lead), own)).sum(-1)  # agreement of a vote with its whole
    return Routing(u, c)
