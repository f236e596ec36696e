r"""Contributions of input capsules to the lengths of output capsules: an exact decomposition of a routing.

The last iteration gives :math:`u_j = f_j (\sum_i c_{ij} v_{j|i} + r)` with the residual r and the factor
:math:`f_j` of the squash, a number. With the direction :math:`\hat u_j = u_j / \|u_j\|`, the contribution of input
capsule i is the projection of its weighted vote on that direction:

.. math:: q_{ij} = f_j\, c_{ij}\, v_{j|i} \cdot \hat u_j, \qquad \sum_i q_{ij} + f_j\, r \cdot \hat u_j = \|u_j\|

A contribution is negative if the vote points away from the output capsule. In the formulation of the paper the residual
is added after the squash, and contributes :math:`r \cdot \hat u_j`.

Votes are not stored: :math:`v_{j|i} \cdot \hat u_j = h_i \cdot W_j \hat u_j + e_j \cdot \hat u_j`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphcaps.ops.ragged.tiles import from_tiles, graphs_to_tiles, sum_tiles, tile_rows, to_tiles
from graphcaps.ops.routing.factored import append_ones
from graphcaps.types import Contributions, Routing, Segments

__all__ = ["dense_contributions", "routing_contributions"]


@torch.no_grad()
def routing_contributions(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    routing: Routing,
    *,
    residual: Tensor | None = None,
    after_squash: bool = False,
) -> Contributions:
    """Contributions to the output capsules of a routing of V input capsules of B graphs.

    Args:
        h (Tensor): Propagated input capsules, ``[*lead, V, d]``.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments): Which row belongs to which graph.
        routing (Routing): Result of the routing.
        residual (Tensor, optional): The residual, ``[*lead, B, 1, d']``.
        after_squash (bool): Whether it is added to the capsules of ``routing``, as in the formulation of the paper;
            otherwise they contain it. (default: False)
    """
    tiles = tile_rows(segments)
    H = to_tiles(append_ones(h), tiles)  # [*lead, N, t, d + 1]
    C = to_tiles(routing.assignment, tiles)  # [*lead, N, t, J]

    def project(T: Tensor) -> tuple[Tensor, Tensor]:
        votes = C * (H @ graphs_to_tiles(T, tiles).mT)
        return from_tiles(votes, tiles), sum_tiles(votes.sum(-2), tiles)

    return _decompose(project, weight, bias, routing.capsules, residual, after_squash)


@torch.no_grad()
def dense_contributions(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    routing: Routing,
    *,
    residual: Tensor | None = None,
    after_squash: bool = False,
) -> Contributions:
    """The same for graphs with the same number n of input capsules, ``h [*lead, B, n, d]``."""
    H = append_ones(h)

    def project(T: Tensor) -> tuple[Tensor, Tensor]:
        votes = routing.assignment * (H @ T.mT)
        return votes, votes.sum(-2)

    return _decompose(project, weight, bias, routing.capsules, residual, after_squash)


def _decompose(
    project: Callable[[Tensor], tuple[Tensor, Tensor]],
    weight: Tensor,
    bias: Tensor,
    squashed: Tensor,
    residual: Tensor | None,
    after_squash: bool,
) -> Contributions:
    r"""The decomposition, from a function that projects all weighted votes.

    ``project`` maps :math:`W_j x_j` and :math:`e_j \cdot x_j`, ``[*lead, B, J, d + 1]``, of vectors x to the weighted
    votes times x, and to their sums over the input capsules of a graph, ``[*lead, B, J]``.
    """
    W = torch.cat([weight, bias.unsqueeze(-2)], -2)  # [*lead, J, d + 1, d']

    def along(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        votes, sums = project(torch.einsum("...jde,...bje->...bjd", W, x))
        return votes, sums, torch.zeros_like(sums) if residual is None else (residual * x).sum(-1)

    direction, length = _direction(squashed)
    _, sums, rest = along(direction)
    total = sums if after_squash else sums + rest  # the length before the squash
    factor = torch.where(total > 0, length / total, 0).unsqueeze(-1)
    if residual is None or not after_squash:
        votes, _, rest = along(direction * factor)
        return Contributions(votes, rest)
    final, _ = _direction(squashed + residual)
    return Contributions(along(final * factor)[0], along(final)[2])


def _direction(capsules: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors, zero for a capsule of length zero, and lengths."""
    length = torch.linalg.vector_norm(capsules, dim=-1)
    return capsules / length.masked_fill(length == 0, 1).unsqueeze(-1), length
