r"""Routing of nodes with several capsules each, one per channel, whose votes have weights of their own.

With the capsule :math:`u_{ik}` of node i in channel k and votes :math:`v_{j|ik} = W_{kj}^\top u_{ik}`, an iteration of
CapsGNN (ICLR 2019) is

.. math::
    c_{ikj} = \mathrm{softmax}_j(b_{ikj}), \quad
    u'_j = \mathrm{squash}\Big(\frac{1}{n} \sum_i \sum_k c_{ikj} v_{j|ik}\Big), \quad
    b_{ikj} \leftarrow b_{ikj} + v_{j|ik}^\top u'_j

for a graph of n nodes. It is the routing of :mod:`graphcaps.ops.routing.factored` with one matrix :math:`W_j` of all
channels below each other, of which a capsule meets the rows of its channel: again no vote is stored.
"""

from __future__ import annotations

from torch import Tensor

from graphcaps.errors import ArgumentError, ShapeError
from graphcaps.ops._triton.dispatch import uses_reference
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.ragged.tiles import graphs_to_tiles, sum_tiles, tile_rows, to_tiles
from graphcaps.ops.routing.factored import iterate
from graphcaps.ops.routing.naive import route_channels_naive
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.types import Segments

__all__ = ["route_channels"]


@full_precision
def route_channels(
    u: Tensor,
    weight: Tensor,
    segments: Segments | None,
    iterations: int,
    *,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    r"""Routes the capsules of nodes, one per channel, to J output capsules per graph.

    Args:
        u (Tensor): Capsules of the nodes, ``[*lead, V, C, d]``, or of graphs with one node each, ``[*lead, B, C, d]``.
        weight (Tensor): W, ``[*lead, J, C, d, d']``.
        segments (Segments, optional): Graph of each node. (default: one node per graph)
        iterations (int): Routing iterations R, at least 1.
        detach (bool): Whether c is a constant for the gradient, so that only the last sum carries one. (default: True)
        epsilon (float): As in :func:`graphcaps.ops.squash`.

    Returns:
        Tensor: Output capsules, ``[*lead, B, J, d']``; 0 for a graph without nodes.

    Raises:
        ShapeError: If the sizes disagree.
        ArgumentError: If there is no iteration.
    """
    *lead, V, C, d = u.shape
    if tuple(weight.shape[:-4]) != tuple(lead) or tuple(weight.shape[-3:-1]) != (C, d):
        expected = f"have the shape {[*lead, 'J', C, d]} + [d']"
        raise ShapeError("route_channels", "weight", expected, list(weight.shape))
    if segments is not None and tuple(segments.index.shape) != (*lead, V):
        expected = f"have one entry per node, {[*lead, V]}"
        raise ShapeError("route_channels", "segments", expected, list(segments.index.shape))
    if iterations < 1:
        raise ArgumentError("route_channels", "iterations", "be at least 1", iterations)
    if uses_reference():
        return route_channels_naive(u, weight, segments, iterations, detach=detach, epsilon=epsilon)
    if segments is None:
        H, tiles = u.unsqueeze(-2), None  # one row per tile
    else:
        tiles = tile_rows(segments)
        H = to_tiles(u.flatten(-2), tiles).unflatten(-1, (C, d)).transpose(-3, -2)
        H = H.contiguous()  # [*lead, N, C, t, d]; zero in the unused rows of a tile

    def assign(T: Tensor) -> Tensor:
        T = T.unflatten(-1, (C, d)).transpose(-3, -2)  # [*lead, B, C, J, d]
        return (graphs_to_tiles(T, tiles) @ H.mT).softmax(-2)

    def weighted_sum(c: Tensor | None) -> Tensor:
        G = sum_tiles(H.sum(-2, keepdim=True) if c is None else c @ H, tiles)
        if segments is not None:
            G = G / segments.sizes.clamp_min(1).to(G.dtype)[..., None, None, None]
        G = G.transpose(-3, -2).flatten(-2)  # [*lead, B, J, C d]
        return G.squeeze(-2) if c is None else G

    capsules, _ = iterate(
        assign, weighted_sum, weight.flatten(-3, -2), None, iterations, None, detach, epsilon
    )
    return capsules
