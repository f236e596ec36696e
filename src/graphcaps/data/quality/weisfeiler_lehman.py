r"""Weisfeiler-Lehman colour refinement of all graphs of a store at once.

Colour refinement (Weisfeiler and Lehman, 1968) gives every node a colour from its labels and attributes. Each round
then recolours every node from its own colour and those of its neighbours:

.. math::
    c'_i = \mathrm{mix}\big(c_i + \mathrm{mix}(\textstyle\sum_{j \sim i} \mathrm{mix}(c_j))\big) \bmod 2^{64}

The sum does not depend on the order of its terms, so it represents the multiset of colours. Graphs with the same
multiset of node colours are WL-indistinguishable. Isomorphic graphs always are; graphs that are not isomorphic rarely
are (two triangles and a hexagon are the standard example), and by a hash collision almost never.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from graphcaps.data.store import GraphStore

__all__ = [
    "ColourRefinement",
    "count_distinct",
    "edge_colours",
    "initial_node_colours",
    "mix64",
    "row_colours",
    "wl_graph_colours",
    "wl_indistinguishable",
    "wl_node_colours",
]

_CHUNK_ENTRIES = 1 << 20  # edge entries per step: bounds the memory for COLLAB's 25 million
_MAX_ROUNDS = 64
# As arrays of no axes, which take half as long in a call on a few numbers as scalars do.
_INCREMENT = np.array(0x9E3779B97F4A7C15, np.uint64)
_MIX_STEPS = (
    (np.array(30, np.uint64), np.array(0xBF58476D1CE4E5B9, np.uint64)),
    (np.array(27, np.uint64), np.array(0x94D049BB133111EB, np.uint64)),
    (np.array(31, np.uint64), None),
)
"""Shift and factor of each step of :func:`mix64`."""


def wl_indistinguishable(store: GraphStore, *, edges: bool = False) -> tuple[NDArray[np.int64], ...]:
    """Groups of two or more WL-indistinguishable graphs, as ascending indices, ordered by their first graph.

    Args:
        store (GraphStore): Graphs.
        edges (bool): Whether edge labels, attributes and weights count. (default: False)
    """
    colours = wl_graph_colours(store, edges=edges)
    order = np.argsort(colours, kind="stable")
    cuts = np.flatnonzero(np.diff(colours[order])) + 1
    groups = [group.astype(np.int64) for group in np.split(order, cuts) if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: int(group[0])))


def wl_graph_colours(
    store: GraphStore, *, edges: bool = False, attributes: bool = True
) -> NDArray[np.uint64]:
    """Colour of each graph, ``[G]``: a hash of its structure, node labels and node attributes (exact values).

    Rounds go on until no colour class of the store splits, so colours are comparable within one store only.

    Args:
        store (GraphStore): Graphs.
        edges (bool): Whether edge labels, attributes and weights count; the published model does not read them.
            (default: False)
        attributes (bool): Whether node attributes count. (default: True)
    """
    store = store.to("cpu")
    if not len(store):
        return np.zeros(0, np.uint64)
    tables = (store.node_labels, store.node_attributes if attributes else None)
    colours, edge_terms = row_colours(store.num_nodes, tables), edge_colours(store) if edges else None
    distinct, refine = count_distinct(colours), ColourRefinement(store, edge_terms)
    for _ in range(_MAX_ROUNDS):
        colours = refine(colours)
        before, distinct = distinct, count_distinct(colours)
        if distinct == before:
            break
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix64(colours), dtype=np.uint64)])
    bounds = store.node_ptr.numpy()
    sums: NDArray[np.uint64] = running[bounds[1:]] - running[bounds[:-1]]
    return sums


def wl_node_colours(store: GraphStore, iterations: int) -> tuple[NDArray[np.uint64], ...]:
    """Colours of all nodes after 0, 1, … and ``iterations`` rounds, ``[N]`` each, from the node labels alone.

    A colour is a function of the labels within its distance: equal in every store, and for any order of nodes.
    Attributes, which rarely have equal values, are not read.

    Args:
        store (GraphStore): Graphs.
        iterations (int): Number of rounds, at least 0.
    """
    store = store.to("cpu")
    colours, refine = [row_colours(store.num_nodes, (store.node_labels,))], ColourRefinement(store)
    for _ in range(iterations):
        colours.append(refine(colours[-1]))
    return tuple(colours)


def initial_node_colours(store: GraphStore) -> NDArray[np.uint64]:
    """Colour of each node from its labels and attributes, ``[N]``; equal for all where it has neither."""
    return row_colours(store.num_nodes, (store.node_labels, store.node_attributes))


def edge_colours(store: GraphStore) -> NDArray[np.uint64] | None:
    """Colour of each edge entry from its labels, attributes and weight, ``[M]``; ``None`` if edges have none."""
    tables = (store.edge_labels, store.edge_attributes, store.edge_weight)
    if all(table is None for table in tables):
        return None
    return row_colours(store.neighbours.numel(), tables)


def row_colours(rows: int, tables: tuple[Tensor | None, ...]) -> NDArray[np.uint64]:
    """Colour of each row from the exact values in all columns of the tables, ``[rows]``."""
    colours = np.zeros(rows, np.uint64)
    for table in tables:
        if table is None:
            continue
        columns = table.reshape(rows, -1 if rows else 1).numpy()
        step = max(1, _CHUNK_ENTRIES // max(rows, 1))  # all columns of a small graph at once
        for first in range(0, columns.shape[1], step):
            values = columns[:, first : first + step].T
            # + 0.0 turns −0.0 into 0.0.
            wide = values.astype(np.float64) + 0.0 if table.is_floating_point() else values.astype(np.int64)
            for hashed in mix64(np.ascontiguousarray(wide).view(np.uint64)):
                colours = mix64(colours + hashed)
    return colours


def count_distinct(colours: NDArray[np.uint64]) -> int:
    """Number of distinct colours; ten times as fast as ``numpy.unique`` on such values."""
    ordered = np.sort(colours)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1])) if len(ordered) else 0


class ColourRefinement:
    """Rounds of refinement over one store: each call is a round.

    The neighbours of all nodes are looked up once if they are few, and in each round, chunk by chunk, if they are many.

    Args:
        store (GraphStore): Graphs, on the CPU.
        edge_terms (ndarray, optional): A number per edge entry that is mixed into the colour of the neighbour, ``[M]``.
    """

    def __init__(self, store: GraphStore, edge_terms: NDArray[np.uint64] | None = None) -> None:
        self._ptr, self._neighbours = store.edge_ptr.numpy(), store.neighbours.numpy()
        self._first = np.repeat(store.node_ptr.numpy()[:-1], store.sizes.numpy())  # node of each node's graph
        self._edge_terms = edge_terms
        self._num_nodes = store.num_nodes
        is_small = len(self._neighbours) <= _CHUNK_ENTRIES
        self._nodes = self._neighbour_nodes(0, self._num_nodes) if is_small else None

    def __call__(self, colours: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """New colours from those of the nodes and of their neighbours, ``[N]``."""
        return mix64(colours + mix64(self._neighbour_sums(mix64(colours))))

    def _neighbour_nodes(self, start: int, end: int) -> NDArray[np.int64]:
        """The neighbours of some nodes, as nodes of the store."""
        ptr = self._ptr[start : end + 1]
        nodes: NDArray[np.int64] = self._neighbours[ptr[0] : ptr[-1]] + np.repeat(
            self._first[start:end], np.diff(ptr)
        )
        return nodes

    def _neighbour_sums(self, mixed: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Sum of the neighbours' mixed colours for each node, ``[N]``."""
        if self._nodes is not None:
            return self._sums(mixed, self._nodes, 0, self._num_nodes)
        sums, start = np.empty(self._num_nodes, np.uint64), 0
        while start < self._num_nodes:
            # As many nodes as fit into a chunk of entries, at least one.
            limit = self._ptr[start] + _CHUNK_ENTRIES
            end = max(start + 1, int(np.searchsorted(self._ptr, limit, side="right")) - 1)
            end = min(end, self._num_nodes)
            sums[start:end] = self._sums(mixed, self._neighbour_nodes(start, end), start, end)
            start = end
        return sums

    def _sums(
        self, mixed: NDArray[np.uint64], nodes: NDArray[np.int64], start: int, end: int
    ) -> NDArray[np.uint64]:
        """The sums of some nodes, from differences of running sums modulo 2⁶⁴."""
        ptr, terms = self._ptr[start : end + 1], mixed[nodes]
        if self._edge_terms is not None:
            terms = mix64(terms + self._edge_terms[ptr[0] : ptr[-1]])
        running = np.zeros(len(terms) + 1, np.uint64)
        np.cumsum(terms, out=running[1:])
        at = running[ptr - ptr[0]]
        sums: NDArray[np.uint64] = at[1:] - at[:-1]
        return sums


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes 64-bit values one-to-one (the finaliser of splitmix64)."""
    z: NDArray[np.uint64] = values + _INCREMENT
    shifted = np.empty_like(z)
    for shift, factor in _MIX_STEPS:
        np.right_shift(z, shift, shifted)  # in place: these arrays are the size of the data set
        np.bitwise_xor(z, shifted, z)
        if factor is not None:
            np.multiply(z, factor, z)
    return z
