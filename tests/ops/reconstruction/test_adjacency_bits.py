"""Rows of bits say the same as the list of neighbours."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops.reconstruction.adjacency_bits import count_words, pack_adjacency
from graphcaps.types import AdjacencyBits
from tests.graphs import random_graphs

SIZES = [1, 31, 32, 33, 63, 2, 64, 65, 100]


def read(bits: AdjacencyBits, sizes: list[int]) -> list[list[int]]:
    """Neighbours of each node, bit by bit."""
    actual, words = [], bits.words.tolist()
    node = 0
    for n in sizes:
        for _ in range(n):
            start = int(bits.start[node])
            actual.append([j for j in range(n) if words[start + j // 32] >> (j % 32) & 1])
            node += 1
    return actual


def listed(ptr: Tensor, neighbours: Tensor) -> list[list[int]]:
    return [sorted(neighbours[a:b].tolist()) for a, b in pairwise(ptr.tolist())]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_bits_are_the_neighbours(dtype: torch.dtype) -> None:
    store = random_graphs(SIZES, density=20.0).as_store()
    bits = pack_adjacency(store.edge_ptr, store.neighbours.to(dtype), store.sizes)
    assert bits.words.dtype == torch.int32
    assert bits.start.dtype == torch.int64
    assert bits.words.numel() == count_words(store.sizes) == sum(n * ((n + 31) // 32) for n in SIZES)
    assert read(bits, SIZES) == listed(store.edge_ptr, store.neighbours)


def test_the_sign_bit() -> None:
    """A complete graph of 33 nodes fills whole words, bit 31 among them."""
    n = 33
    neighbours = torch.tensor([j for i in range(n) for j in range(n) if j != i], dtype=torch.int32)
    ptr = torch.arange(0, n * (n - 1) + 1, n - 1)
    bits = pack_adjacency(ptr, neighbours, torch.tensor([n]))
    assert bits.words[2 * (n - 1)] == -1  # the last node is joined with the 32 before it
    assert bits.words[2 * (n - 1) + 1] == 0
    assert read(bits, [n]) == listed(ptr, neighbours)


def test_without_edges_or_nodes() -> None:
    bits = pack_adjacency(
        torch.zeros(4, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), torch.tensor([3])
    )
    assert bits.words.tolist() == [0, 0, 0]
    empty = pack_adjacency(
        torch.zeros(1, dtype=torch.int64),
        torch.zeros(0, dtype=torch.int32),
        torch.zeros(0, dtype=torch.int64),
    )
    assert empty.words.numel() == empty.start.numel() == 0


def test_message() -> None:
    with pytest.raises(ShapeError, match=r"'sizes' must add up to the number of nodes, 3, got 4\."):
        pack_adjacency(
            torch.zeros(4, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), torch.tensor([4])
        )
