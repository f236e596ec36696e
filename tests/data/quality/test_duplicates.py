"""Copies of graphs: found, confirmed, counted across folds, and kept together; against plain networkx."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcaps.data import stratified_folds
from graphcaps.data.convert.networkx_graphs import from_networkx, to_networkx
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.quality.duplicates import CanonicalForms, Duplicates, find_duplicates, fold_leakage
from graphcaps.data.quality.quality_report import quality_report
from graphcaps.data.quality.weisfeiler_lehman import wl_indistinguishable
from graphcaps.data.store import GraphStore


def turned(graph: nx.Graph, seed: int) -> nx.Graph:
    """The same graph with its nodes in another order."""
    order = np.random.default_rng(seed).permutation(graph.number_of_nodes()).tolist()
    other = nx.empty_graph(graph.number_of_nodes())
    for node, entry in graph.nodes(data=True):
        other.nodes[order[node]].update(entry)
    other.add_edges_from((order[a], order[b], entry) for a, b, entry in graph.edges(data=True))
    return other


def listed(found: Duplicates) -> list[list[int]]:
    return [group.tolist() for group in found.groups]


# Graphs on which a search that never goes back needs its rules: twins, cliques, rings, and strongly regular ones.
SHAPES = {
    "star": nx.star_graph(30),
    "clique": nx.complete_graph(25),
    "two cliques at a node": nx.compose(
        nx.complete_graph(8), nx.relabel_nodes(nx.complete_graph(8), lambda k: k + 7)
    ),
    "ring": nx.cycle_graph(17),
    "three rings": nx.disjoint_union_all([nx.cycle_graph(5)] * 3),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 5)),
    "tree": nx.balanced_tree(3, 3),
    "Petersen": nx.petersen_graph(),
    "cube": nx.convert_node_labels_to_integers(nx.hypercube_graph(4)),
    "rook": nx.convert_node_labels_to_integers(nx.line_graph(nx.complete_bipartite_graph(4, 4))),
    "bare": nx.empty_graph(4),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_turned_graph_is_a_copy(name):
    graphs = [turned(SHAPES[name], seed) for seed in range(4)]
    store = from_networkx([*graphs, nx.path_graph(4)])
    assert listed(find_duplicates(store)) == [[0, 1, 2, 3]]
    assert not find_duplicates(store).undecided


@pytest.mark.parametrize("name", ["star", "clique", "tree", "two cliques at a node", "ring", "grid"])
def test_forms_alone_confirm_the_usual_shapes(name):
    store = from_networkx([turned(SHAPES[name], seed) for seed in range(3)])
    forms = CanonicalForms(store)
    assert len({forms.of(graph) for graph in range(3)}) == 1


def shrikhande() -> nx.Graph:
    """Looks like the rook's graph to colour refinement, and is another."""
    graph = nx.empty_graph(16)
    for i in range(4):
        for j in range(4):
            for di, dj in ((0, 1), (1, 0), (1, 1)):
                graph.add_edge(4 * i + j, 4 * ((i + di) % 4) + (j + dj) % 4)
    return graph


def test_look_alikes_that_are_no_copies():
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    graphs = [nx.cycle_graph(6), triangles, SHAPES["rook"], shrikhande(), turned(triangles, 1)]
    store = from_networkx(graphs)
    assert [group.tolist() for group in wl_indistinguishable(store)] == [[0, 1, 4], [2, 3]]
    found = find_duplicates(store)
    assert (listed(found), found.undecided) == ([[1, 4]], ())


def test_what_is_not_decided_is_told_and_stays_together():
    store = from_networkx([SHAPES["rook"], shrikhande(), nx.path_graph(3)], ["a", "b", "a"])
    found = find_duplicates(store, steps=5)
    assert (listed(found), [group.tolist() for group in found.undecided]) == ([], [[0, 1]])
    assert found.group_ids().tolist() == [0, 0, 1]
    assert found.group_ids(undecided=False).tolist() == [0, 1, 2]
    assert [group.tolist() for group in find_duplicates(store, max_nodes=15).undecided] == [[0, 1]]
    assert [group.tolist() for group in find_duplicates(store, seconds=-1).undecided] == [[0, 1]]
    assert "unsure-duplicates" in {one.kind for one in quality_report(store, seconds=-1).findings}


