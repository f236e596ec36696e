"""Receptive fields of PATCHY-SAN: the nodes around each of the first nodes of a graph, in a canonical order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from graphcaps.errors import check_at_least
from graphcaps.ops.structure.precomputation import GraphLevel, GraphStructure, PlainGraph, Precomputation

__all__ = ["ReceptiveFields", "colour_ranks", "order_nodes", "receptive_fields"]

_BLOCK = 1 << 24
"""Most entries of a matrix of roots and nodes: more roots are searched in blocks."""


@dataclass(frozen=True)
class ReceptiveFields(Precomputation):
    """One level whose nodes are the receptive fields of a graph, with their nodes as members, in order.

    A graph of n nodes has min(w, n) fields, whose roots are its first nodes (:func:`order_nodes`). Fields have no
    edges.

    Args:
        num_fields (int): Largest number of fields w.
        field_size (int): Largest number of nodes k of a field.
    """

    kind: ClassVar[str] = "receptive-fields"

    num_fields: int = 20
    field_size: int = 10

    @property
    def level_weights(self) -> tuple[int, ...]:
        return (0,)

    def compute(self, graph: PlainGraph) -> GraphStructure:
        fields = receptive_fields(graph, order_nodes(graph), self.num_fields, self.field_size)
        used = fields >= 0
        ptr = np.concatenate([[0], used.sum(-1).cumsum()])
        return GraphStructure((GraphLevel(sparse.csr_array((len(fields),) * 2), ptr, fields[used]),))


def order_nodes(graph: PlainGraph) -> NDArray[np.int64]:
    """The nodes in the order of :func:`colour_ranks`, and of their indices among nodes of one colour, ``[n]``."""
    return np.argsort(colour_ranks(graph), kind="stable")


def colour_ranks(graph: PlainGraph) -> NDArray[np.int64]:
    """Rank of the Weisfeiler-Lehman colour of each node, from 0, ``[n]``.

    Colours start from degrees, the highest first. An iteration orders the nodes of one colour by the ranks of their
    neighbours: the ranks of each node are sorted and compared one after another, so that a node with a neighbour of
    an earlier colour comes first. It ends when no colour is divided any more. Ranks depend on the structure of the
    graph only, not on the order in which nodes are listed.
    """
    ptr = graph.ptr.tolist()
    owner = np.repeat(np.arange(graph.num_nodes), graph.degree)
    colours = np.unique(-graph.degree, return_inverse=True)[1]
    while True:
        near = colours[graph.neighbours]
        # Bytes of numbers with the highest byte first compare as the numbers do. Nodes of one colour have equally
        # many neighbours.
        ranks = near[np.lexsort((near, owner))].astype(">i4").tobytes()
        keys = [(colour, ranks[4 * ptr[i] : 4 * ptr[i + 1]]) for i, colour in enumerate(colours.tolist())]
        rank = {key: place for place, key in enumerate(sorted(set(keys)))}
        if len(rank) == colours.max() + 1:
            return colours
        colours = np.array([rank[key] for key in keys])


def receptive_fields(
    graph: PlainGraph, order: NDArray[np.int64], num_fields: int, field_size: int
) -> NDArray[np.int64]:
    """The nodes of the fields around the first w nodes of an order.

    A field is grown from its root by breadth-first search until it has at least k nodes, or all that can be reached.
    Its nodes are ordered by their distance to the root and then as in ``order``, and the first k are kept.

    Args:
        graph (PlainGraph): The graph.
        order (array): Its nodes in order, ``[n]``.
        num_fields (int): Number of fields w; a graph with fewer nodes has one of each.
        field_size (int): Number of nodes k.

    Returns:
        array: Nodes of each field, its root first, −1 after the last, ``[min(w, n), k]``.

    Raises:
        ArgumentError: If a number is below 1.
    """
    check_at_least("receptive_fields", 1, num_fields=num_fields, field_size=field_size)
    n = graph.num_nodes
    table = _first_neighbours(graph, order, field_size)
    step = max(1, _BLOCK // (n + 1))
    roots = np.arange(min(num_fields, n))
    fields = np.concatenate(
        [_search(roots[start : start + step], table, field_size) for start in range(0, len(roots), step)]
    )
    return np.append(order, -1)[fields]  # from places in the order to nodes; place n stands for none


def _first_neighbours(graph: PlainGraph, order: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """The first k neighbours of each node in the order, ``[n, k]``, n for none; all nodes are places in the order.

    More are never needed. If a search has reached c < k nodes, and a node of the last layer has more than k neighbours,
    then at least k − c of the first k are new and complete the field; every neighbour after them comes later in it.
    """
    n, degree = graph.num_nodes, graph.degree
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    owner, near = place[np.repeat(np.arange(n), degree)], place[graph.neighbours]
    by_owner = np.lexsort((near, owner))
    owner, near = owner[by_owner], near[by_owner]
    first = np.concatenate([[0], degree[order].cumsum()])
    column = np.arange(len(near)) - first[owner]
    kept = column < k
    table = np.full((n, k), n)
    table[owner[kept], column[kept]] = near[kept]
    return table


def _search(roots: NDArray[np.int64], table: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    """Breadth-first searches from all roots at a time; the first k nodes of each, ``[R, k]``, n for none."""
    R, n = len(roots), len(table)
    row = np.arange(R)
    fields = np.full((R, k), n)
    fields[:, 0] = roots
    count = np.ones(R, dtype=np.int64)
    reached = np.zeros((R, n + 1), dtype=bool)
    reached[row, roots] = reached[:, n] = True
    nodes = roots  # of the last layer, those of search row[i]
    active = count[row] < k
    while active.any():
        layer = np.zeros_like(reached)
        layer[row[active, None], table[nodes[active]]] = True
        layer &= ~reached
        reached |= layer
        row, nodes = layer.nonzero()  # by search, and then in the order of the nodes
        found = np.bincount(row, minlength=R)
        column = count[row] + np.arange(len(row)) - (found.cumsum() - found)[row]
        kept = column < k
        fields[row[kept], column[kept]] = nodes[kept]
        count = np.minimum(count + found, k)
        active = count[row] < k
    return fields
