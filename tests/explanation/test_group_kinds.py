"""Kinds of groups, against networkx on every pair of groups."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from graphcaps.explanation.group_kinds import MAX_COMPARED, describe_shape, group_kinds
from graphcaps.explanation.node_groups import NodeGroups


def make_groups(graphs: list[nx.Graph]) -> tuple[NodeGroups, np.ndarray, np.ndarray, np.ndarray]:
    """Each graph as one group, with shuffled nodes, their labels and those of the edges."""
    generator = np.random.default_rng(0)
    sizes = [len(graph) for graph in graphs]
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    ends, node_labels, edge_labels = [], np.zeros(ptr[-1], np.int64), []
    for first, graph in zip(ptr, graphs, strict=False):
        place = dict(zip(graph, generator.permutation(len(graph)) + first, strict=True))
        for node, label in graph.nodes(data="label", default=0):
            node_labels[place[node]] = label
        for a, b, label in graph.edges(data="label", default=0):
            ends.append(sorted((place[a], place[b])))
            edge_labels.append(label)
    group = np.repeat(np.arange(len(graphs)), sizes)
    capsule = np.zeros(len(graphs), np.int64)
    groups = NodeGroups(0, capsule, capsule, ptr, np.arange(ptr[-1]), group)
    edges = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    return groups, edges, node_labels, np.array(edge_labels, dtype=np.int64)


def labelled(graph: nx.Graph, nodes: int, edges: int, seed: int) -> nx.Graph:
    generator = np.random.default_rng(seed)
    nx.set_node_attributes(graph, {node: int(generator.integers(nodes)) for node in graph}, "label")
    nx.set_edge_attributes(graph, {edge: int(generator.integers(edges)) for edge in graph.edges}, "label")
    return graph


def test_kinds_are_isomorphism_classes() -> None:
    graphs = [labelled(nx.gnp_random_graph(4, 0.6, seed=seed), 2, 2, seed) for seed in range(50)]
    graphs += [nx.cycle_graph(6), nx.path_graph(6), nx.star_graph(5), nx.cycle_graph(6)]
    # Two triangles and a hexagon: colour refinement alone cannot tell them apart.
    graphs += [nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)), nx.complete_graph(4)]
    kinds = group_kinds(*make_groups(graphs))
    match = {
        "node_match": nx.isomorphism.categorical_node_match("label", 0),
        "edge_match": nx.isomorphism.categorical_edge_match("label", 0),
    }
    for one in range(len(graphs)):
        for two in range(one):
            expected = nx.is_isomorphic(graphs[one], graphs[two], **match)
            assert (kinds.kind[one] == kinds.kind[two]) == expected, (one, two)
    assert [int(kinds.kind[group]) for group in kinds.first] == list(range(len(kinds.first)))


def test_groups_with_many_nodes_have_no_kind() -> None:
    graphs = [nx.path_graph(MAX_COMPARED + 1), nx.path_graph(MAX_COMPARED), nx.path_graph(MAX_COMPARED + 1)]
    assert group_kinds(*make_groups(graphs)).kind.tolist() == [-1, 0, -1]


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nx.path_graph(1), "single node"),
        (nx.path_graph(2), "pair"),
        (nx.path_graph(4), "path of 4"),
        (nx.cycle_graph(3), "triangle"),
        (nx.cycle_graph(5), "ring of 5"),
        (nx.star_graph(4), "star of 5"),
        (nx.complete_graph(4), "clique of 4"),
        (nx.Graph([(0, 1), (1, 2), (2, 3), (1, 4)]), "tree of 5"),
        (nx.ladder_graph(3), "6 nodes, 7 edges"),
    ],
)
def test_shapes_in_words(graph: nx.Graph, words: str) -> None:
    edges = np.array(graph.edges, dtype=np.int64).reshape(-1, 2).T
    assert describe_shape(len(graph), edges) == words
