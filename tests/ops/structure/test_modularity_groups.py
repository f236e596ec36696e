"""Connected groups by modularity: by hand, their invariants, many graphs at once, and cycles by networkx."""

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from graphcaps.ops.structure.modularity_groups import CYCLE_WEIGHT, cycle_edges, modularity_groups

Index = NDArray[np.int64]
TWO_TRIANGLES = nx.Graph([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)])


def _edges(graph: nx.Graph) -> tuple[Index, Index]:
    pairs = np.array(graph.edges, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _groups(graph: nx.Graph) -> Index:
    return modularity_groups(*_edges(graph), np.zeros(len(graph), dtype=np.int64))


def _random(seed: int) -> nx.Graph:
    generator = np.random.default_rng(seed)
    return nx.gnp_random_graph(int(generator.integers(2, 18)), generator.choice([0.1, 0.2, 0.4]), seed=seed)


def _same(groups: Index) -> NDArray[np.bool_]:
    return groups[:, None] == groups[None, :]


def _modularity(graph: nx.Graph, groups: Index) -> float:
    """Q by its definition, edge by edge, with the bridges of networkx."""
    bridges = {frozenset(edge) for edge in nx.bridges(graph)}
    weights = {edge: 1.0 if frozenset(edge) in bridges else CYCLE_WEIGHT for edge in graph.edges}
    total, degrees = sum(weights.values()), 2 * graph.number_of_edges()
    inside = sum(weight for (a, b), weight in weights.items() if groups[a] == groups[b])
    sums = [
        sum(graph.degree(node) for node in graph if groups[node] == number) for number in set(groups.tolist())
    ]
    return inside / total - sum((value / degrees) ** 2 for value in sums)


def test_two_triangles_are_two_groups() -> None:
    groups = _groups(TWO_TRIANGLES)
    assert groups.tolist() == [0, 0, 0, 3, 3, 3]
    # Edges of a triangle weigh 2, the bridge 1: 12 of 13 are inside; each group has half of the degrees.
    assert _modularity(TWO_TRIANGLES, groups) == pytest.approx(12 / 13 - 0.5, abs=1e-12)
    assert _modularity(TWO_TRIANGLES, np.zeros(6, dtype=np.int64)) == pytest.approx(0, abs=1e-12)


def test_a_ring_stays_whole_and_its_chain_leaves() -> None:
    ring_and_chain = nx.cycle_graph(6)
    ring_and_chain.add_edges_from([(0, 6), (6, 7), (7, 8), (8, 9)])
    groups = _groups(ring_and_chain)
    assert len(set(groups[:6])) == 1
    assert groups[0] not in groups[7:]
    # The three ends of a star are alike: they join its centre together.
    assert _groups(nx.star_graph(3)).tolist() == [0, 0, 0, 0]
    assert _groups(nx.complete_graph(5)).tolist() == [0] * 5


@pytest.mark.parametrize("seed", range(12))
def test_invariants_of_random_graphs(seed: int) -> None:
    graph = _random(seed)
    groups = _groups(graph)
    for number in set(groups.tolist()):
        members = np.flatnonzero(groups == number)
        assert members[0] == number
        assert nx.is_connected(graph.subgraph(members.tolist()))
    if graph.number_of_edges():
        assert _modularity(graph, groups) >= _modularity(graph, np.arange(len(graph)))
    order = np.random.default_rng(seed).permutation(len(graph))
    permuted = nx.relabel_nodes(graph, dict(enumerate(order.tolist())))
    other = _groups(nx.Graph(nx.to_numpy_array(permuted, nodelist=range(len(graph)))))
    assert np.array_equal(_same(other)[order][:, order], _same(groups))


def test_no_pair_of_groups_is_left_that_would_gain_unless_pairs_are_alike() -> None:
    # A path: all but its ends differ by their distance to them, so that no equal pairs are refused.
    graph = nx.Graph([*nx.path_graph(11).edges, (0, 11), (0, 12)])
    groups = _groups(graph)
    q = _modularity(graph, groups)
    assert len(set(groups.tolist())) > 2
    for a, b in graph.edges:
        if groups[a] != groups[b]:
            joined = np.where(groups == groups[b], groups[a], groups)
            assert _modularity(graph, joined) <= q + 1e-12


def test_equal_pairs_stay_apart_if_merging_all_of_them_would_lower_q() -> None:
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 5))
    groups = _groups(grid).reshape(5, 5)
    # By symmetry the four corners, and the four arms of the cross between them, are alike.
    assert groups.tolist() == [
        [0, 0, 2, 3, 3],
        [0, 0, 2, 3, 3],
        [10, 10, 12, 13, 13],
        [15, 15, 17, 18, 18],
        [15, 15, 17, 18, 18],
    ]
    assert _modularity(grid, groups.reshape(-1)) == pytest.approx(0.376875, abs=1e-12)


def test_graphs_among_others_have_the_groups_that_they_have_alone() -> None:
    graphs = [_random(seed) for seed in range(30)]
    alone = [_groups(graph) for graph in graphs]
    first = np.cumsum([0, *map(len, graphs)])
    sources, targets = zip(*map(_edges, graphs), strict=True)
    offsets = np.repeat(first[:-1], [len(ends) for ends in sources])
    graph = np.repeat(np.arange(len(graphs)), np.diff(first))
    together = modularity_groups(np.concatenate(sources) + offsets, np.concatenate(targets) + offsets, graph)
    assert together.tolist() == [
        start + node for start, groups in zip(first, alone, strict=False) for node in groups
    ]


@pytest.mark.parametrize("seed", range(12))
def test_edges_that_are_not_on_a_cycle_are_bridges(seed: int) -> None:
    graph = _random(seed)
    source, target = _edges(graph)
    bridges = {frozenset(edge) for edge in nx.bridges(graph)}
    expected = [frozenset(edge) not in bridges for edge in zip(source.tolist(), target.tolist(), strict=True)]
    assert cycle_edges(source, target, len(graph)).tolist() == expected


def test_a_long_path_and_a_long_cycle() -> None:
    path = _edges(nx.path_graph(3000))
    assert not cycle_edges(*path, 3000).any()
    assert cycle_edges(*_edges(nx.cycle_graph(3000)), 3000).all()


def test_nodes_without_edges_are_groups_of_their_own() -> None:
    assert _groups(nx.empty_graph(3)).tolist() == [0, 1, 2]
    none = np.zeros(0, dtype=np.int64)
    assert not len(modularity_groups(none, none, none))
