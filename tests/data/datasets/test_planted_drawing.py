"""One plan, three classes: what the ends of the bridges can change, and what they cannot."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest

from graphcaps.data.datasets.planted_parts import (
    LEVELS,
    GraphTemplate,
    PortableRandom,
    sample_profile,
    sample_template,
)


def refined_colours(graph: nx.Graph, rounds: int) -> Counter:
    colour = dict.fromkeys(graph, ())
    for _ in range(rounds):
        colour = {v: (colour[v], *sorted(colour[u] for u in graph[v])) for v in graph}
    return Counter(colour.values())


def joint_degrees(graph: nx.Graph) -> Counter:
    return Counter(tuple(sorted((graph.degree[a], graph.degree[b]))) for a, b in graph.edges)


def twins(plan: GraphTemplate) -> list[nx.Graph]:
    graphs = [nx.Graph(plan.edges_of_class(label)) for label in range(3)]
    assert all(len(graph) == plan.num_nodes for graph in graphs)
    return graphs


def plans(level: str, count: int = 20) -> list[GraphTemplate]:
    draw = PortableRandom(7, 1)
    return [sample_template(sample_profile(LEVELS[level], turn, draw), draw) for turn in range(count)]


def same(values: list) -> bool:
    return all(value == values[0] for value in values[1:])


@pytest.mark.parametrize("level", LEVELS)
def test_only_the_meetings_differ_between_classes(level):
    for plan in plans(level):
        graphs = twins(plan)
        assert same([refined_colours(graph, 1) for graph in graphs])  # degrees
        assert same([nx.triangles(graph) for graph in graphs])
        assert same([nx.clustering(graph) for graph in graphs])
        for i, graph in enumerate(graphs):
            changed = set(map(frozenset, graph.edges)) ^ set(map(frozenset, graphs[i - 1].edges))
            assert changed
            assert all(set(plan.ports[:4]) & edge for edge in changed)  # only ends of bridges moved


@pytest.mark.parametrize("level", LEVELS)
def test_statistics_that_see_less_than_a_bridge_do_not_see_the_class(level):
    # What docs/planted-parts.md says of joint degrees and refined colours; the last entry can fail to match.
    graphs = [twins(plan) for plan in plans(level)]
    joint = [same([joint_degrees(graph) for graph in three]) for three in graphs]
    two = [same([refined_colours(graph, 2) for graph in three]) for three in graphs]
    four = [same([refined_colours(graph, 4) for graph in three]) for three in graphs]
    assert all(joint) if level != "easy" else not any(joint)
    assert all(two) if level == "hard" else not all(two)
    assert not any(four)


@pytest.mark.parametrize("level", LEVELS)
def test_plans_of_a_profile_share_their_degrees_but_not_their_arrangement(level):
    draw = PortableRandom(3, 0)
    for turn in range(8):
        profile = sample_profile(LEVELS[level], turn, draw)
        graphs = [nx.Graph(sample_template(profile, draw).edges_of_class(0)) for _ in range(6)]
        assert same([refined_colours(graph, 1) for graph in graphs])
        assert not same([refined_colours(graph, 6) for graph in graphs])


def test_ports_of_the_easy_level_tell_kinds_apart():
    draw = PortableRandom(0, 0)
    for turn in range(30):
        ring, star, clique, ladder = sample_profile(LEVELS["easy"], turn, draw).port_degrees
        assert (ring, ladder) == (2, 3)
        assert 4 <= clique <= 5 < star


def test_draw_uses_the_raw_bits_in_order():
    # Fixed numbers: PCG64's bits, the remainder, the exchange from the end.
    draw = PortableRandom(0, 0)
    assert [draw.below(1000) for _ in range(4)] == [271, 617, 24, 533]
    assert PortableRandom(0, 0).shuffled(range(8)) == [0, 5, 1, 6, 3, 2, 4, 7]
    draw = PortableRandom(5)
    counts = Counter(draw.between((2, 5)) for _ in range(4000))  # crosses several blocks of words
    assert set(counts) == {2, 3, 4, 5}
    assert all(900 < count < 1100 for count in counts.values())
