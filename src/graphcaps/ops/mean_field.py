r"""Mean-field inference of a soft assignment in which similar nodes attract each other (StructPool).

Nodes of a graph with features :math:`X` attract each other with the weights :math:`W = X X^\top` without its diagonal.
From unary potentials :math:`U`, one column per cluster, rounds of

.. math:: Q \leftarrow U + D^{-1} W \, \mathrm{softmax}(Q), \quad D_{ii} = \sum_j W_{ij}

start at :math:`Q = U`, and the assignment is :math:`\mathrm{softmax}(Q)` after the last. The product is computed as
:math:`W S = X (X^\top S) - \mathrm{diag}(\|x_i\|^2) S`, and the row sums as :math:`x_i \cdot (\sum_j x_j - x_i)`. No
n × n matrix is stored: time and memory are linear in the number of nodes.

W is signed, so a row sum can be close to 0 and its messages very large. With a guard :math:`\epsilon > 0` its absolute
value is at least :math:`\epsilon \|x_i\| \sum_{j \ne i} \|x_j\|`, which bounds every message by :math:`1 / \epsilon`.
A row whose sum is exactly 0, such as that of a graph of one node, gets no messages.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops.autocast import full_precision
from graphcaps.ops.ragged.tiles import (
    from_tiles,
    graphs_to_tiles,
    segment_broadcast,
    segment_sum,
    sum_tiles,
    tile_rows,
    to_tiles,
)
from graphcaps.types import Segments

__all__ = ["dense_mean_field", "mean_field"]


@full_precision
def mean_field(unary: Tensor, x: Tensor, segments: Segments, rounds: int, guard: float = 0.0) -> Tensor:
    """The assignment of the nodes of a ragged batch to clusters.

    Args:
        unary (Tensor): U, ``[*lead, V, k]``.
        x (Tensor): X, ``[*lead, V, d]``.
        segments (Segments): Graph of each row.
        rounds (int): Number of rounds; 0 for the softmax of U.
        guard (float): The guard ε of row sums near 0. (default: 0.0, none)

    Returns:
        Tensor: Rows that sum to 1, ``[*lead, V, k]``; 0 at padding.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    totals = segment_broadcast(segment_sum(torch.cat([x, length], -1), segments), segments)
    row_sum = (x * (totals[..., :-1] - x)).sum(-1, keepdim=True)
    inverse = _guarded_inverse(row_sum, length * (totals[..., -1:] - length), guard)

    # All rounds run on tiles, so that rows are gathered once. Positions without a row have X = 0 and send nothing.
    tiles = tile_rows(segments)
    X, U = to_tiles(x, tiles), to_tiles(unary, tiles)
    scaled = to_tiles(x * inverse, tiles)
    own = to_tiles(length.square() * inverse, tiles)
    S = U.softmax(-1)
    for _ in range(rounds):
        sums = graphs_to_tiles(sum_tiles(X.mT @ S, tiles), tiles)  # XᵀS of each tile's graph
        S = torch.addcmul(U + scaled @ sums, own, S, value=-1).softmax(-1)
    return from_tiles(S, tiles)


def dense_mean_field(unary: Tensor, x: Tensor, rounds: int, guard: float = 0.0) -> Tensor:
    """The same for one graph, ``unary [n, k]`` and ``x [n, d]``, with the n × n matrix W: the tests' reference."""
    others = 1 - torch.eye(x.size(0), dtype=x.dtype, device=x.device)
    weights = x @ x.mT * others
    length = torch.linalg.vector_norm(x, dim=-1)
    bound = (length.unsqueeze(0) * length.unsqueeze(1) * others).sum(-1, keepdim=True)
    weights = weights * _guarded_inverse(weights.sum(-1, keepdim=True), bound, guard)
    q = unary
    for _ in range(rounds):
        q = unary + weights @ q.softmax(-1)
    return q.softmax(-1)


def _guarded_inverse(row_sum: Tensor, bound: Tensor, guard: float) -> Tensor:
    """1 / ``row_sum``, whose absolute value is raised to ``guard · bound``; 0 where that is 0."""
    if guard > 0:
        row_sum = torch.maximum(row_sum.abs(), guard * bound).copysign(row_sum)
    zero = row_sum == 0
    return row_sum.masked_fill(zero, 1).reciprocal().masked_fill(zero, 0)
