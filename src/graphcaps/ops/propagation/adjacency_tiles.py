r"""Adjacency matrices of small graphs as dense tiles: products with them are batched matrix products.

A sparse product of a small graph takes longer to start than to compute. Graphs of at most :data:`TILE_HEIGHT` nodes are
one tile each, and their adjacency is a block of t × t numbers, which the hop, the coarse graph and the reconstruction
share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcaps.memo import remember
from graphcaps.ops._triton.dispatch import needs_plain_operations
from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.ops.ragged.tiles import TILE_HEIGHT, Tiles, tile_rows
from graphcaps.types import EdgeTable, Segments

__all__ = [
    "AdjacencyTiles",
    "adjacency_tiles",
    "dense_matrices",
    "keep_adjacency_tiles",
    "tile_hop",
    "tiles_to_rows",
]


@dataclass(frozen=True, eq=False)
class AdjacencyTiles:
    """The graphs of a batch as dense matrices, one tile each.

    Args:
        tiles (Tiles): The tiles; every graph is one.
        adjacency (Tensor): A, ``[F·B, t, t]``, zero in holes.
        hop (Tensor): :math:`\\hat A` of :func:`graphcaps.ops.propagate`, of the same shape, zero in holes.
        filled (Tensor): 1 at the rows of a graph, 0 in holes, ``[F·B, 1, t]``.
        pairs (Tensor): 1 at the pairs of rows of a graph, 0 in holes, ``[F·B, t, t]``.
        absent (Tensor): 1 − A, ``[F·B, t, t]``.
        sign (Tensor): 1 at pairs without an edge, −1 at edges, 0 on the diagonal and in holes, ``[F·B, t, t]``.
    """

    tiles: Tiles
    adjacency: Tensor
    hop: Tensor
    filled: Tensor
    pairs: Tensor
    absent: Tensor
    sign: Tensor


def adjacency_tiles(edges: EdgeTable, segments: Segments, dtype: torch.dtype) -> AdjacencyTiles | None:
    """The matrices of a batch, made once per batch; ``None`` where sparse products serve better.

    That is with a graph of more than :data:`TILE_HEIGHT` nodes, with edge weights, and on a GPU.
    """
    if segments.max_size is None or segments.max_size > TILE_HEIGHT or edges.weight is not None:
        return None
    if edges.node.device.type != "cpu" or edges.node.shape != segments.index.shape:
        return None
    if needs_plain_operations():
        return None

    def make() -> AdjacencyTiles:
        tiles = tile_rows(segments)
        t, position, pairs = tiles.height, tiles.to_row[0], edge_list(edges)
        entry = position[pairs.target] * t + position[pairs.source] % t
        blocks = tiles.rows.shape[:-1].numel()
        adjacency = torch.zeros(blocks * t * t, dtype=dtype).index_fill_(0, entry, 1).view(blocks, t, t)
        return AdjacencyTiles(tiles, adjacency, *dense_matrices(adjacency, tiles.holes.view(blocks, t)))

    return remember(edges.memo, ("adjacency tiles", dtype), make)


def keep_adjacency_tiles(edges: EdgeTable, matrices: AdjacencyTiles) -> None:
    """Has :func:`adjacency_tiles` return these matrices, which were computed for several batches at once."""
    edges.memo["adjacency tiles", matrices.adjacency.dtype] = matrices


def dense_matrices(adjacency: Tensor, holes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""``hop``, ``filled``, ``pairs``, ``absent`` and ``sign`` of :class:`AdjacencyTiles`.

    :math:`\hat A = \tilde D^{-1/2} (A + I) \tilde D^{-1/2}`, without the diagonal in holes.

    Args:
        adjacency (Tensor): A, ``[N, t, t]``, zero in holes.
        holes (Tensor): True in holes, ``[N, t]``.
    """
    filled = (~holes).to(adjacency.dtype).unsqueeze(-2)
    scale = (adjacency.sum(-1, keepdim=True) + 1).rsqrt_().mul_(filled.mT)
    hop = adjacency * scale * scale.mT
    hop.diagonal(dim1=-2, dim2=-1).add_(scale.square_().squeeze(-1))
    pairs = filled.mT * filled
    sign = pairs - 2 * adjacency
    sign.diagonal(dim1=-2, dim2=-1).zero_()
    return hop, filled, pairs, 1 - adjacency, sign


def tile_hop(
    x: Tensor, matrices: AdjacencyTiles, sizes: Tensor, divisor: int | None, residual: bool
) -> tuple[Tensor, Tensor | None]:
    """:math:`\\hat A x` of the rows, and the sum of the rows of each graph over its size or a divisor.

    Args:
        x (Tensor): Rows, ``[*lead, V, d]``, zero at padding.
        matrices (AdjacencyTiles): The graphs.
        sizes (Tensor): Number of rows of each graph, ``[*lead, B]``.
        divisor (int, optional): Divides the sums. (default: the sizes)
        residual (bool): Whether the sums are computed.

    Returns:
        tuple: ``[*lead, V, d]`` and ``[*lead, B, d]``, or ``None``.
    """
    share: float | Tensor = 0.0
    if residual:
        share = 1 / divisor if divisor else sizes.to(x.dtype).clamp_min_(1).reciprocal_().view(-1, 1)
    h, mean = _TileHop.apply(x, matrices, share)
    return h, mean.view(*sizes.shape, x.size(-1)) if residual else None


class _TileHop(torch.autograd.Function):
    """Both results, and their gradient written out: A is symmetric."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrices: AdjacencyTiles, share: float | Tensor) -> Any:
        ctx.matrices, ctx.share = matrices, share
        X = _rows_to_tiles(x, matrices.tiles)
        h = tiles_to_rows(torch.bmm(matrices.hop, X), matrices.tiles, x.shape)
        return h, X.sum(-2).mul_(share)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_mean: Tensor) -> Any:
        matrices: AdjacencyTiles = ctx.matrices
        if torch.is_grad_enabled():  # for a second derivative: the gradient is linear in both arguments
            rows, _ = _TileHop.apply(grad, matrices, 0.0)
            spread = (grad_mean * ctx.share).repeat_interleave(matrices.tiles.height, 0)
            return rows + _rows_of_tiles(spread, matrices.tiles, grad.shape), None, None
        G = torch.bmm(matrices.hop, _rows_to_tiles(grad, matrices.tiles))
        G += (grad_mean * ctx.share).unsqueeze(-2)
        return tiles_to_rows(G, matrices.tiles, grad.shape), None, None


def _rows_to_tiles(x: Tensor, tiles: Tiles) -> Tensor:
    """Rows as tiles, ``[*lead, V, d]`` to ``[F·N, t, d]``, zero in holes; without a gradient."""
    d, (rows, holes) = x.size(-1), tiles.to_tile
    return x.reshape(-1, d).index_select(0, rows).index_fill_(0, holes, 0).view(-1, tiles.height, d)


def tiles_to_rows(x: Tensor, tiles: Tiles, shape: torch.Size) -> Tensor:
    """Tiles as rows of the given shape, ``[*lead, V, d]``, zero at padding; without a gradient."""
    position, padding = tiles.to_row
    rows = x.view(-1, x.size(-1)).index_select(0, position)
    return (rows if padding is None else rows.index_fill_(0, padding, 0)).view(shape)


def _rows_of_tiles(x: Tensor, tiles: Tiles, shape: torch.Size) -> Tensor:
    """:func:`tiles_to_rows` with a gradient."""
    position, padding = tiles.to_row
    rows = x.index_select(0, position)
    return (rows if padding is None else rows.index_fill(0, padding, 0)).view(shape)
