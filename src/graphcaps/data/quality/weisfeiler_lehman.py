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
    "count_distinct",
    "edge_colours",
    "initial_node_colours",
    "mix64",
    "refine_colours",
    "wl_graph_colours",
    "wl_indistinguishable",
    "wl_node_colours",
]

_CHUNK_ENTRIES = 1 << 20  # edge entries per step: bounds the memory for COLLAB's 25 million
_MAX_ROUNDS = 64


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
    colours, edge_terms = _row_colours(store.num_nodes, tables), edge_colours(store) if edges else None
    distinct = count_distinct(colours)
    for _ in range(_MAX_ROUNDS):
        colours = refine_colours(store, colours, edge_terms)
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
    colours = [_row_colours(store.num_nodes, (store.node_labels,))]
    for _ in range(iterations):
        colours.append(refine_colours(store, colours[-1], None))
    return tuple(colours)


def initial_node_colours(store: GraphStore) -> NDArray[np.uint64]:
    """Colour of each node from its labels and attributes, ``[N]``; equal for all where it has neither."""
    return _row_colours(store.num_nodes, (store.node_labels, store.node_attributes))


def edge_colours(store: GraphStore) -> NDArray[np.uint64] | None:
    """Colour of each edge entry from its labels, attributes and weight, ``[M]``; ``None`` if edges have none."""
    tables = (store.edge_labels, store.edge_attributes, store.edge_weight)
    if all(table is None for table in tables):
        return None
    return _row_colours(store.neighbours.numel(), tables)


def _row_colours(rows: int, tables: tuple[Tensor | None, ...]) -> NDArray[np.uint64]:
    """Colour of each row from the exact values in all columns of the tables."""
    colours = np.zeros(rows, np.uint64)
    for table in tables:
        if table is None:
            continue
        for column in table.reshape(rows, -1 if rows else 1).unbind(1):
            # + 0.0 turns −0.0 into 0.0.
            values = column.double() + 0.0 if column.is_floating_point() else column.long()
            bits = values.contiguous().numpy().view(np.uint64)
            colours = mix64(colours + mix64(bits))
    return colours


def count_distinct(colours: NDArray[np.uint64]) -> int:
    """Number of distinct colours; ten times as fast as ``numpy.unique`` on such values."""
    ordered = np.sort(colours)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1])) if len(ordered) else 0


def refine_colours(
    store: GraphStore, colours: NDArray[np.uint64], edge_terms: NDArray[np.uint64] | None
) -> NDArray[np.uint64]:
    """One round: new colours from those of the nodes and of their neighbours, ``[N]``.

    Args:
        store (GraphStore): Graphs, on the CPU.
        colours (ndarray): Colour of each node, ``[N]``.
        edge_terms (ndarray, optional): A number per edge entry that is mixed into the colour of the neighbour, ``[M]``.
    """
    return mix64(colours + mix64(_neighbour_sums(store, colours, edge_terms)))


def _neighbour_sums(
    store: GraphStore, colours: NDArray[np.uint64], edge_terms: NDArray[np.uint64] | None
) -> NDArray[np.uint64]:
    """Sum of the neighbours' mixed colours for each node, ``[N]``, from differences of running sums modulo 2⁶⁴."""
    ptr, first = store.edge_ptr.numpy(), store.node_ptr[:-1].repeat_interleave(store.sizes).numpy()
    mixed = mix64(colours)
    sums = np.zeros(store.num_nodes, np.uint64)
    neighbours = store.neighbours.numpy()
    start = 0
    while start < store.num_nodes:
        # As many nodes as fit into a chunk of entries, at least one.
        end = max(start + 1, int(np.searchsorted(ptr, ptr[start] + _CHUNK_ENTRIES, side="right")) - 1)
        end = min(end, store.num_nodes)
        degree = np.diff(ptr[start : end + 1])
        nodes = neighbours[ptr[start] : ptr[end]] + np.repeat(first[start:end], degree)
        terms = (
            mixed[nodes] if edge_terms is None else mix64(mixed[nodes] + edge_terms[ptr[start] : ptr[end]])
        )
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
        local = ptr[start : end + 1] - ptr[start]
        sums[start:end] = running[local[1:]] - running[local[:-1]]
        start = end
    return sums


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hashes 64-bit values one-to-one (the finaliser of splitmix64)."""
    z: NDArray[np.uint64] = values + np.uint64(0x9E3779B97F4A7C15)
    shifted = np.empty_like(z)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        np.right_shift(
            z, np.uint64(shift), out=shifted
        )  # in place: these arrays are the size of the data set
        np.bitwise_xor(z, shifted, out=z)
        if factor != 1:
            np.multiply(z, np.uint64(factor), out=z)
    return z
