"""Connected groups by modularity: by hand, their invariants, and cycles by an independent search."""

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from graphcaps.ops.structure.modularity_groups import (
    ModularityGroups,
    modularity,
    modularity_groups,
    short_cycles,
)
from graphcaps.ops.structure.precomputation import PlainGraph


def _plain(graph: nx.Graph) -> PlainGraph:
    return PlainGraph.from_adjacency(sparse.csr_array(nx.to_scipy_sparse_array(graph, dtype=float)))


def _random(seed: int) -> nx.Graph:
    generator = np.random.default_rng(seed)
    return nx.gnp_random_graph(int(generator.integers(2, 18)), generator.choice([0.1, 0.2, 0.4]), seed=seed)


def _same(groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    return groups[:, None] == groups[None, :]


def test_two_triangles_are_two_groups() -> None:
    graph = _plain(nx.Graph([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]))
    groups = modularity_groups(graph)
    assert groups.tolist() == [0, 0, 0, 1, 1, 1]
    # Edges of a triangle weigh 2, the bridge 1: 12 of 13 are inside; each group has half of the degrees.
    assert modularity(graph, groups) == pytest.approx(12 / 13 - 0.5, abs=1e-12)
    assert modularity(graph, groups, cycle_weight=1.0) == pytest.approx(6 / 7 - 0.5, abs=1e-12)
    assert modularity(graph, np.zeros(6, dtype=np.int64)) == pytest.approx(0, abs=1e-12)


def test_a_ring_stays_whole_and_its_chain_leaves() -> None:
    ring_and_chain = nx.cycle_graph(6)
    ring_and_chain.add_edges_from([(0, 6), (6, 7), (7, 8), (8, 9)])
    groups = modularity_groups(_plain(ring_and_chain))
    assert len(set(groups[:6])) == 1
    assert groups[0] not in groups[7:]
    # The three ends of a star are alike: they join its centre together.
    assert modularity_groups(_plain(nx.star_graph(3))).tolist() == [0, 0, 0, 0]
    assert modularity_groups(_plain(nx.complete_graph(5))).tolist() == [0] * 5


@pytest.mark.parametrize("seed", range(12))
def test_invariants_of_random_graphs(seed: int) -> None:
    graph = _random(seed)
    plain = _plain(graph)
    groups = modularity_groups(plain)
    for number in range(groups.max() + 1):
        assert nx.is_connected(graph.subgraph(np.flatnonzero(groups == number).tolist()))
    single = np.arange(len(graph))
    assert modularity(plain, groups) >= modularity(plain, single)
    order = np.random.default_rng(seed).permutation(len(graph))
    permuted = sparse.csr_array(plain.adjacency().toarray()[order][:, order])
    other = modularity_groups(PlainGraph.from_adjacency(permuted))
    assert np.array_equal(_same(other), _same(groups)[order][:, order])


@pytest.mark.parametrize("seed", range(6))
def test_short_cycles_equal_shortest_paths_without_the_edge(seed: int) -> None:
    graph = _random(seed)
    plain = _plain(graph)
    source = np.repeat(np.arange(len(graph)), plain.degree)
    for length in (3, 4, 5, 8):
        for found, *edge in zip(short_cycles(plain, length), source, plain.neighbours, strict=True):
            rest = graph.copy()
            rest.remove_edge(*edge)
            paths = nx.single_source_shortest_path_length(rest, edge[0])
            assert found == (paths.get(edge[1], len(graph) + length) <= length - 1)


def test_nodes_without_edges_are_groups_of_their_own() -> None:
    assert modularity_groups(_plain(nx.empty_graph(3))).tolist() == [0, 1, 2]
    assert modularity(_plain(nx.empty_graph(3)), np.arange(3)) == 0.0


def test_the_precomputed_level_has_the_groups_as_members() -> None:
    graph = _plain(nx.Graph([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]))
    (level,) = ModularityGroups().compute(graph).levels
    assert level.member_ptr.tolist() == [0, 3, 6]
    assert level.members.tolist() == [0, 1, 2, 3, 4, 5]
    assert level.adjacency.toarray()[0, 1] == 1
