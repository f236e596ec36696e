"""Groups: those that are assigned as a whole, or connected pieces of capsules, against networkx."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from graphcaps.errors import ArgumentError
from graphcaps.explanation.node_groups import find_groups, node_capsules
from tests.explanation.synthetic import make_explanations, make_store


def test_groups_of_the_lowest_level_are_those_that_are_assigned_as_a_whole() -> None:
    explanations = make_explanations(make_store(8), capsules=(4, 2))
    groups, whole = find_groups(explanations), explanations.groups
    assert whole is not None
    first = groups.nodes[groups.ptr[:-1]]
    assert first.tolist() == sorted(set(whole.tolist()))
    assert first[groups.group].tolist() == whole.tolist()
    assert groups.capsule[groups.group].tolist() == explanations.capsule.tolist()


@pytest.mark.parametrize("level", [0, 1])
def test_other_groups_are_the_connected_components_of_equal_capsules(level: int) -> None:
    store = make_store(8)
    explanations = make_explanations(store, capsules=(4, 2))
    if not level:
        explanations = replace(explanations, assigns_groups=False)
    groups = find_groups(explanations, level)
    expected = []
    for number, one in enumerate(explanations):
        capsule = one.levels[0].capsule.tolist()
        if level:
            capsule = [one.levels[1].capsule.tolist()[j] for j in capsule]
        graph = nx.Graph()
        graph.add_nodes_from(range(one.num_nodes))
        graph.add_edges_from((a, b) for a, b in one.edges.T.tolist() if capsule[a] == capsule[b])
        for nodes in sorted(nx.connected_components(graph), key=min):
            expected.append((number, capsule[min(nodes)], sorted(nodes)))
    first = explanations.node_ptr.tolist()
    found = [
        (g, j, (groups.nodes[a:b] - first[g]).tolist())
        for g, j, a, b in zip(
            groups.graph.tolist(), groups.capsule.tolist(), groups.ptr, groups.ptr[1:], strict=False
        )
    ]
    assert found == expected
    assert groups.sizes.sum() == store.num_nodes
    for row, (a, b) in enumerate(zip(groups.ptr, groups.ptr[1:], strict=False)):
        assert (groups.group[groups.nodes[a:b]] == row).all()


def test_the_class_level_has_the_classes_as_capsules() -> None:
    store = make_store(5)
    explanations = make_explanations(store, capsules=(3,))
    capsule = node_capsules(explanations, 1)
    one = explanations[2]
    rows = slice(*explanations.node_ptr[2:4].tolist())
    assert capsule[rows].tolist() == one.levels[1].capsule[one.levels[0].capsule].tolist()
    with pytest.raises(ArgumentError, match="from 0 to 1, got 2"):
        node_capsules(explanations, 2)


def test_graphs_without_edges_have_a_group_per_node() -> None:
    store = make_store(3, nodes=(1, 1))
    explanations = make_explanations(store)
    assert explanations.edge_rows.shape == (2, 0)
    groups = find_groups(explanations)
    assert groups.sizes.tolist() == [1, 1, 1]
    assert np.array_equal(groups.graph, [0, 1, 2])
