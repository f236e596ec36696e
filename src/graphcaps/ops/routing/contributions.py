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

import torch
from torch import Tensor

from graphcaps.ops.ragged.tiles import from_tiles, graphs_to_tiles, sum_tiles, tile_rows, to_tiles
from graphcaps.ops.routing.factored import append_ones
from graphcaps.types import Contributions, Routing, Segments

__all__ = ["routing_contributions"]


@torch.no_grad()
def routing_contributions(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments | None,
    routing: Routing,
    *,
    residual: Tensor | None = None,
    after_squash: bool = False,
) -> Contributions:
    """Contributions to the output capsules of a routing of V input capsules of B graphs.

    Args:
        h (Tensor): Propagated input capsules, ``[*lead, V, d]``, or ``[*lead, B, n, d]`` without segments.
        weight (Tensor): W, ``[*lead, J, d, d']``.
        bias (Tensor): e, ``[*lead, J, d']``.
        segments (Segments, optional): Which row belongs to which graph; ``None`` if every graph has n input capsules.
        routing (Routing): Result of the routing.
        residual (Tensor, optional): The residual, ``[*lead, B, 1, d']``.
        after_squash (bool): Whether it is added to the capsules of ``routing``, as in the formulation of the paper;
            otherwise they contain it. (default: False)
    """
    tiles = None if segments is None else tile_rows(segments)
    H = to_tiles(append_ones(h), tiles)  # [*lead, N, t, d + 1]
    C = to_tiles(routing.assignment, tiles)  # [*lead, N, t, J]
    W = torch.cat([weight, bias.unsqueeze(-2)], -2)  # [*lead, J, d + 1, d']
    squashed = routing.capsules

    def along(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted votes and residual times the vectors x, and the sums of the former over the input capsules."""
        T = torch.einsum("...jde,...bje->...bjd", W, x)
        votes = C * (H @ graphs_to_tiles(T, tiles).mT)
        sums = sum_tiles(votes.sum(-2), tiles)
        return votes, sums, torch.zeros_like(sums) if residual is None else (residual * x).sum(-1)

    direction, length = _direction(squashed)
    _, sums, rest = along(direction)
    total = sums if after_squash else sums + rest  # the length before the squash
    factor = torch.where(total > 0, length / total, 0).unsqueeze(-1)
    if residual is None or not after_squash:
        votes, _, rest = along(direction * factor)
    else:
        final, _ = _direction(squashed + residual)
        votes, _, _ = along(final * factor)
        rest = (residual * final).sum(-1)
    return Contributions(from_tiles(votes, tiles), rest)


def _direction(capsules: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors, zero for a capsule of length zero, and lengths."""
    length = torch.linalg.vector_norm(capsules, dim=-1)
    return capsules / length.masked_fill(length == 0, 1).unsqueeze(-1), length
