"""Connected groups of the nodes of one graph, by modularity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, PlainGraph, Precomputation

__all__ = ["CYCLE_WEIGHT", "MAX_CYCLE", "ModularityGroups", "modularity", "modularity_groups", "short_cycles"]

CYCLE_WEIGHT = 2.0
"""Weight of an edge on a short cycle; every other edge has weight 1."""
MAX_CYCLE = 8
"""Nodes of the longest cycle whose edges have that weight."""
_COLOUR_ROUNDS = 8
_DIGITS = 12  # gains that differ by less are equal


@dataclass(frozen=True)
class ModularityGroups(Precomputation):
    """One coarser level whose nodes are the groups of :func:`modularity_groups`.

    Args:
        cycle_weight (float): Weight of an edge on a short cycle. (default: 2.0)
    """

    kind: ClassVar[str] = "modularity-groups"

    cycle_weight: float = CYCLE_WEIGHT

    @property
    def level_weights(self) -> tuple[int, ...]:
        return (0,)

    def compute(self, graph: PlainGraph) -> GraphStructure:
        from scipy.sparse import csr_array  # late: HGCN, which every command imports, has this as an option

        groups = modularity_groups(graph, self.cycle_weight)
        members = groups.argsort(kind="stable")
        ptr = np.concatenate([[0], np.bincount(groups).cumsum()])
        shape = (len(ptr) - 1, graph.num_nodes)
        membership = csr_array((np.ones(len(members)), members, ptr), shape=shape)
        adjacency = csr_array(membership @ graph.adjacency() @ membership.T)
        return GraphStructure((GraphLevel(adjacency, ptr, members),))


def modularity_groups(graph: PlainGraph, cycle_weight: float = CYCLE_WEIGHT) -> NDArray[np.int64]:
    r"""The group of each node, ``[n]``, from 0 on in the order of their first nodes. Every group is connected.

    Groups are merged as long as that raises the modularity (Newman and Girvan, 2004)

    .. math:: Q = \sum_g \frac{w_g}{W} - \Big(\frac{d_g}{M}\Big)^2

    with edge weights :math:`w_g` inside group g and W in all, the sum :math:`d_g` of the degrees of its nodes, and M of
    all degrees. Q is largest for groups that are dense inside with few edges between them; their number follows from
    the graph, about :math:`\sqrt{M / 2}` for sparse ones. Edges on a cycle of at most eight nodes have a larger weight,
    so that rings stay whole.

    At first every node is a group. In each round two groups are merged if neither has another neighbour that it would
    gain more with. Equal gains are told apart by the structure around the nodes; pairs that are equal in that, too,
    are merged together, or not at all if Q would fall. The result therefore does not depend on the order of nodes,
    except in graphs whose nodes Weisfeiler-Lehman colours confuse.
    """
    n = graph.num_nodes
    source = np.repeat(np.arange(n), graph.degree)
    upper = source < graph.neighbours
    a, b = source[upper], graph.neighbours[upper]
    weight = np.where(short_cycles(graph)[upper], cycle_weight, 1.0)
    weight = weight / max(weight.sum(), 1.0)  # share of each edge in all edge weights
    volume = graph.degree / max(len(source), 1)  # share of each node in all degrees
    colour = _colours(graph)
    groups, forbidden = np.arange(n), np.zeros(len(a), dtype=bool)
    while len(a):
        gain = np.round(weight - 2 * volume[a] * volume[b], _DIGITS)
        allowed = (gain > 0) & ~forbidden
        if not allowed.any():
            break
        rank = np.where(allowed, _ranks(gain, colour[a] + colour[b], colour[a] ^ colour[b]), -1)
        best = np.full(len(volume), -1)
        np.maximum.at(best, a, rank)
        np.maximum.at(best, b, rank)
        chosen = allowed & (rank == best[a]) & (rank == best[b])
        merged = _components(a[chosen], b[chosen], len(volume))
        worse = _change(merged, a, b, weight, volume) <= 0
        refused = chosen & worse[merged[a]]
        if refused.any():  # all pairs of the component are equal, and Q would fall
            forbidden |= refused
            merged = _components(a[chosen & ~refused], b[chosen & ~refused], len(volume))
        groups = merged[groups]
        volume = np.bincount(merged, volume).astype(np.float64)
        colour = _sum_colours(merged, colour, len(volume))
        a, b, weight, forbidden = _merge_pairs(merged[a], merged[b], weight, forbidden)
    first = np.unique(groups, return_index=True)[1]
    return np.argsort(np.argsort(first))[np.unique(groups, return_inverse=True)[1]]


def modularity(graph: PlainGraph, groups: NDArray[np.int64], cycle_weight: float = CYCLE_WEIGHT) -> float:
    """Q of :func:`modularity_groups` for any groups, edge by edge; 0 without edges."""
    source = np.repeat(np.arange(graph.num_nodes), graph.degree)
    weight = np.where(short_cycles(graph), cycle_weight, 1.0)
    total = weight.sum()
    if not total:
        return 0.0
    inside = weight[groups[source] == groups[graph.neighbours]].sum() / total
    return float(inside - (np.bincount(groups[source]) ** 2).sum() / len(source) ** 2)


def short_cycles(graph: PlainGraph, length: int = MAX_CYCLE) -> NDArray[np.bool_]:
    """Whether each entry of ``graph.neighbours`` is on a cycle of at most ``length`` nodes, ``[m]``.

    An edge is on such a cycle if its ends are at most ``length - 1`` steps apart without it: the nodes within half of
    these steps of each end meet.
    """
    near = [set(graph.neighbours[a:b].tolist()) for a, b in zip(graph.ptr[:-1], graph.ptr[1:], strict=True)]
    source = np.repeat(np.arange(graph.num_nodes), graph.degree)
    on_cycle = np.zeros(len(source), dtype=bool)
    known: dict[tuple[int, int], bool] = {}
    for entry, (a, b) in enumerate(zip(source.tolist(), graph.neighbours.tolist(), strict=True)):
        if a < b:
            known[a, b] = _meet(near, a, b, length - 1)
        on_cycle[entry] = known[min(a, b), max(a, b)]
    return on_cycle


def _meet(near: list[set[int]], a: int, b: int, steps: int) -> bool:
    """Whether a path of at most ``steps`` edges joins a and b, other than their edge."""
    reached, frontier = ({a}, {b}), [near[a] - {b}, near[b] - {a}]
    taken = 2  # edges of the two frontiers
    while taken <= steps + 1:
        if taken <= steps and not frontier[0].isdisjoint(frontier[1]):
            return True
        side = int(len(frontier[1]) < len(frontier[0]))  # grow the smaller one
        if not frontier[side]:
            return False
        reached[side].update(frontier[side])
        grown = set().union(*(near[node] for node in frontier[side]))
        frontier[side] = grown - reached[side] - ({b} if side == 0 else {a})
        taken += 1
        if taken <= steps and not frontier[side].isdisjoint(reached[1 - side]):
            return True
    return False


def _colours(graph: PlainGraph) -> NDArray[np.uint64]:
    """A number of each node that depends on the structure around it alone, ``[n]``."""
    source = np.repeat(np.arange(graph.num_nodes), graph.degree)
    colour = _mix(graph.degree.astype(np.uint64))
    for _ in range(_COLOUR_ROUNDS):
        sums = np.zeros_like(colour)
        np.add.at(sums, source, colour[graph.neighbours])
        colour = _mix(colour * np.uint64(3) + sums)
    return colour


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each number (the finaliser of splitmix64)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _sum_colours(merged: NDArray[np.int64], colour: NDArray[np.uint64], count: int) -> NDArray[np.uint64]:
    """Colours of the merged groups: a sum, which does not depend on the order."""
    sums = np.zeros(count, dtype=np.uint64)
    np.add.at(sums, merged, _mix(colour))
    return sums


def _ranks(gain: NDArray[np.float64], *ties: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Position of each pair by gain, then by colours; equal pairs have equal positions."""
    order = np.lexsort((*ties[::-1], gain))
    keys = [column[order] for column in (gain, *ties)]
    new = np.zeros(len(order), dtype=bool)
    for column in keys:
        new[1:] |= column[1:] != column[:-1]
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = new.cumsum()
    return ranks


