r"""Graphs that look alike, found by colour refinement in a few passes over flat arrays.

Colour refinement (Weisfeiler and Lehman, 1968) gives every node a colour from what is known of it, and then,
again and again, a colour from its own and those of its neighbours:

.. math::
    c'_i = \mathrm{mix}\big(c_i, \textstyle\sum_{j \sim i} \mathrm{mix}(c_j)\big) \bmod 2^{64}

A sum does not know the order of its terms, so it stands for the multiset. Graphs with the same colours equally
often look alike. Graphs that are the same up to the order of nodes always do; different ones seldom do (two
triangles and a hexagon are the standard example), and by an accident of the mixing almost never.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphcaps.data.store import GraphStore

__all__ = ["graph_colours", "look_alikes"]

_ENTRIES = 1 << 20  # entries looked at together: bounds the memory for COLLAB's 25 million
_ROUNDS = 64


def look_alikes(store: GraphStore) -> tuple[NDArray[np.int64], ...]:
    """Groups of two or more graphs that look alike, ascending indices each, by their first graph."""
    colours = graph_colours(store)
    order = np.argsort(colours, kind="stable")
    cuts = np.flatnonzero(np.diff(colours[order])) + 1
    groups = [group.astype(np.int64) for group in np.split(order, cuts) if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: int(group[0])))


def graph_colours(store: GraphStore) -> NDArray[np.uint64]:
    """One colour per graph, ``[G]``: of its structure, node labels and node attributes (exact values).

    Edge labels, attributes and weights do not enter. Rounds go on until no colour of the store splits, so
    colours compare within one store only.
    """
    store = store.to("cpu")
    if not len(store):
        return np.zeros(0, np.uint64)
    ptr, first = store.edge_ptr.numpy(), store.node_ptr[:-1].repeat_interleave(store.sizes).numpy()
    colours = _start(store)
    kinds = len(np.unique(colours))
    for _ in range(_ROUNDS):
        colours = _mix(colours + _mix(_neighbour_sums(store, ptr, first, _mix(colours))))
        before, kinds = kinds, len(np.unique(colours))
        if kinds == before:
            break
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mix(colours), dtype=np.uint64)])
    bounds = store.node_ptr.numpy()
    summed: NDArray[np.uint64] = ends[bounds[1:]] - ends[bounds[:-1]]
    return summed


def _start(store: GraphStore) -> NDArray[np.uint64]:
    """A colour per node from its labels and attributes; one for all where it has neither."""
    colours = np.zeros(store.num_nodes, np.uint64)
    for columns in (store.node_labels, store.node_attributes):
        if columns is None:
            continue
        for column in columns.reshape(store.num_nodes, -1).unbind(1):
            # + 0.0 makes −0.0 a plain zero.
            values = column.double() + 0.0 if column.is_floating_point() else column.long()
            bits = values.contiguous().numpy().view(np.uint64)
            colours = _mix(colours + _mix(bits))
    return colours


def _neighbour_sums(
    store: GraphStore, ptr: NDArray[np.int64], first: NDArray[np.int64], mixed: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Sum of the neighbours' mixed colours for each node, ``[N]``; differences of running sums, modulo 2⁶⁴."""
    sums = np.zeros(store.num_nodes, np.uint64)
    neighbours = store.neighbours.numpy()
    start = 0
    while start < store.num_nodes:
        # As many nodes as keep within the entries looked at together, and at least one.
        end = max(start + 1, int(np.searchsorted(ptr, ptr[start] + _ENTRIES, side="right")) - 1)
        end = min(end, store.num_nodes)
        degree = np.diff(ptr[start : end + 1])
        nodes = neighbours[ptr[start] : ptr[end]] + np.repeat(first[start:end], degree)
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed[nodes], dtype=np.uint64)])
        local = ptr[start : end + 1] - ptr[start]
        sums[start:end] = running[local[1:]] - running[local[:-1]]
        start = end
    return sums


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spreads every bit over all bits: a one-to-one map of 64 bits (the finisher of splitmix64)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
