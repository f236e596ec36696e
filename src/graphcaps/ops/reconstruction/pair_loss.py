r"""Reconstruction loss: cross-entropy between the adjacency and products of node vectors, in linear memory.

The cross-entropy is a sum over all pairs of nodes of a graph,

.. math::
    \sum_{(i,j) \in E} \log P_{ij} + \sum_{(i,j) \notin E} \log(1 - P_{ij})

of which only tiles of :math:`ZZ^\top` exist at a time; the edges are written into their tiles. The loss is one number
per replica, so its gradient is computed in the same pass and scaled in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.compilation import untraced
from graphcaps.ops.propagation.adjacency_tiles import adjacency_tiles, tiles_to_rows
from graphcaps.ops.propagation.propagation import to_edge_index
from graphcaps.ops.ragged.tiles import (
    Tiles,
    from_tiles,
    graphs_to_tiles,
    segment_broadcast,
    tile_rows,
    to_tiles,
)
from graphcaps.ops.reconstruction.pair_loss_naive import RELEASED, PairRule, pair_weights
from graphcaps.types import EdgeTable, Segments

__all__ = ["CHUNK", "reconstruction_loss"]

CHUNK = 1 << 21
"""Size of a temporary tensor on a CPU; a GPU uses eight times as much."""


@untraced
@full_precision
def reconstruction_loss(
    z: Tensor,
    edges: EdgeTable,
    segments: Segments,
    rule: PairRule = RELEASED,
    shift: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy between the edges and the products of node vectors, one number per replica.

    Exact at every size: time grows with Σn² of the batch, memory with Σn.

    Args:
        z (Tensor): Node vectors, ``[*lead, V, d]``.
        edges (EdgeTable): The edges; their weights are ignored.
        segments (Segments): Which node belongs to which graph.
        rule (PairRule): Bounds, epsilon, diagonal and average. (default: those of the released program)
        shift (Tensor, optional): Added to all node vectors of a graph, ``[*lead, B, d]``. (default: None)

    Returns:
        Tensor: ``[*lead]``.
    """
    if tuple(z.shape[:-1]) != tuple(segments.index.shape):
        raise ShapeError(
            "reconstruction_loss",
            "z",
            f"have one row per node of the batch, {list(segments.index.shape)}",
            list(z.shape[:-1]),
        )
    if shift is not None:
        expected = [*z.shape[:-2], segments.num_graphs, z.size(-1)]
        if list(shift.shape) != expected:
            raise ShapeError(
                "reconstruction_loss", "shift", f"be one row per graph, {expected}", list(shift.shape)
            )
    form = select("reconstruction_loss", _reconstruction_loss, z, shift)
    return form(z, edges, segments, rule, shift)


def _reconstruction_loss(
    z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule, shift: Tensor | None
) -> Tensor:
    matrices = adjacency_tiles(edges, segments, z.dtype)
    if matrices is not None and matrices.adjacency.numel() <= _chunk(z):
        loss: Tensor = _SmallGraphLoss.apply(z, shift, matrices, segments, rule)
        return loss
    if shift is not None:
        z = z + segment_broadcast(shift, segments)
    loss = _ReconstructionLoss.apply(z, edges, segments, rule)
    return loss


