"""Colour refinement against plain Python and networkx."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data.convert.networkx_graphs import from_networkx, to_networkx
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.quality import weisfeiler_lehman
from graphcaps.data.quality.weisfeiler_lehman import wl_graph_colours, wl_indistinguishable
from graphcaps.data.store import GraphStore


def store_of(*graphs: nx.Graph) -> GraphStore:
    return from_networkx(graphs)


def test_a_hexagon_is_indistinguishable_from_two_triangles():
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    assert len(wl_indistinguishable(store_of(nx.cycle_graph(6), triangles))) == 1
    assert not wl_indistinguishable(store_of(nx.cycle_graph(6), nx.cycle_graph(5)))
    assert not wl_indistinguishable(store_of(nx.cycle_graph(6), nx.path_graph(6)))


def test_minus_zero_equals_zero_and_empty_stores_have_no_groups():
    store = store_of(nx.path_graph(2), nx.path_graph(2))
    attributes = torch.tensor([[0.0], [1.0], [-0.0], [1.0]])
    assert len(wl_indistinguishable(replace(store, node_attributes=attributes))) == 1
    assert not wl_indistinguishable(store[[]])
    assert not wl_indistinguishable(store_of(nx.empty_graph(3), nx.empty_graph(2)))


def naive_groups(store: GraphStore) -> list[list[int]]:
    """Colour refinement of each graph with nested tuples, n rounds."""
    groups: dict[object, list[int]] = {}
    for index in range(len(store)):
        one = store[index]
        rows = [one.neighbours[one.edge_ptr[i] : one.edge_ptr[i + 1]].tolist() for i in range(one.num_nodes)]
        labels = one.node_labels.tolist() if one.node_labels is not None else [0] * one.num_nodes
        colours: list[object] = [str(label) for label in labels]
        for _ in range(int(store.sizes.max())):
            colours = [
                str((colours[i], sorted(map(str, (colours[j] for j in row))))) for i, row in enumerate(rows)
            ]
            # short colours, equal in every graph
            colours = [str(hash(colour)) for colour in colours]
        groups.setdefault(tuple(sorted(map(str, colours))), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


@given(st.data())
def test_groups_equal_those_of_plain_python(data):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=12))
    graphs = []
    for n in sizes:
        pairs = [(a, b) for a in range(n) for b in range(a)]
        graph = nx.empty_graph(n)
        graph.add_edges_from(data.draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else [])
        graphs.append(graph)
    store = store_of(*graphs)
    if data.draw(st.booleans()):
        labels = data.draw(st.lists(st.integers(0, 1), min_size=sum(sizes), max_size=sum(sizes)))
        store = replace(store, node_labels=torch.tensor(labels).reshape(-1, 1))
    assert [group.tolist() for group in wl_indistinguishable(store)] == naive_groups(store)


def test_node_order_and_chunk_size_do_not_matter(monkeypatch):
    store = load_dataset("planted-parts")[range(30)]
    colours = wl_graph_colours(store)
    monkeypatch.setattr(weisfeiler_lehman, "_CHUNK_ENTRIES", 5)
    assert (wl_graph_colours(store) == colours).all()
    generator = torch.Generator().manual_seed(0)
    graphs, permuted = [nx.Graph(to_networkx(store, index).edges) for index in range(4)], []
    for graph in graphs:
        order = torch.randperm(graph.number_of_nodes(), generator=generator).tolist()
        other = nx.empty_graph(graph.number_of_nodes())
        other.add_edges_from((order[a], order[b]) for a, b in graph.edges)
        permuted.append(other)
    both = wl_graph_colours(store_of(*graphs, *permuted))
    assert (both[:4] == both[4:]).all()
    assert len(set(both.tolist())) == 4


def test_indistinguishable_graphs_of_mutag_are_isomorphic(shared_data):
    store = load_dataset("MUTAG", shared_data)
    groups = wl_indistinguishable(store)
    assert (len(groups), sum(map(len, groups))) == (11, 24)
    for group in groups:
        first, *others = (to_networkx(store, int(index)) for index in group)
        for other in others:
            assert nx.is_isomorphic(first, other, node_match=lambda a, b: a == b)


def test_node_colours_are_functions_of_the_labels_around_a_node():
    store = load_dataset("planted-parts")[:12]
    store = replace(store, node_labels=(torch.arange(store.num_nodes) % 3).reshape(-1, 1))
    colours = weisfeiler_lehman.wl_node_colours(store, 3)
    assert len(colours) == 4
    first = int(store.node_ptr[5])
    alone = weisfeiler_lehman.wl_node_colours(store[5], 3)
    for together, single in zip(colours, alone, strict=True):
        assert (together[first : first + len(single)] == single).all()
    assert len(set(colours[0].tolist())) == len(torch.unique(store.node_labels, dim=0))
    attributes = torch.rand(store.num_nodes, 1)
    again = weisfeiler_lehman.wl_node_colours(replace(store, node_attributes=attributes), 3)
    assert all((one == other).all() for one, other in zip(colours, again, strict=True))
