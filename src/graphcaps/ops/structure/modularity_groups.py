"""Connected groups of the nodes of graphs, by modularity."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["CYCLE_WEIGHT", "cycle_edges", "modularity_groups"]

CYCLE_WEIGHT = 2.0
"""Weight of an edge on a cycle; every other edge has weight 1."""
_COLOUR_ROUNDS = 8
_DIGITS = 12  # gains that differ by less are equal

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Neighbouring groups a and b with the edge weight between them; forbidden ones are not merged directly."""

    a: Index
    b: Index
    weight: NDArray[np.float64]
    forbidden: NDArray[np.bool_]

    def select(self, kept: NDArray[np.bool_]) -> _Pairs:
        return _Pairs(self.a[kept], self.b[kept], self.weight[kept], self.forbidden[kept])

    def relabel(self, merged: Index) -> _Pairs:
        """Pairs of different groups after mergers, once each, with sums of weights; forbidden if all of them are."""
        a, b = merged[self.a], merged[self.b]
        between = a != b
        keys = np.minimum(a, b)[between] * len(merged) + np.maximum(a, b)[between]
        keys, index = np.unique(keys, return_inverse=True)
        free = np.bincount(index, ~self.forbidden[between], len(keys)) > 0
        weight = np.bincount(index, self.weight[between], len(keys)).astype(np.float64)
        return _Pairs(keys // len(merged), keys % len(merged), weight, ~free)


def modularity_groups(source: Index, target: Index, graph: Index) -> Index:
    r"""The group of each node of some graphs, as the first node of that group, ``[n]``. Every group is connected.

    Groups are merged as long as that raises the modularity of their graph (Newman and Girvan, 2004)

    .. math:: Q = \sum_g \frac{w_g}{W} - \Big(\frac{d_g}{M}\Big)^2

    with edge weights :math:`w_g` inside group g and W in all, the sum :math:`d_g` of the degrees of its nodes, and M of
    all degrees. Q is largest for groups that are dense inside with few edges between them; their number follows from
    the graph. Edges on a cycle have a larger weight, so that rings stay whole.

    At first every node is a group. In each round two groups are merged if neither has another neighbour that it would
    gain more with. Equal gains are told apart by the structure around the nodes; pairs that are equal in that, too,
    are merged together, or not at all if Q would fall: the inner nodes of a long path or of a lattice are one group.
    The result therefore does not depend on the order of nodes, except in graphs whose nodes Weisfeiler-Lehman colours
    confuse, nor on the other graphs.

    Args:
        source, target (array): The nodes of each edge, every edge once, ``[m]``; nodes of all graphs count from 0.
        graph (array): Graph of each node, ``[n]``.
    """
    n, num_graphs = len(graph), int(graph.max(initial=-1)) + 1
    degree = np.bincount(source, minlength=n) + np.bincount(target, minlength=n)
    of_edge = graph[source]
    weight = np.where(cycle_edges(source, target, n), CYCLE_WEIGHT, 1.0)
    weight /= np.bincount(of_edge, weight, num_graphs)[of_edge]  # share of all edge weights of its graph
    edges = np.bincount(of_edge, minlength=num_graphs)
    volume = degree / np.maximum(2 * edges, 1)[graph]  # share of all degrees of its graph
    colour = _colours(source, target, degree)
    pairs = _Pairs(source, target, weight, np.zeros(len(source), dtype=bool))
    group = np.arange(n)  # the group that a group was merged into, or itself
    while len(pairs.a):
        gain = np.round(pairs.weight - 2 * volume[pairs.a] * volume[pairs.b], _DIGITS)
        allowed = (gain > 0) & ~pairs.forbidden
        unfinished = np.zeros(num_graphs, dtype=bool)
        unfinished[graph[pairs.a[allowed]]] = True
        kept = unfinished[graph[pairs.a]]
        pairs, gain, allowed = pairs.select(kept), gain[kept], allowed[kept]
        chosen = np.flatnonzero(allowed)
        chosen = chosen[_mutually_best(pairs.a[chosen], pairs.b[chosen], gain[chosen], colour)]
        a, b = pairs.a[chosen], pairs.b[chosen]
        count = np.bincount(np.concatenate([a, b]), minlength=n)
        alone = (count[a] == 1) & (count[b] == 1)
        merged = np.arange(n)
        merged[np.maximum(a, b)[alone]] = np.minimum(a, b)[alone]
        if not alone.all():
            _merge_equals(merged, chosen[~alone], pairs, volume)
        moved = np.flatnonzero(merged != np.arange(n))
        into = merged[moved]
        group[moved] = into
        colour[np.unique(into)] = _mix(colour[np.unique(into)])
        np.add.at(colour, into, _mix(colour[moved]))
        np.add.at(volume, into, volume[moved])
        pairs = pairs.relabel(merged)
    return _roots(group)


def cycle_edges(source: Index, target: Index, num_nodes: int) -> NDArray[np.bool_]:
    """Whether each edge is on a cycle, ``[m]``; the others are bridges.

    An edge outside a spanning forest closes a cycle. An edge of the forest is on a cycle if an edge outside connects
    the nodes below it with others. Every edge outside has a 64-bit hash, which is added to both of its nodes by
    exclusive or; the sum over the nodes below an edge of the forest is 0 if no edge leaves them. In linear time.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    n = num_nodes
    pairs = coo_array((np.ones(len(source), dtype=np.int8), (source, target)), shape=(n, n))
    first = np.unique(connected_components(pairs, directed=False)[1], return_index=True)[1]
    rows, columns = np.append(source, np.full(len(first), n)), np.append(target, first)
    # A node more, connected with every component, is the root of one tree.
    joined = coo_array((np.ones(len(rows)), (rows, columns)), shape=(n + 1, n + 1)).tocsr()
    order, parent = breadth_first_order(joined, n, directed=False)
    in_forest = (parent[source] == target) | (parent[target] == source)
    below = np.zeros(n + 1, dtype=np.uint64)
    hashes = _mix(np.flatnonzero(~in_forest).astype(np.uint64))
    for ends in (source, target):
        np.bitwise_xor.at(below, ends[~in_forest], hashes)
    position = np.empty(n + 1, dtype=np.int64)
    position[order] = np.arange(n + 1)
    above = np.zeros(n + 1, dtype=np.int64)  # position of the parent, in the order of positions: ascending
    above[1:] = position[parent[order[1:]]]
    levels = [0, 1]
    while levels[-1] <= n:
        levels.append(1 + int(np.searchsorted(above[1:], levels[-1])))
    sums = below[order]
    for start, end in list(pairwise(levels))[:0:-1]:
        firsts = start + np.flatnonzero(np.diff(above[start:end], prepend=-1))
        sums[above[firsts]] ^= np.bitwise_xor.reduceat(sums[start:end], firsts - start)
    below[order] = sums
    child = np.where(parent[source] == target, source, target)
    return ~in_forest | (below[child] != 0)


def _colours(source: Index, target: Index, degree: Index) -> NDArray[np.uint64]:
    """A number of each node that depends on the structure around it alone, ``[n]``."""
    colour = _mix(degree.astype(np.uint64))
    for _ in range(_COLOUR_ROUNDS):
        sums = np.zeros_like(colour)
        np.add.at(sums, source, colour[target])
        np.add.at(sums, target, colour[source])
        colour = _mix(colour * np.uint64(3) + sums)
    return colour


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each number (the finaliser of splitmix64)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _mutually_best(
    a: Index, b: Index, gain: NDArray[np.float64], colour: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Whether each pair of groups has the largest gain, then the largest colours, of all pairs of both groups."""
    end, pair = np.concatenate([a, b]), np.tile(np.arange(len(a)), 2)
    for key in (gain, colour[a] + colour[b], colour[a] ^ colour[b]):
        values = key[pair]
        best = np.zeros(len(colour), dtype=key.dtype)  # all keys are at least 0
        np.maximum.at(best, end, values)
        kept = values == best[end]
        end, pair = end[kept], pair[kept]
    return np.bincount(pair, minlength=len(a)) == 2


def _merge_equals(merged: Index, chosen: Index, pairs: _Pairs, volume: NDArray[np.float64]) -> None:
    """Merges the components of equal pairs that share groups, in place; forbids their pairs if Q would fall."""
    n, a, b = len(merged), pairs.a[chosen], pairs.b[chosen]
    first = _components(a, b, n)
    is_end = np.zeros(n, dtype=bool)
    is_end[a] = is_end[b] = True
    ends = np.flatnonzero(is_end)
    inside = is_end[pairs.a] & (first[pairs.a] == first[pairs.b])
    edges = np.bincount(first[pairs.a[inside]], pairs.weight[inside], n)
    sums, squares = (np.bincount(first[ends], volume[ends] ** power, n) for power in (1, 2))
    falls = np.round(edges - (sums**2 - squares), _DIGITS) <= 0
    pairs.forbidden[chosen[falls[first[a]]]] = True
    kept = ends[~falls[first[ends]]]
    merged[kept] = first[kept]


def _components(a: Index, b: Index, num_nodes: int) -> Index:
    """The first node of the connected component of each node, if these pairs are joined, ``[n]``."""
    first = np.arange(num_nodes)
    while not np.array_equal(first[a], first[b]):
        low = np.minimum(first[a], first[b])
        np.minimum.at(first, first[a], low)  # also the nodes that a and b lead to
        np.minimum.at(first, first[b], low)
        first = _roots(first)
    return first


def _roots(group: Index) -> Index:
    """The last group of the chain of mergers of each node."""
    while True:
        above = group[group]
        if np.array_equal(above, group):
            return group
        group = above
