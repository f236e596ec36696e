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

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.autocast import full_precision
from graphcaps.ops.compilation import is_traced
from graphcaps.ops.ragged.tiles import (
    Tiles,
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
    joined = to_tiles(torch.cat([x, unary, inverse, length.square() * inverse], -1), tiles)
    X, U, inverse, own = joined.split([x.size(-1), unary.size(-1), 1, 1], -1)
    if rounds == 0 or is_traced():
        S = _iterate(U, X, X * inverse, own, tiles, rounds)[0][-1]
    else:
        S = _Rounds.apply(U, X, X * inverse, own, tiles, rounds)
    return from_tiles(S, tiles)


def _iterate(
    U: Tensor, X: Tensor, A: Tensor, own: Tensor, tiles: Tiles, rounds: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Assignments before the first and after each round, and the sums XᵀS of each tile's graph.

    Args:
        U, X (Tensor): Potentials and features in tiles, ``[*lead, N, t, k]`` and ``[*lead, N, t, d]``.
        A (Tensor): X divided by the row sums.
        own (Tensor): Weight of a row's own assignment in its message, ``[*lead, N, t, 1]``.
        tiles (Tiles): Graph of each tile.
        rounds (int): Number of rounds.
    """
    assignments, sums = [U.softmax(-1)], []
    for _ in range(rounds):
        S = assignments[-1]
        sums.append(_sum_graphs(X.mT @ S, tiles))
        assignments.append(torch.addcmul(U + A @ sums[-1], own, S, value=-1).softmax(-1))
    return assignments, sums


def _sum_graphs(x: Tensor, tiles: Tiles) -> Tensor:
    """Sums over the tiles of each graph, copied to each of them: a symmetric linear map."""
    return graphs_to_tiles(sum_tiles(x, tiles), tiles)


class _Rounds(torch.autograd.Function):
    """The rounds, with a backward pass whose sums over rounds are one product each.

    Automatic differentiation has four products and five additions for each round; here it is two products, and two
    for all rounds together.
    """

    @staticmethod
    def forward(ctx: Any, U: Tensor, X: Tensor, A: Tensor, own: Tensor, tiles: Tiles, rounds: int) -> Tensor:
        assignments, sums = _iterate(U, X, A, own, tiles, rounds)
        ctx.tiles, ctx.rounds = tiles, rounds
        ctx.save_for_backward(X, A, own, *assignments, *sums)
        return assignments[-1]

    @staticmethod
    @once_differentiable
    @full_precision
    def backward(ctx: Any, grad: Tensor) -> Any:
        X, A, own, *saved = ctx.saved_tensors
        rounds: int = ctx.rounds
        assignments, sums = saved[: rounds + 1], saved[rounds + 1 :]
        grad_Q, grad_sums = [], []  # from the last round to the first
        for after in reversed(assignments[1:]):
            grad_Q.append(_softmax_gradient(grad, after))
            grad_sums.append(_sum_graphs(A.mT @ grad_Q[-1], ctx.tiles))
            grad = torch.addcmul(X @ grad_sums[-1], own, grad_Q[-1], value=-1)
        before = torch.cat(assignments[-2::-1], -1)  # [*lead, N, t, R k], as all of the following
        changes = torch.cat(grad_Q, -1)
        grad_A = changes @ torch.cat(sums[::-1], -1).mT
        grad_X = before @ torch.cat(grad_sums, -1).mT
        grad_own = -(changes * before).sum(-1, keepdim=True)
        grad_U = changes.unflatten(-1, (rounds, -1)).sum(-2) + _softmax_gradient(grad, assignments[0])
        return grad_U, grad_X, grad_A, grad_own, None, None


def _softmax_gradient(grad: Tensor, y: Tensor) -> Tensor:
    """Gradient of the argument of a softmax over the last axis with the result ``y``."""
    gradient: Tensor = torch.ops.aten._softmax_backward_data(grad, y, -1, y.dtype)
    return gradient


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
