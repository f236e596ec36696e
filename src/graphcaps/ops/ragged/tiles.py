"""Sums over the rows of each graph, and ragged rows split into tiles of equal height for batched products.

A graph of n rows has ⌈n / t⌉ tiles of t rows, and the last one has unused rows, called holes. Cost grows with the
number of rows (at most t − 1 holes per graph), not with the largest graph. The product of a tile with a matrix of its
graph is one entry of a batched matrix product.

Graphs of equal size, ``[*lead, B, n, d]``, are tiles already: functions of tiles leave them as they are where ``tiles``
is ``None``, so that a computation in tiles serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcaps.memo import remember
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.compilation import is_traced
from graphcaps.ops.row_sums import select_rows, sum_rows
from graphcaps.types import Segments

__all__ = [
    "TILE_HEIGHT",
    "Tiles",
    "flat_index",
    "from_tiles",
    "graphs_to_tiles",
    "is_single_graph",
    "keep_tiles",
    "segment_broadcast",
    "segment_product",
    "segment_sum",
    "sum_tiles",
    "take_rows",
    "tile_rows",
    "to_tiles",
]

TILE_HEIGHT = 32


@dataclass(frozen=True)
class Tiles:
    """The position of each row of ``segments`` in N tiles of ``height`` rows.

    Args:
        rows (Tensor): Row at each position of each tile (a hole repeats a row), ``[*lead, N, t]``.
        holes (Tensor): True at positions without a row, ``[*lead, N, t]``.
        graph (Tensor): Graph of each tile, ``[*lead, N]``.
        position (Tensor): Position of each row, counted through all tiles, ``[*lead, V]``.
        num_graphs (int): B.
        single (bool): Whether every graph is one tile, in order.
        to_tile (tuple): Flat row index of each position, and the holes, for :func:`to_tiles`.
        to_row (tuple): Flat position of each row, and the padding rows, for :func:`from_tiles`.
    """

    rows: Tensor
    holes: Tensor
    graph: Tensor
    position: Tensor
    num_graphs: int
    single: bool
    to_tile: tuple[Tensor, Tensor]
    to_row: tuple[Tensor, Tensor | None]

    @property
    def height(self) -> int:
        return self.rows.size(-1)


def tile_rows(segments: Segments, height: int = TILE_HEIGHT) -> Tiles:
    """Tiles for these segments, computed once per batch.

    On a CPU their number is exact; on a GPU it is the bound V / t + B, which needs no host–device synchronisation.
    """
    height = _tile_height(segments, height)
    return remember(segments.memo, ("tiles", height), lambda: _split(segments, height))


def keep_tiles(segments: Segments, tiles: Tiles) -> None:
    """Has :func:`tile_rows` return these tiles, which may be higher than necessary."""
    segments.memo["tiles", _tile_height(segments, TILE_HEIGHT)] = tiles


def _tile_height(segments: Segments, height: int) -> int:
    largest, B = segments.max_size, segments.num_graphs
    if largest is not None and largest <= 4 * height:
        # One tile per graph, if that needs no more positions than tiles of this height do on average.
        fits = largest <= height or 2 * B * largest <= 2 * segments.num_rows + B * height
        height = max(largest, 1) if fits else height
    return height


def _split(segments: Segments, t: int) -> Tiles:
    ptr, index, B = segments.ptr, segments.index, segments.num_graphs
    *lead, V = index.shape
    device = ptr.device
    single = segments.max_size is not None and segments.max_size <= t
    if single:
        N = B
        tile_ptr = torch.arange(B + 1, device=device).expand(*lead, B + 1)
        graph = torch.arange(B, device=device).expand(*lead, B)
    else:
        tile_ptr = torch.nn.functional.pad(((segments.sizes + t - 1) // t).cumsum(-1), (1, 0))
        counts = device.type == "cpu" and not is_traced()  # values are read without a synchronisation
        N = (int(tile_ptr[..., -1].max()) if tile_ptr.numel() else 0) if counts else V // t + B
        tile = torch.arange(N, device=device).expand(*lead, N).contiguous()
        graph = torch.searchsorted(tile_ptr[..., 1:].contiguous(), tile, right=True).clamp_max(B - 1)
    first = ptr[..., :-1].gather(-1, graph)
    within = torch.arange(N, device=device) - tile_ptr[..., :-1].gather(-1, graph)
    rows = (first + within * t).unsqueeze(-1) + torch.arange(t, device=device)  # [*lead, N, t]
    end = ptr[..., 1:].gather(-1, graph).unsqueeze(-1)
    holes = rows >= end
    rows = torch.minimum(rows, end - 1).clamp_min(0)

    padding = index >= B if segments.padded else None
    graph_of_row = index.clamp_max(B - 1)
    offset = torch.arange(V, device=device) - ptr[..., :-1].gather(-1, graph_of_row)
    position = (tile_ptr[..., :-1].gather(-1, graph_of_row) + offset // t) * t + offset % t
    if padding is not None:
        position = position.masked_fill(padding, 0)
    to_tile = (flat_index(rows, V, axes=2), _mask_or_indices(holes))
    to_row = (flat_index(position, N * t), None if padding is None else _mask_or_indices(padding))
    return Tiles(rows, holes, graph, position, B, single, to_tile, to_row)


def _mask_or_indices(mask: Tensor) -> Tensor:
    """A mask in the form that zeroes rows fastest: indices on a CPU; the mask on a GPU, where indices synchronise."""
    flat = mask.reshape(-1)
    return flat.nonzero().squeeze(-1) if flat.device.type == "cpu" and not is_traced() else flat


def to_tiles(x: Tensor, tiles: Tiles | None) -> Tensor:
    """Rows into tiles, ``[*lead, V, d]`` to ``[*lead, N, t, d]``; holes are zero."""
    if tiles is None:
        return x
    taken = take_rows(x.reshape(-1, x.size(-1)), *tiles.to_tile, *tiles.to_row)
    return taken.reshape(*tiles.rows.shape, x.size(-1))


def from_tiles(x: Tensor, tiles: Tiles | None) -> Tensor:
    """Tiles into rows, ``[*lead, N, t, d]`` to ``[*lead, V, d]``; padding rows are zero."""
    if tiles is None:
        return x
    taken = take_rows(x.reshape(-1, x.size(-1)), *tiles.to_row, *tiles.to_tile)
    return taken.reshape(*tiles.position.shape, x.size(-1))


def graphs_to_tiles(x: Tensor, tiles: Tiles | None) -> Tensor:
    """Values per graph copied to each of its tiles: ``[*lead, B, …]`` to ``[*lead, N, …]``."""
    if tiles is None or tiles.single:
        return x
    lead = tiles.graph.shape[:-1]
    flat = x.reshape(-1, *x.shape[len(lead) + 1 :])
    rows = select_rows(flat, flat_index(tiles.graph, tiles.num_graphs))
    return rows.reshape(*tiles.graph.shape, *flat.shape[1:])


def sum_tiles(x: Tensor, tiles: Tiles | None) -> Tensor:
    """Sums over the tiles of each graph: ``[*lead, N, …]`` to ``[*lead, B, …]``."""
    if tiles is None or tiles.single:
        return x
    lead, B = tiles.graph.shape[:-1], tiles.num_graphs
    flat = x.reshape(-1, *x.shape[len(lead) + 1 :])
    total = sum_rows(flat, flat_index(tiles.graph, B), lead.numel() * B)
    return total.reshape(*lead, B, *flat.shape[1:])


def is_single_graph(segments: Segments) -> bool:
    """Whether all rows belong to one graph: then no row is gathered, and there may be very many."""
    return segments.num_graphs == 1 and not segments.padded and segments.index.dim() == 1


@full_precision
def segment_sum(x: Tensor, segments: Segments) -> Tensor:
    """Sum over the rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d]``; padding rows are left out."""
    return select("segment_sum", _segment_sum, x)(x, segments)


def _segment_sum(x: Tensor, segments: Segments) -> Tensor:
    if is_single_graph(segments):
        return x.sum(-2, keepdim=True)
    lead, B = segments.index.shape[:-1], segments.num_graphs
    # Padding rows are added to one more graph, which is dropped.
    graphs = B + 1 if segments.padded else B
    rows = x.reshape(-1, x.size(-1))
    total = sum_rows(rows, flat_index(segments.index, graphs), lead.numel() * graphs)
    total = total.reshape(*lead, graphs, x.size(-1))
    return total[..., :B, :] if segments.padded else total


@full_precision
def segment_broadcast(x: Tensor, segments: Segments) -> Tensor:
    """Values per graph copied to each of its rows: ``[*lead, B, d]`` to ``[*lead, V, d]``.

    Padding rows are 0. The result must not be written to: rows of a graph may share their memory.
    """
    return select("segment_broadcast", _segment_broadcast, x)(x, segments)


def _segment_broadcast(x: Tensor, segments: Segments) -> Tensor:
    if is_single_graph(segments):
        return x.expand(segments.num_rows, -1)
    graphs = segments.num_graphs
    if segments.padded:  # one more graph of zeros, for the padding rows
        x, graphs = torch.nn.functional.pad(x, (0, 0, 0, 1)), graphs + 1
    flat = select_rows(x.reshape(-1, x.size(-1)), flat_index(segments.index, graphs))
    return flat.reshape(*segments.index.shape, x.size(-1))


@full_precision
def segment_product(a: Tensor, x: Tensor, segments: Segments) -> Tensor:
    """Sum of aᵢ ⊗ xᵢ over the rows i of each graph, ``[*lead, V, N]`` and ``[*lead, V, d]`` to ``[*lead, B, N, d]``.

    Padding rows are left out.
    """
    form = select("segment_product", _segment_product, a, x, reference=_segment_product_reference)
    return form(a, x, segments)


def _segment_product(a: Tensor, x: Tensor, segments: Segments) -> Tensor:
    tiles = tile_rows(segments)
    return sum_tiles(to_tiles(a, tiles).mT @ to_tiles(x, tiles), tiles)


def _segment_product_reference(a: Tensor, x: Tensor, segments: Segments) -> Tensor:
    """Every product aᵢ ⊗ xᵢ is stored."""
    products = (a.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)
    return segment_sum(products, segments).unflatten(-1, (a.size(-1), x.size(-1)))


def flat_index(index: Tensor, size: int, axes: int = 1) -> Tensor:
    """A flat index into ``[*lead, size]`` from an index ``[*lead, …]``, whose last ``axes`` axes are not leading."""
    lead = index.shape[: index.dim() - axes]
    if not lead:
        return index.reshape(-1)
    start = torch.arange(0, lead.numel() * size, size, device=index.device)
    return (index.reshape(lead.numel(), -1) + start.unsqueeze(-1)).reshape(-1)


def take_rows(
    x: Tensor, index: Tensor, zero: Tensor | None, inverse: Tensor, inverse_zero: Tensor | None
) -> Tensor:
    """Rows of ``x [N, d]`` by index, where every row is taken at most once; the gradient is a gather too.

    Args:
        x (Tensor): Rows, ``[N, d]``.
        index (Tensor): Row of each row of the result, ``[M]``.
        zero (Tensor, optional): Rows of the result that are 0, as a mask ``[M]`` or as indices. (default: none)
        inverse (Tensor): Row of the result that has each row of ``x``, ``[N]``.
        inverse_zero (Tensor, optional): Rows of ``x`` that are not taken, as a mask ``[N]`` or as indices.
            (default: none)
    """
    if not torch.is_grad_enabled():  # as inside gradients that are written out
        return _taken(x, index, zero)
    taken: Tensor = _Take.apply(x, index, zero, inverse, inverse_zero)
    return taken


def _taken(x: Tensor, index: Tensor, zero: Tensor | None) -> Tensor:
    taken = x.index_select(0, index)
    if zero is None:
        return taken
    if zero.dtype == torch.bool:
        return taken.masked_fill_(zero.unsqueeze(-1), 0)
    return taken.index_fill_(0, zero, 0)


class _Take(torch.autograd.Function):
    """Rows by index, some set to zero, where every row is taken at most once.

    The gradient of a gather is a scatter. This gather is a bijection on the real rows, so its gradient is a gather
    with the inverse index.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, index: Tensor, zero: Tensor | None, inverse: Tensor, inverse_zero: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(index, zero, inverse, inverse_zero)
        return _taken(x, index, zero)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        index, zero, inverse, inverse_zero = ctx.saved_tensors
        return _Take.apply(grad, inverse, inverse_zero, index, zero), None, None, None, None
