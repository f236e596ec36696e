"""Templates of planted graphs: the three classes of a template differ only at the ends of two bridges."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest

from graphcaps.data.datasets.planted_parts import (
    LEVELS,
    GraphTemplate,
    sample_profile,
    sample_template,
)
from graphcaps.data.datasets.portable_random import PortableRandom


def refined_colours(graph: nx.Graph, rounds: int) -> Counter:
    colour = dict.fromkeys(graph, ())
    for _ in range(rounds):
        colour = {v: (colour[v], *sorted(colour[u] for u in graph[v])) for v in graph}
    return Counter(colour.values())


def joint_degrees(graph: nx.Graph) -> Counter:
    return Counter(tuple(sorted((graph.degree[a], graph.degree[b]))) for a, b in graph.edges)


def graphs_of_classes(template: GraphTemplate) -> list[nx.Graph]:
    graphs = [nx.Graph(template.edges_of_class(label)) for label in range(3)]
    assert all(len(graph) == template.num_nodes for graph in graphs)
    return graphs


def sample_templates(level: str, count: int = 20) -> list[GraphTemplate]:
    random = PortableRandom(7, 1)
    return [sample_template(sample_profile(LEVELS[level], index, random), random) for index in range(count)]


def same(values: list) -> bool:
    return all(value == values[0] for value in values[1:])


@pytest.mark.parametrize("level", LEVELS)
def test_classes_differ_only_in_the_connections(level):
    for template in sample_templates(level):
        graphs = graphs_of_classes(template)
        assert same([refined_colours(graph, 1) for graph in graphs])  # degrees
        assert same([nx.triangles(graph) for graph in graphs])
        assert same([nx.clustering(graph) for graph in graphs])
        for i, graph in enumerate(graphs):
            changed = set(map(frozenset, graph.edges)) ^ set(map(frozenset, graphs[i - 1].edges))
            assert changed
            assert all(set(template.ports[:4]) & edge for edge in changed)  # only ends of bridges moved


@pytest.mark.parametrize("level", LEVELS)
def test_local_statistics_do_not_determine_the_class(level):
    # What docs/planted-parts.md says of joint degrees and refined colours; the last entry can fail to match.
    graphs = [graphs_of_classes(template) for template in sample_templates(level)]
    joint = [same([joint_degrees(graph) for graph in three]) for three in graphs]
    two = [same([refined_colours(graph, 2) for graph in three]) for three in graphs]
    four = [same([refined_colours(graph, 4) for graph in three]) for three in graphs]
    assert all(joint) if level != "easy" else not any(joint)
    assert all(two) if level == "hard" else not all(two)
    assert not any(four)


@pytest.mark.parametrize("level", LEVELS)
def test_templates_of_a_profile_share_degrees_but_not_structure(level):
    random = PortableRandom(3, 0)
    for index in range(8):
        profile = sample_profile(LEVELS[level], index, random)
        graphs = [nx.Graph(sample_template(profile, random).edges_of_class(0)) for _ in range(6)]
        assert same([refined_colours(graph, 1) for graph in graphs])
        assert not same([refined_colours(graph, 6) for graph in graphs])


def test_ports_of_the_easy_level_identify_the_kinds():
    random = PortableRandom(0, 0)
    for index in range(30):
        ring, star, clique, ladder = sample_profile(LEVELS["easy"], index, random).port_degrees
        assert (ring, ladder) == (2, 3)
        assert 4 <= clique <= 5 < star


def test_random_choices_use_the_raw_bits_in_order():
    # Fixed numbers: PCG64's bits, the remainder, the exchange from the end.
    random = PortableRandom(0, 0)
    assert [random.below(1000) for _ in range(4)] == [271, 617, 24, 533]
    assert PortableRandom(0, 0).shuffled(range(8)) == [0, 5, 1, 6, 3, 2, 4, 7]
    random = PortableRandom(5)
    counts = Counter(random.between((2, 5)) for _ in range(4000))  # crosses several blocks of words
    assert set(counts) == {2, 3, 4, 5}
    assert all(900 < count < 1100 for count in counts.values())
