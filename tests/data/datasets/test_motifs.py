"""Motifs against the graphs of the same names in networkx."""

from __future__ import annotations

import networkx as nx
import pytest

from graphcaps.data.datasets.motifs import MOTIF_KINDS, Motif, build_motif


def comb(size: int) -> nx.Graph:
    graph = nx.path_graph(size)
    graph.add_edges_from((i, size + i) for i in range(size))
    return graph


REFERENCE = {
    "ring": nx.cycle_graph,
    "star": nx.star_graph,
    "clique": nx.complete_graph,
    "ladder": nx.ladder_graph,
    "wheel": lambda size: nx.wheel_graph(size + 1),
    "grid": lambda size: nx.grid_2d_graph(3, size),
    "comb": comb,
}


def to_graph(part: Motif) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(part.num_nodes))
    graph.add_edges_from(part.edges)
    assert graph.number_of_edges() == len(part.edges)  # none listed twice
    return graph


@pytest.mark.parametrize("kind", MOTIF_KINDS[1:])
@pytest.mark.parametrize("size", [4, 5, 7])
def test_motif_is_the_graph_of_its_name(kind, size):
    part = build_motif(kind, size)
    assert part.kind == kind
    assert nx.is_isomorphic(to_graph(part), REFERENCE[kind](size))
    assert part.degrees == tuple(degree for _, degree in sorted(to_graph(part).degree))


def test_house_is_that_of_networkx():
    assert nx.is_isomorphic(to_graph(build_motif("house", 4)), nx.house_graph())


def test_kinds_differ_at_every_size():
    shapes = [to_graph(build_motif(kind, size)) for kind in MOTIF_KINDS[1:] for size in range(4, 9)]
    for i, graph in enumerate(shapes):
        assert not any(nx.is_isomorphic(graph, other) for other in shapes[:i])


@pytest.mark.parametrize("kind", MOTIF_KINDS[1:])
def test_perturbation_changes_one_edge_and_keeps_the_motif_connected(kind):
    part = build_motif(kind, 4)
    before = {frozenset(edge) for edge in part.edges}
    perturbed = part.perturbations()
    assert len(perturbed) == len({frozenset(map(frozenset, changed.edges)) for changed in perturbed}) > 0
    for changed in perturbed:
        after = {frozenset(edge) for edge in changed.edges}
        assert len(before ^ after) == 1
        assert (len(after) < len(before)) == (kind == "clique")
        assert nx.is_connected(to_graph(changed))
