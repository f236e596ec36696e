"""The adjacency of a store packed into bits, one row of 32-bit words per node, for kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.types import AdjacencyBits

__all__ = ["WORD", "count_words", "pack_adjacency"]

WORD = 32
"""Bits of a word."""


def count_words(sizes: Tensor) -> int:
    """Number of words of :func:`pack_adjacency` for graphs of these sizes, ``[G]``: about Σn² / 32."""
    sizes = sizes.to(torch.int64)
    return int((sizes * _words_of(sizes)).sum())


def pack_adjacency(edge_ptr: Tensor, neighbours: Tensor, sizes: Tensor) -> AdjacencyBits:
    """Packs the edges of a store into bits, on the device of its arrays.

    Args:
        edge_ptr (Tensor): First entry of each node, and the end of the last, ``[N + 1]``.
        neighbours (Tensor): Neighbours, as indices within their graph, distinct in each row, ``[M]``.
        sizes (Tensor): Nodes of each graph, ``[G]``; their sum is N.

    Returns:
        AdjacencyBits: ``words [W]`` with W = :func:`count_words`, ``start [N]``, and whether graphs are dense
            enough for kernels to use the bits.
    """
    N, M, device = edge_ptr.numel() - 1, neighbours.numel(), edge_ptr.device
    sizes = sizes.to(torch.int64)
    nodes = int(sizes.sum())
    if nodes != N:
        raise ShapeError("pack_adjacency", "sizes", f"add up to the number of nodes, {N}", nodes)
    # The row of each node begins where that of the node before it ends.
    start = _words_of(sizes).repeat_interleave(sizes, output_size=N).cumsum(0)
    num_words = int(start[-1]) if N else 0
    if N:
        start = torch.cat([start.new_zeros(1), start[:-1]])

    # The highest bit is the sign. The bits of a word are distinct, so adding them never overflows.
    bits = torch.tensor([1 << k for k in range(WORD - 1)] + [-(1 << (WORD - 1))], dtype=torch.int32)
    count = edge_ptr[1:] - edge_ptr[:-1]
    word = start.repeat_interleave(count, output_size=M)
    word += neighbours // WORD
    words = torch.zeros(num_words, dtype=torch.int32, device=device)
    words.index_add_(0, word, bits.to(device).index_select(0, neighbours % WORD))
    # A word covers 32 pairs, but every neighbour in a list costs a gathered row.
    return AdjacencyBits(words, start, dense=2 * num_words <= M)


def _words_of(sizes: Tensor) -> Tensor:
    """Number of words of a row in graphs of these sizes."""
    return (sizes + WORD - 1) // WORD