def _components(a: NDArray[np.int64], b: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The connected component of each group, if these pairs are joined."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pairs = coo_array((np.ones(len(a)), (a, b)), shape=(count, count))
    return np.asarray(connected_components(pairs, directed=False)[1], dtype=np.int64)


def _change(
    merged: NDArray[np.int64],
    a: NDArray[np.int64],
    b: NDArray[np.int64],
    weight: NDArray[np.float64],
    volume: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Change of Q by each merged group; 0 for a group that stays as it is."""
    count = int(merged.max()) + 1
    inside = merged[a] == merged[b]
    edges = np.bincount(merged[a][inside], weight[inside], count)
    squares = np.bincount(merged, volume, count) ** 2 - np.bincount(merged, volume**2, count)
    return np.asarray(np.round(edges - squares, _DIGITS))


def _merge_pairs(
    a: NDArray[np.int64], b: NDArray[np.int64], weight: NDArray[np.float64], forbidden: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """Pairs of different groups, once each, with the sums of their weights; forbidden if all of them are."""
    between = a != b
    low, high = np.minimum(a, b)[between], np.maximum(a, b)[between]
    pairs, index = np.unique(np.stack([low, high]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    count = pairs.shape[1]
    free = np.bincount(index, ~forbidden[between], count) > 0
    return pairs[0], pairs[1], np.bincount(index, weight[between], count).astype(np.float64), ~free
