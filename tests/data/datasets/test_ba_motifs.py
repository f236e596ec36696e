"""ba-2motifs and ba-multishapes: the definitions of their papers, recomputed with networkx."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch

from graphcaps.data.datasets.ba_motifs import (
    MULTISHAPES_KINDS,
    TWO_MOTIFS_KINDS,
    ba_2motifs,
    ba_multishapes,
)
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

SHAPES = {
    "house": nx.house_graph(),
    "cycle": nx.cycle_graph(5),
    "wheel": nx.wheel_graph(6),
    "grid": nx.grid_2d_graph(3, 3),
}
CHECKSUMS = {
    "ba-2motifs": "002c8c73142f70638299a332f246c9351d90418a8e81e09675e40a6ee244c1e1",
    "ba-multishapes": "2913be9c3e0eedb805e46264c2515cb50fb67556dfbef5aea5b840f74bf5dfff",
}


@pytest.fixture(scope="module")
def two_motifs() -> GraphStore:
    return ba_2motifs()


@pytest.fixture(scope="module")
def multishapes() -> GraphStore:
    return ba_multishapes()


def to_graphs(store: GraphStore) -> list[nx.Graph]:
    """networkx graphs with the part and the kind of their nodes."""
    ptr, around = store.edge_ptr.tolist(), store.neighbours.tolist()
    part, kind = store.truth["part"].tolist(), store.truth["kind"].tolist()
    graphs = []
    for first, end in pairwise(store.node_ptr.tolist()):
        graph = nx.Graph()
        for row in range(first, end):
            graph.add_node(row - first, part=part[row], kind=kind[row])
            graph.add_edges_from((row - first, other) for other in around[ptr[row] : ptr[row + 1]])
        graphs.append(graph)
    return graphs


def planted_motifs(graph: nx.Graph, kinds: tuple[str, ...]) -> list[str]:
    """Names of the motifs of a graph, after a check of their shapes and of how they are attached."""
    parts = nx.get_node_attributes(graph, "part")
    assert nx.is_connected(graph)
    base = graph.subgraph(v for v, part in parts.items() if part == -1)
    assert nx.is_tree(base)
    assert all(graph.nodes[v]["kind"] == 0 for v in base)
    names = []
    for part in range(max(parts.values()) + 1):
        nodes = [v for v in graph if parts[v] == part]
        (kind,) = {graph.nodes[v]["kind"] for v in nodes}
        assert nx.is_isomorphic(graph.subgraph(nodes), SHAPES[kinds[kind]])
        names.append(kinds[kind])
    quotient = nx.Graph((parts[a], parts[b]) for a, b in graph.edges if parts[a] != parts[b])
    links = sum(parts[a] != parts[b] for a, b in graph.edges)
    assert links == len(names) == quotient.number_of_edges()  # one edge for each motif
    return names


def digest(store: GraphStore) -> str:
    columns = [store.node_ptr, store.edge_ptr, store.neighbours, store.y, *store.truth.values()]
    return hashlib.sha256(b"".join(c.numpy().astype("<i8").tobytes() for c in columns)).hexdigest()


def test_graphs_are_frozen(two_motifs, multishapes):
    for store in (two_motifs, multishapes):
        assert digest(store) == CHECKSUMS[store.name], "results are quoted for these arrays"


def test_two_motifs_are_a_tree_with_a_house_or_a_cycle(two_motifs):
    assert (len(two_motifs), two_motifs.class_names) == (1000, ("house", "cycle"))
    assert two_motifs.y.bincount().tolist() == [500, 500]
    assert set(two_motifs.sizes.tolist()) == {25}
    for graph, label in zip(to_graphs(two_motifs), two_motifs.y.tolist(), strict=True):
        assert planted_motifs(graph, TWO_MOTIFS_KINDS) == [two_motifs.class_names[label]]


def test_multishapes_have_two_different_motifs_or_another_number(multishapes):
    assert (len(multishapes), multishapes.class_names) == (1000, ("other", "two"))
    assert multishapes.y.bincount().tolist() == [500, 500]
    assert set(multishapes.sizes.tolist()) == {40}
    counts: dict[int, Counter] = {0: Counter(), 1: Counter()}
    for graph, label in zip(to_graphs(multishapes), multishapes.y.tolist(), strict=True):
        motifs = planted_motifs(graph, MULTISHAPES_KINDS)
        assert len(set(motifs)) == len(motifs)
        assert (len(motifs) == 2) == (label == 1)
        counts[label][tuple(sorted(motifs))] += 1
    assert all(130 < count < 205 for count in counts[1].values())
    assert len(counts[1]) == 3
    expected = {(): 300, ("house",): 50, ("wheel",): 50, ("grid",): 50, ("grid", "house", "wheel"): 50}
    assert counts[0].keys() == expected.keys()
    assert all(abs(counts[0][key] - count) < 4 * np.sqrt(count) for key, count in expected.items())


def test_new_nodes_prefer_nodes_of_high_degree(multishapes):
    # In a random recursive tree of 40 nodes the largest degree is about 6, in a Barabási–Albert tree about 11.
    none = [
        graph for graph in to_graphs(multishapes) if max(nx.get_node_attributes(graph, "part").values()) < 0
    ]
    largest = [max(degree for _, degree in graph.degree) for graph in none]
    reference = [max(d for _, d in nx.barabasi_albert_graph(40, 1, seed=seed).degree) for seed in range(300)]
    assert abs(np.mean(largest) - np.mean(reference)) < 1


def test_nothing_but_structure_is_given_and_reason_is_the_motif(two_motifs, multishapes):
    for store in (two_motifs, multishapes):
        assert store.node_labels is None
        assert store.node_attributes is None
        assert torch.equal(store.truth["reason"], store.truth["part"])
        first = store.truth["kind"][store.node_ptr[:-1]]  # the order of nodes carries no information
        share = (store.truth["kind"] == 0).double().mean()
        assert abs(float((first == 0).double().mean() - share)) < 0.06


@pytest.mark.parametrize("generate", [ba_2motifs, ba_multishapes])
def test_seeds_and_numbers_of_graphs(generate):
    small, large, other = generate(num_graphs=20), generate(num_graphs=40), generate(seed=1, num_graphs=20)
    assert digest(small) == digest(large[list(range(20))])
    assert digest(small) != digest(other)
    with pytest.raises(ArgumentError, match="'seed' must be 0 or more, got -1"):
        generate(seed=-1)
    for wrong in (0, 7):
        with pytest.raises(ArgumentError, match=f"'num_graphs' must be 2, 4, 6 .*, got {wrong}"):
            generate(num_graphs=wrong)
