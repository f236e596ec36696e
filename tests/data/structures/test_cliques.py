"""Cliques against networkx and against the definition, node by node."""

from __future__ import annotations

import inspect
import sys

import networkx as nx
import numpy as np
import pytest

from graphcaps.data.structures.cliques import CliqueLevels, clique_level, largest_cliques, maximal_cliques
from graphcaps.ops.structure.precomputation import PlainGraph
from tests.coarse_levels import matrix


def plain(graph: nx.Graph) -> PlainGraph:
    return PlainGraph.from_adjacency(matrix(graph))


def as_set(clique: int) -> frozenset[int]:
    return frozenset(node for node in range(clique.bit_length()) if clique >> node & 1)


GRAPHS = [nx.gnp_random_graph(n, p, seed=n) for n in (1, 2, 9, 17, 30) for p in (0.0, 0.2, 0.5, 0.9, 1.0)]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{len(graph)}-{graph.number_of_edges()}")
def test_cliques_equal_networkx(graph: nx.Graph) -> None:
    expected = {frozenset(clique) for clique in nx.find_cliques(graph)}
    found = maximal_cliques(plain(graph))
    assert {as_set(clique) for clique in found} == expected
    assert len(found) == len(expected)
    # Each node stays in its largest cliques, all of them on ties.
    kept = set()
    for clique in expected:
        best = {node: max(len(other) for other in expected if node in other) for node in clique}
        kept.add(frozenset(node for node in clique if best[node] == len(clique)))
    assert {frozenset(clique.tolist()) for clique in largest_cliques(plain(graph))} == kept - {frozenset()}


def test_level_of_a_worked_example() -> None:
    # A triangle 0 1 2 with a path 2 3 4: node 2 stays in the triangle, 3 in {3} of {2, 3} and in {3, 4}.
    graph = nx.Graph([(0, 1), (1, 2), (0, 2), (2, 3), (3, 4)])
    level = clique_level(plain(graph))
    members = [
        level.members[a:b].tolist() for a, b in zip(level.member_ptr, level.member_ptr[1:], strict=False)
    ]
    assert members == [[0, 1, 2], [3], [3, 4]]
    # The edge 2-3 joins the first with both others; the edge 3-4 joins these, and {3, 4} with itself.
    assert level.adjacency.toarray().tolist() == [[1, 1, 1], [1, 0, 1], [1, 1, 1]]


def test_adjacency_is_that_of_the_definition() -> None:
    graph = nx.gnp_random_graph(20, 0.25, seed=3)
    structure = CliqueLevels(2).compute(plain(graph))
    A = nx.to_numpy_array(graph)
    for level in structure.levels:
        S = np.zeros((len(A), level.num_nodes))
        for node in range(level.num_nodes):
            S[level.members[level.member_ptr[node] : level.member_ptr[node + 1]], node] = 1
        expected = (S.T @ A @ S > 0).astype(float)
        assert np.array_equal(level.adjacency.toarray(), expected)
        A = expected * (1 - np.eye(level.num_nodes))  # graphs have no self-loops


def test_a_large_clique_needs_no_recursion() -> None:
    graph, limit = plain(nx.complete_graph(300)), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        cliques = largest_cliques(graph)
    finally:
        sys.setrecursionlimit(limit)
    assert [len(clique) for clique in cliques] == [300]