class _SmallGraphLoss(torch.autograd.Function):
    """The loss of graphs whose adjacency is a dense tile each: the value of a pair is P or 1 − P, without a lookup."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        z, shift, matrices, segments, rule = inputs
        tiles: Tiles = matrices.tiles
        A: Tensor = matrices.adjacency
        (blocks, t, _), d = A.shape, z.size(-1)
        rows, holes = tiles.to_tile
        Z = z.reshape(-1, d).index_select(0, rows).view(blocks, t, d)
        if shift is not None:
            Z += shift.reshape(blocks, 1, d)
        Z.view(-1, d).index_fill_(0, holes, 0)
        filled = z.new_ones(blocks * t).index_fill_(0, holes, 0).view(blocks, t, 1)
        weight = pair_weights(segments, rule, z.dtype).reshape(blocks, 1, 1)
        S = torch.bmm(Z, Z.mT)
        value = S.clamp(rule.low, rule.high)
        if rule.zero_diagonal:
            value.diagonal(dim1=-2, dim2=-1).zero_()
        absent = 1 - A
        sign = absent - A  # 1 without an edge, −1 with one
        value = torch.addcmul(absent, value, sign, value=-1).add_(rule.epsilon)
        if any(ctx.needs_input_grad):
            g = torch.ops.aten.hardtanh_backward(sign / value, S, *open_interval(rule, z.dtype))
            if rule.zero_diagonal:
                g.diagonal(dim1=-2, dim2=-1).zero_()
            dZ = torch.bmm(g, Z).mul_(2 * weight)
            dZ.view(-1, d).index_fill_(0, holes, 0)
            grad_shift = None if shift is None else dZ.sum(-2).view(shift.shape)
            ctx.save_for_backward(tiles_to_rows(dZ, tiles, z.shape), grad_shift)
        # The logarithms of holes are left out here.
        each = torch.bmm(filled.mT, torch.bmm(value.log_(), filled)).mul_(weight)
        return -each.view(*tiles.graph.shape).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad_z, grad_shift = ctx.saved_tensors
        scale = grad[..., None, None]
        return grad_z * scale, None if grad_shift is None else grad_shift * scale, None, None, None


class _ReconstructionLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, edges: EdgeTable, segments: Segments, rule: PairRule) -> Tensor:
        weight = pair_weights(segments, rule, z.dtype)  # [*lead, B]
        loss, grad_z = _all_pairs(z, edges, segments, weight, rule, ctx.needs_input_grad[0])
        if grad_z is not None:
            ctx.save_for_backward(grad_z)
        return loss.reshape(z.shape[:-2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (grad_z,) = ctx.saved_tensors
        return grad_z * grad[..., None, None], None, None, None


def _all_pairs(
    z: Tensor, edges: EdgeTable, segments: Segments, weight: Tensor, rule: PairRule, need_grad: bool
) -> tuple[Tensor, Tensor | None]:
    """The loss over all ordered pairs inside graphs, per replica, and its gradient in z."""
    tiles = tile_rows(segments)
    *lead, N, t = tiles.rows.shape
    F = torch.Size(lead).numel()
    Z = to_tiles(z, tiles).reshape(F * N, t, z.size(-1))
    filled = (~tiles.holes).reshape(F * N, t, 1).to(z.dtype)
    tile_weight = graphs_to_tiles(weight.unsqueeze(-1), tiles).reshape(F * N)
    loss = z.new_zeros(F)
    grad_z = torch.empty_like(Z) if need_grad else None
    replica = torch.arange(F * N, device=z.device) // N
    step = max(1, _chunk(z) // (t * max(t, z.size(-1))))
    cumulative = None if tiles.single else _cumulative_pairs(tiles, segments)
    inside, across = _edge_positions(edges, tiles, cumulative)
    for start, edge in _by_step(inside, F * N, step, t):  # each tile with itself: most pairs
        tile = slice(start, start + step)
        each, g = _tile_pairs(Z[tile], Z[tile], filled[tile], filled[tile], edge, rule, need_grad, same=True)
        loss.index_add_(0, replica[tile], -each * tile_weight[tile])
        if grad_z is not None:
            torch.bmm(g, Z[tile], out=grad_z[tile])
            grad_z[tile] *= 2 * tile_weight[tile, None, None]
    num_pairs = 0 if cumulative is None or not cumulative.numel() else int(cumulative[-1])
    for start, edge in _by_step(across, num_pairs, step, t):
        assert cumulative is not None
        # Pairs are enumerated, not stored: a list would grow with the square of the largest graph.
        number = torch.arange(start, min(start + step, num_pairs), device=z.device)
        i = torch.searchsorted(cumulative, number, right=True)
        j = i + cumulative[i] - number
        Zi, Zj, twice = Z[i], Z[j], 2 * tile_weight[i]
        each, g = _tile_pairs(Zi, Zj, filled[i], filled[j], edge, rule, need_grad, same=False)
        loss.index_add_(0, replica[i], -each * twice)  # for both orders
        if grad_z is not None:
            grad_z.index_add_(0, i, (g @ Zj).mul_(twice[:, None, None]))
            grad_z.index_add_(0, j, (g.mT @ Zi).mul_(twice[:, None, None]))
    if grad_z is None:
        return loss, None
    return loss, from_tiles(grad_z.reshape(*lead, N, t, -1), tiles)


def _edge_positions(edges: EdgeTable, tiles: Tiles, cumulative: Tensor | None) -> tuple[Tensor, Tensor]:
    """Positions of the edges among the products of a tile with itself, and of a tile with a later one; ascending.

    Every edge is listed in both directions. The products of two tiles stand for both orders, so that the second tensor
    has one of them.

    Args:
        edges (EdgeTable): The edges.
        tiles (Tiles): N tiles of t rows.
        cumulative (Tensor, optional): From :func:`_cumulative_pairs`; ``None`` if every graph is one tile.
    """
    *lead, N, t = tiles.rows.shape
    F = torch.Size(lead).numel()
    offset = torch.arange(0, F * N * t, N * t, device=tiles.rows.device).unsqueeze(-1)
    position = (tiles.position.reshape(F, -1) + offset).reshape(-1)
    source, target = to_edge_index(edges)
    row, column = position[target], position[source]
    within = row % t * t + column % t
    row, column = row // t, column // t
    if cumulative is None:
        return (row * (t * t) + within).sort().values, row.new_empty(0)
    inside, later = row == column, row < column
    number = cumulative[row[later]] - (column - row)[later]
    return (
        (row[inside] * (t * t) + within[inside]).sort().values,
        (number * (t * t) + within[later]).sort().values,
    )


def _by_step(position: Tensor, count: int, step: int, t: int) -> Iterator[tuple[int, Tensor]]:
    """First number of each step of ``count`` products of tiles, and the positions of edges among those of the step."""
    starts = range(0, count, step)
    bounds = torch.tensor([*starts, count], device=position.device) * (t * t)
    ends = torch.searchsorted(position, bounds).tolist()
    for start, first, end in zip(starts, ends[:-1], ends[1:], strict=True):
        yield start, position[first:end] - start * (t * t)


def _tile_pairs(
    Zi: Tensor,
    Zj: Tensor,
    filled_i: Tensor,
    filled_j: Tensor,
    edge: Tensor,
    rule: PairRule,
    need_grad: bool,
    same: bool,
) -> tuple[Tensor, Tensor]:
    """Σ log P over the edges and Σ log(1 − P) over the other pairs of two tiles, ``[pairs]``, and the gradient of −Σ.

    The values of edges are written at their positions ``edge``. Subtracting what they would add as other pairs would
    leave a difference of two numbers of up to 1 / ε where P is close to 1, as it is at edges, and nothing but the
    rounding of P in it.
    """
    S = Zi @ Zj.mT  # [pairs, t, t]
    value = S.clamp(rule.low, rule.high)
    zero = same and rule.zero_diagonal
    if zero:
        value.diagonal(dim1=-2, dim2=-1).zero_()
    present = value.view(-1)[edge] + rule.epsilon
    value.neg_().add_(1).add_(rule.epsilon)
    value.view(-1)[edge] = present
    g = S
    if need_grad:
        g = value.reciprocal()
        g.view(-1)[edge] = present.reciprocal_().neg_()
        g = torch.ops.aten.hardtanh_backward(g, S, *open_interval(rule, S.dtype))
        if zero:
            g.diagonal(dim1=-2, dim2=-1).zero_()
    # Z is zero in holes, so the values of g present add nothing; the logarithms of holes are left out here.
    each = filled_i.mT @ (value.log_() @ filled_j)
    return each.reshape(-1), g


def _cumulative_pairs(tiles: Tiles, segments: Segments) -> Tensor:
    """Cumulative number of pairs of a tile with a later tile of its graph, ``[F·N]``."""
    t = tiles.height
    used = ((segments.sizes + t - 1) // t).gather(-1, tiles.graph)  # tiles of this tile's graph
    first_row = segments.ptr[..., :-1].gather(-1, tiles.graph)
    number = (tiles.rows[..., 0] - first_row) // t
    return (used - number - 1).masked_fill(tiles.holes[..., 0], 0).reshape(-1).cumsum(0)


def _chunk(z: Tensor) -> int:
    return CHUNK if z.device.type == "cpu" else 8 * CHUNK


@cache
def open_interval(rule: PairRule, dtype: torch.dtype) -> tuple[float, float]:
    """The rule's bounds, each moved outwards by one floating-point number, for the gradient of hardtanh.

    That gradient is zero at its bounds, ours is not. It takes one pass for two comparisons and a mask.
    """
    return _step(rule.low, -1, dtype), _step(rule.high, 1, dtype)


def _step(bound: float, direction: int, dtype: torch.dtype) -> float:
    """The next number of ``dtype`` after ``bound``, up (1) or down (−1)."""
    present = torch.tensor(direction * float("inf"), dtype=dtype)
    return float(torch.nextafter(torch.tensor(bound, dtype=dtype), present))