def test_labels_attributes_and_weights_count():
    base = nx.path_graph(3)
    store = from_networkx([base, turned(base, 0), turned(base, 1)])
    assert listed(find_duplicates(store)) == [[0, 1, 2]]
    labels = store.degree.unsqueeze(1)  # a function of structure: nothing changes
    assert listed(find_duplicates(replace(store, node_labels=labels))) == [[0, 1, 2]]
    labels = labels.clone()
    labels[0] = 9
    assert listed(find_duplicates(replace(store, node_labels=labels))) == [[1, 2]]
    assert listed(find_duplicates(replace(store, node_attributes=labels.float()))) == [[1, 2]]
    edges = torch.ones(store.neighbours.numel(), 1, dtype=torch.long)
    edges[:4] = 2
    assert listed(find_duplicates(replace(store, edge_labels=edges))) == [[1, 2]]
    assert listed(find_duplicates(replace(store, edge_labels=edges), edges=False)) == [[0, 1, 2]]
    assert listed(find_duplicates(replace(store, edge_weight=edges[:, 0].float()))) == [[1, 2]]
    assert listed(find_duplicates(replace(store, edge_attributes=edges.float()))) == [[1, 2]]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_groups_equal_those_of_networkx(seed):
    draw = np.random.default_rng(seed)
    graphs = []
    for _ in range(10):
        graph = nx.gnp_random_graph(int(draw.integers(1, 6)), 0.5, seed=int(draw.integers(10**6)))
        nx.set_node_attributes(graph, {node: int(draw.integers(2)) for node in graph}, "label")
        nx.set_edge_attributes(graph, {edge: int(draw.integers(2)) for edge in graph.edges}, "kind")
        graphs.append(graph)
    store = from_networkx(graphs, edge_label="kind")
    if store.edge_labels is None:
        return
    classes: list[list[int]] = []
    for index in range(len(store)):
        one = to_networkx(store, index)
        for known in classes:
            same = {"node_match": lambda a, b: a == b, "edge_match": lambda a, b: a == b}
            if nx.is_isomorphic(to_networkx(store, known[0]), one, **same):
                known.append(index)
                break
        else:
            classes.append([index])
    found = find_duplicates(store)
    assert listed(found) == [members for members in classes if len(members) > 1]
    ids = found.group_ids()
    assert all(len(set(ids[members].tolist())) == 1 for members in classes)
    assert len(set(ids.tolist())) == len(classes)


# ---------------------------------------------------------------------- folds
def many(copies: int = 20, others: int = 20) -> GraphStore:
    graphs = [turned(nx.wheel_graph(6), seed) for seed in range(copies)]
    graphs += [nx.path_graph(n) for n in range(2, others + 2)]
    return from_networkx(graphs, [index % 2 for index in range(len(graphs))])


def test_leakage_by_hand():
    store = many(copies=2, others=38)
    ids = find_duplicates(store).group_ids()
    folds = stratified_folds(store.y)
    together = int(folds.assignment[0]) == int(folds.assignment[1])
    expected = [0.0] * 10
    if not together:
        for graph in (0, 1):
            expected[int(folds.assignment[graph])] = 0.25  # one of four
    assert fold_leakage(folds, ids) == tuple(expected)
    assert sum(expected)  # else nothing was tested


# ---------------------------------------------------------------------- sentences
def test_what_is_said():
    shown = quality_report(many())
    said = {one.kind: one for one in shown.findings}
    assert "look-alikes" not in said  # they are the copies
    assert said["duplicates"].sentence == (
        "20 of 40 graphs have a copy, in 1 group (the same structure up to the order of nodes; confirmed)."
    )
    assert said["conflicting-duplicates"].sentence == (
        "1 group of copies with different classes: no method can tell more than 75.0% of the graphs right."
    )
    assert said["leakage"].severity == "warning"
    assert (shown.ceiling, shown.as_dict()["duplicates"]["graphs"]) == (0.75, 20)
    assert shown.as_dict()["leakage"]["mean"] == pytest.approx(np.mean(shown.leakage), abs=1e-4)
    bare = quality_report(replace(many(), y=None, class_names=()))
    assert (bare.ceiling, bare.leakage) == (None, None)


def test_mutag_s_look_alikes_differ_in_their_bonds(shared_data):
    store = load_dataset("MUTAG", shared_data)
    assert listed(find_duplicates(store)) == []
    assert find_duplicates(store, edges=False).num_duplicates == 24
    assert "look-alikes" in {one.kind for one in quality_report(store).findings}


def test_a_form_is_of_labels_too():
    """Colours have compared them before; a form is a proof by itself."""
    base = from_networkx([nx.path_graph(2), nx.path_graph(2)])
    nodes, edges = torch.tensor([[1], [1], [2], [2]]), torch.tensor([[1], [1], [2], [2]])
    for known in ({"node_labels": nodes}, {"node_attributes": nodes.float()}, {"edge_labels": edges}):
        forms = CanonicalForms(replace(base, **known))
        assert forms.of(0) != forms.of(1)
    assert CanonicalForms(base).of(0) == CanonicalForms(base).of(1)
    assert CanonicalForms(from_networkx([nx.cycle_graph(9)]), work=1).of(0) is None
