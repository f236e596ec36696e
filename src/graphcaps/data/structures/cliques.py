"""Coarser levels whose nodes are the largest cliques of the level below."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, PlainGraph, Precomputation

__all__ = ["CliqueLevels", "clique_level", "largest_cliques", "maximal_cliques"]


@dataclass(frozen=True)
class CliqueLevels(Precomputation):
    """Levels of :func:`clique_level`, one above the other.

    Args:
        num_levels (int): Number of levels.
    """

    kind: ClassVar[str] = "cliques"

    num_levels: int = 2

    @property
    def level_weights(self) -> tuple[int, ...]:
        return (0,) * self.num_levels

    def compute(self, graph: PlainGraph) -> GraphStructure:
        levels = []
        for _ in range(self.num_levels):
            level = clique_level(graph)
            levels.append(level)
            graph = PlainGraph.from_adjacency(level.adjacency)
        return GraphStructure(tuple(levels))


def clique_level(graph: PlainGraph) -> GraphLevel:
    r"""The coarse graph of the largest cliques.

    Each node stays only in the largest of its maximal cliques, in all of them if several are equally large; cliques
    without nodes are removed. With the membership S, two cliques are adjacent if an edge joins their members:
    :math:`A' = 1[S^\top A S > 0]`.
    """
    cliques = largest_cliques(graph)
    sizes = np.array([len(clique) for clique in cliques])
    ptr, members = np.concatenate([[0], sizes.cumsum()]), np.concatenate(cliques)
    shape = (len(cliques), graph.num_nodes)
    membership = sparse.csr_array((np.ones(len(members)), members, ptr), shape=shape)
    adjacency = sparse.csr_array(membership @ graph.adjacency() @ membership.T)
    adjacency.data[:] = 1
    return GraphLevel(adjacency, ptr, members)


def largest_cliques(graph: PlainGraph) -> list[NDArray[np.int64]]:
    """Members of each maximal clique that is the largest one of the member, in ascending order of the first member."""
    cliques = [(clique.bit_count(), clique) for clique in maximal_cliques(graph)]
    largest = np.zeros(graph.num_nodes, dtype=np.int64)
    members = [_bits(clique) for _, clique in cliques]
    for (size, _), nodes in zip(cliques, members, strict=True):
        largest[nodes] = np.maximum(largest[nodes], size)
    kept = [nodes[largest[nodes] == size] for (size, _), nodes in zip(cliques, members, strict=True)]
    return sorted((nodes for nodes in kept if len(nodes)), key=lambda nodes: nodes.tolist())


def maximal_cliques(graph: PlainGraph) -> list[int]:
    """All maximal cliques, as integers whose bit i is set if node i is a member.

    The algorithm of Bron and Kerbosch (1973) with the pivot of Tomita, Tanaka and Takahashi (2006).
    """
    near = [_as_bits(graph.neighbours[a:b]) for a, b in zip(graph.ptr[:-1], graph.ptr[1:], strict=True)]
    found = []
    # A clique, the nodes that extend it, and those that do but were tried before.
    stack = [(0, (1 << graph.num_nodes) - 1, 0)]
    while stack:
        clique, candidates, tried = stack.pop()
        if not candidates:
            if not tried:
                found.append(clique)
            continue
        rest = candidates & ~near[_pivot(candidates, tried, near)]
        while rest:
            bit = rest & -rest
            rest ^= bit
            node = bit.bit_length() - 1
            stack.append((clique | bit, candidates & near[node], tried & near[node]))
            candidates ^= bit
            tried |= bit
    return found


def _pivot(candidates: int, tried: int, near: list[int]) -> int:
    """The node with the most neighbours among the candidates."""
    best, most, total = -1, -1, candidates.bit_count()
    nodes = candidates
    while nodes:
        bit = nodes & -nodes
        nodes ^= bit
        node = bit.bit_length() - 1
        count = (candidates & near[node]).bit_count()
        if count == total - 1:  # adjacent to all others
            return node
        if count > most:
            best, most = node, count
    while tried:
        bit = tried & -tried
        tried ^= bit
        node = bit.bit_length() - 1
        count = (candidates & near[node]).bit_count()
        if count > most:
            best, most = node, count
    return best


def _as_bits(nodes: NDArray[np.int64]) -> int:
    bits = np.zeros(int(nodes.max(initial=-1)) + 1, dtype=np.uint8)
    bits[nodes] = 1
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _bits(value: int) -> NDArray[np.int64]:
    """Indices of the bits that are set, ascending."""
    raw = np.frombuffer(value.to_bytes((value.bit_length() + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(raw, bitorder="little").nonzero()[0]
