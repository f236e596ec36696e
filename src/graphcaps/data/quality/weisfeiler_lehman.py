r"""Graphs that look alike, found by colour refinement in a few passes over flat arrays.

Colour refinement (Weisfeiler and Lehman, 1968) gives every node a colour from what is known of it, and then,
again and again, a colour from its own and those of its neighbours:

.. math::
    c'_i = \mathrm{mix64}\big(c_i, \textstyle\sum_{j \sim i} \mathrm{mix64}(c_j)\big) \bmod 2^{64}

A sum does not know the order of its terms, so it stands for the multiset. Graphs with the same colours equally
often look alike. Graphs that are the same up to the order of nodes always do; different ones seldom do (two
triangles and a hexagon are the standard example), and by an accident of the mixing almost never.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore

__all__ = [
    "count_distinct",
    "edge_colours",
    "initial_node_colours",
    "mix64",
    "wl_graph_colours",
    "wl_indistinguishable",
]

_ENTRIES = 1 << 20  # entries looked at together: bounds the memory for COLLAB's 25 million
_ROUNDS = 64


def wl_indistinguishable(store: GraphStore, *, edges: bool = False) -> tuple[NDArray[np.int64], ...]:
    """Groups of two or more graphs that look alike, ascending indices each, by their first graph.

    With ``edges``, what is known of edges must agree too.
    """
    colours = wl_graph_colours(store, edges=edges)
    order = np.argsort(colours, kind="stable")
    cuts = np.flatnonzero(np.diff(colours[order])) + 1
    groups = [group.astype(np.int64) for group in np.split(order, cuts) if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: int(group[0])))


def wl_graph_colours(store: GraphStore, *, edges: bool = False) -> NDArray[np.uint64]:
    """One colour per graph, ``[G]``: of its structure, node labels and node attributes (exact values).

    Edge labels, attributes and weights enter with ``edges`` only: the published model does not see them. Rounds
    go on until no colour of the store splits, so colours compare within one store only.
    """
    store = store.to("cpu")
    if not len(store):
        return np.zeros(0, np.uint64)
    ptr, first = store.edge_ptr.numpy(), store.node_ptr[:-1].repeat_interleave(store.sizes).numpy()
    colours, codes = initial_node_colours(store), edge_colours(store) if edges else None
    kinds = count_distinct(colours)
    for _ in range(_ROUNDS):
        colours = mix64(colours + mix64(_neighbour_sums(store, ptr, first, colours, codes)))
        before, kinds = kinds, count_distinct(colours)
        if kinds == before:
            break
    ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix64(colours), dtype=np.uint64)])
    bounds = store.node_ptr.numpy()
    summed: NDArray[np.uint64] = ends[bounds[1:]] - ends[bounds[:-1]]
    return summed


def initial_node_colours(store: GraphStore) -> NDArray[np.uint64]:
    """A colour per node from its labels and attributes; one for all where it has neither."""
    return _colours(store.num_nodes, (store.node_labels, store.node_attributes))


def edge_colours(store: GraphStore) -> NDArray[np.uint64] | None:
    """A colour per edge entry from its labels, attributes and weight; ``None`` where edges have none of these."""
    known = (store.edge_labels, store.edge_attributes, store.edge_weight)
    if all(columns is None for columns in known):
        return None
    return _colours(store.neighbours.numel(), known)


def _colours(rows: int, tables: tuple[Tensor | None, ...]) -> NDArray[np.uint64]:
    """A colour per row from the exact values in all columns of the tables."""
    colours = np.zeros(rows, np.uint64)
    for columns in tables:
        if columns is None:
            continue
        for column in columns.reshape(rows, -1 if rows else 1).unbind(1):
            # + 0.0 makes −0.0 a plain zero.
            values = column.double() + 0.0 if column.is_floating_point() else column.long()
            bits = values.contiguous().numpy().view(np.uint64)
            colours = mix64(colours + mix64(bits))
    return colours


def count_distinct(colours: NDArray[np.uint64]) -> int:
    """How many there are; numpy's ``unique`` takes ten times as long over such numbers."""
    ordered = np.sort(colours)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1])) if len(ordered) else 0


def _neighbour_sums(
    store: GraphStore,
    ptr: NDArray[np.int64],
    first: NDArray[np.int64],
    colours: NDArray[np.uint64],
    codes: NDArray[np.uint64] | None,
) -> NDArray[np.uint64]:
    """Sum of the neighbours' mixed colours for each node, ``[N]``; differences of running sums, modulo 2⁶⁴."""
    mixed = mix64(colours)
    sums = np.zeros(store.num_nodes, np.uint64)
    neighbours = store.neighbours.numpy()
    start = 0
    while start < store.num_nodes:
        # As many nodes as keep within the entries looked at together, and at least one.
        end = max(start + 1, int(np.searchsorted(ptr, ptr[start] + _ENTRIES, side="right")) - 1)
        end = min(end, store.num_nodes)
        degree = np.diff(ptr[start : end + 1])
        nodes = neighbours[ptr[start] : ptr[end]] + np.repeat(first[start:end], degree)
        terms = mixed[nodes] if codes is None else mix64(mixed[nodes] + codes[ptr[start] : ptr[end]])
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        local = ptr[start : end + 1] - ptr[start]
        sums[start:end] = running[local[1:]] - running[local[:-1]]
        start = end
    return sums


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spreads every bit over all bits: a one-to-one map of 64 bits (the finisher of splitmix64)."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed
