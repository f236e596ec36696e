"""Ragged rows cut into tiles of one height, so that sums inside graphs become batched matrix products.

A graph of n rows takes ⌈n / t⌉ tiles of t rows; the last one has holes. Cost follows the number of rows
(at most t − 1 holes a graph), never the largest graph, and a product of a tile with something of its own
graph is one entry of a batched product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.types import Segments

__all__ = [
    "TILE_HEIGHT",
    "Tiles",
    "from_tiles",
    "graphs_to_tiles",
    "is_single_graph",
    "segment_broadcast",
    "segment_product",
    "segment_sum",
    "sum_tiles",
    "tile_rows",
    "to_tiles",
]

TILE_HEIGHT = 32


@dataclass(frozen=True)
class Tiles:
    """Where each row of ``segments`` stands among N tiles of ``height`` rows.

    Args:
        rows (Tensor): Row at each place of each tile (a hole repeats a row), ``[*lead, N, t]``.
        holes (Tensor): True at places without a row, ``[*lead, N, t]``.
        graph (Tensor): Graph of each tile, ``[*lead, N]``.
        place (Tensor): Place of each row, counted through all tiles, ``[*lead, V]``.
        outside (Tensor, optional): True at padding rows, ``[*lead, V]``; ``None`` where there is none.
        num_graphs (int): B.
        single (bool): Whether tile g is graph g, for all of them.
        there (tuple): Flat source of each place, and which places are holes, for :func:`to_tiles`.
        back (tuple): Flat source of each row, and which rows are padding, for :func:`from_tiles`.
    """

    rows: Tensor
    holes: Tensor
    graph: Tensor
    place: Tensor
    outside: Tensor | None
    num_graphs: int
    single: bool
    there: tuple[Tensor, Tensor]
    back: tuple[Tensor, Tensor | None]

    @property
    def height(self) -> int:
        return self.rows.size(-1)


def tile_rows(segments: Segments, height: int = TILE_HEIGHT) -> Tiles:
    """Tiles for these segments, computed once per batch.

    On a CPU their number is exact; on a GPU it is the bound V / t + B, which needs no synchronisation.
    """
    largest, B = segments.max_size, segments.num_graphs
    if largest is not None and largest <= 4 * height:
        # One tile per graph, where that fills no more places than tiles of this height would on average.
        fits = largest <= height or 2 * B * largest <= 2 * segments.num_rows + B * height
        height = max(largest, 1) if fits else height
    key = ("tiles", height)
    if key not in segments.memo:
        segments.memo[key] = _cut(segments, height)
    tiles: Tiles = segments.memo[key]
    return tiles


def _cut(segments: Segments, t: int) -> Tiles:
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
        N = V // t + B if device.type != "cpu" else (int(tile_ptr[..., -1].max()) if tile_ptr.numel() else 0)
        tile = torch.arange(N, device=device).expand(*lead, N).contiguous()
        graph = torch.searchsorted(tile_ptr[..., 1:].contiguous(), tile, right=True).clamp_max(B - 1)
    first = ptr[..., :-1].gather(-1, graph)
    within = torch.arange(N, device=device) - tile_ptr[..., :-1].gather(-1, graph)
    rows = (first + within * t).unsqueeze(-1) + torch.arange(t, device=device)  # [*lead, N, t]
    end = ptr[..., 1:].gather(-1, graph).unsqueeze(-1)
    holes = rows >= end
    rows = torch.minimum(rows, end - 1).clamp_min(0)

    outside = index >= B if segments.padded else None
    own = index.clamp_max(B - 1)
    offset = torch.arange(V, device=device) - ptr[..., :-1].gather(-1, own)
    place = (tile_ptr[..., :-1].gather(-1, own) + offset // t) * t + offset % t
    if outside is not None:
        place = place.masked_fill(outside, 0)
    there = (_across_lead(rows, V, own=2), _marked(holes))
    back = (_across_lead(place, N * t), None if outside is None else _marked(outside))
    return Tiles(rows, holes, graph, place, outside, B, single, there, back)


def _marked(mask: Tensor) -> Tensor:
    """A mask as it zeroes rows fastest: by their numbers on a CPU, as it is where asking would synchronise."""
    flat = mask.reshape(-1)
    return flat.nonzero().squeeze(-1) if flat.device.type == "cpu" else flat


def to_tiles(x: Tensor, tiles: Tiles) -> Tensor:
    """Rows into tiles, ``[*lead, V, d]`` to ``[*lead, N, t, d]``; holes are zero."""
    taken = _Take.apply(x.reshape(-1, x.size(-1)), *tiles.there, *tiles.back)
    return taken.reshape(*tiles.rows.shape, x.size(-1))


def from_tiles(x: Tensor, tiles: Tiles) -> Tensor:
    """Tiles back into rows, ``[*lead, N, t, d]`` to ``[*lead, V, d]``; padding rows are zero."""
    taken = _Take.apply(x.reshape(-1, x.size(-1)), *tiles.back, *tiles.there)
    return taken.reshape(*tiles.place.shape, x.size(-1))


def graphs_to_tiles(x: Tensor, tiles: Tiles) -> Tensor:
    """What belongs to a graph, handed to each of its tiles: ``[*lead, B, …]`` to ``[*lead, N, …]``."""
    if tiles.single:
        return x
    lead = tiles.graph.shape[:-1]
    flat = x.reshape(-1, *x.shape[len(lead) + 1 :])
    return flat.index_select(0, _across_lead(tiles.graph, tiles.num_graphs)).reshape(
        *tiles.graph.shape, *flat.shape[1:]
    )


def sum_tiles(x: Tensor, tiles: Tiles) -> Tensor:
    """What the tiles of a graph found, added up: ``[*lead, N, …]`` to ``[*lead, B, …]``."""
    if tiles.single:
        return x
    lead, B = tiles.graph.shape[:-1], tiles.num_graphs
    flat = x.reshape(-1, *x.shape[len(lead) + 1 :])
    total = flat.new_zeros(lead.numel() * B, *flat.shape[1:])
    return total.index_add(0, _across_lead(tiles.graph, B), flat).reshape(*lead, B, *flat.shape[1:])


def is_single_graph(segments: Segments) -> bool:
    """Whether all rows are those of one graph: then nothing has to be gathered, and rows may be very many."""
    return segments.num_graphs == 1 and not segments.padded and segments.index.dim() == 1


def segment_sum(x: Tensor, segments: Segments) -> Tensor:
    """Sum over the rows of each graph, ``[*lead, V, d]`` to ``[*lead, B, d]``; padding rows count nothing."""
    return select("segment_sum", _segment_sum, x)(x, segments)


def _segment_sum(x: Tensor, segments: Segments) -> Tensor:
    if is_single_graph(segments):
        return x.sum(-2, keepdim=True)
    lead, B = segments.index.shape[:-1], segments.num_graphs
    # Padding rows go to a graph of their own, which is dropped.
    graphs = B + 1 if segments.padded else B
    total = x.new_zeros(lead.numel() * graphs, x.size(-1))
    total = total.index_add_(0, _across_lead(segments.index, graphs), x.reshape(-1, x.size(-1)))
    total = total.reshape(*lead, graphs, x.size(-1))
    return total[..., :B, :] if segments.padded else total


def segment_broadcast(x: Tensor, segments: Segments) -> Tensor:
    """What belongs to a graph, handed to each of its rows: ``[*lead, B, d]`` to ``[*lead, V, d]``.

    Padding rows get 0. To be read only: rows of one and the same graph may share their memory.
    """
    return select("segment_broadcast", _segment_broadcast, x)(x, segments)


def _segment_broadcast(x: Tensor, segments: Segments) -> Tensor:
    if is_single_graph(segments):
        return x.expand(segments.num_rows, -1)
    graphs = segments.num_graphs
    if segments.padded:  # a graph more, of zeros, for the padding rows
        x, graphs = torch.nn.functional.pad(x, (0, 0, 0, 1)), graphs + 1
    flat = x.reshape(-1, x.size(-1)).index_select(0, _across_lead(segments.index, graphs))
    return flat.reshape(*segments.index.shape, x.size(-1))


def segment_product(a: Tensor, x: Tensor, segments: Segments) -> Tensor:
    """Sum of aᵢ ⊗ xᵢ over the rows i of each graph, ``[*lead, V, N]`` and ``[*lead, V, d]`` to ``[*lead, B, N, d]``.

    Padding rows are left out.
    """
    return select("segment_product", _segment_product, a, x)(a, x, segments)


def _segment_product(a: Tensor, x: Tensor, segments: Segments) -> Tensor:
    tiles = tile_rows(segments)
    return sum_tiles(to_tiles(a, tiles).mT @ to_tiles(x, tiles), tiles)


def _across_lead(index: Tensor, size: int, own: int = 1) -> Tensor:
    """A flat index into ``[*lead, size]`` from an index ``[*lead, …]``, whose last ``own`` axes are not lead."""
    lead = index.shape[: index.dim() - own]
    if not lead:
        return index.reshape(-1)
    start = torch.arange(0, lead.numel() * size, size, device=index.device)
    return (index.reshape(lead.numel(), -1) + start.unsqueeze(-1)).reshape(-1)


class _Take(torch.autograd.Function):
    """Rows by index, some left zero, where every row is taken at most once.

    The gradient of a gather is a scatter; because this one is a bijection on the rows that count, it is a
    gather again, with the inverse index.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, index: Tensor, zero: Tensor | None, inverse: Tensor, inverse_zero: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(index, zero, inverse, inverse_zero)
        taken = x.index_select(0, index)
        if zero is None:
            return taken
        if zero.dtype == torch.bool:
            return taken.masked_fill_(zero.unsqueeze(-1), 0)
        return taken.index_fill_(0, zero, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        index, zero, inverse, inverse_zero = ctx.saved_tensors
        return _Take.apply(grad, inverse, inverse_zero, index, zero), None, None, None, None
