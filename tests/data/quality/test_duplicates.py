"""Duplicates: groups against plain networkx, canonical forms, and leakage between folds."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphcaps.data import stratified_folds
from graphcaps.data.convert.networkx_graphs import from_networkx, to_networkx
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.quality.duplicates import CanonicalForms, Duplicates, find_duplicates, fold_leakage
from graphcaps.data.quality.quality_report import quality_report
from graphcaps.data.quality.weisfeiler_lehman import wl_indistinguishable
from graphcaps.data.store import GraphStore


def permuted(graph: nx.Graph, seed: int) -> nx.Graph:
    """The same graph with its nodes in another order."""
    order = np.random.default_rng(seed).permutation(graph.number_of_nodes()).tolist()
    other = nx.empty_graph(graph.number_of_nodes())
    for node, entry in graph.nodes(data=True):
        other.nodes[order[node]].update(entry)
    other.add_edges_from((order[a], order[b], entry) for a, b, entry in graph.edges(data=True))
    return other


def as_lists(duplicates: Duplicates) -> list[list[int]]:
    return [group.tolist() for group in duplicates.groups]


# Graphs that are hard for a search without backtracking: equivalent nodes, cliques, rings, strongly regular graphs.
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
def test_a_permuted_graph_is_a_duplicate(name):
    graphs = [permuted(SHAPES[name], seed) for seed in range(4)]
    store = from_networkx([*graphs, nx.path_graph(4)])
    assert as_lists(find_duplicates(store)) == [[0, 1, 2, 3]]
    assert not find_duplicates(store).undecided


@pytest.mark.parametrize("name", ["star", "clique", "tree", "two cliques at a node", "ring", "grid"])
def test_canonical_forms_alone_confirm_the_usual_shapes(name):
    store = from_networkx([permuted(SHAPES[name], seed) for seed in range(3)])
    forms = CanonicalForms(store)
    assert len({forms.digest(graph) for graph in range(3)}) == 1


def shrikhande() -> nx.Graph:
    """WL-indistinguishable from the rook's graph, but not isomorphic to it."""
    graph = nx.empty_graph(16)
    for i in range(4):
        for j in range(4):
            for di, dj in ((0, 1), (1, 0), (1, 1)):
                graph.add_edge(4 * i + j, 4 * ((i + di) % 4) + (j + dj) % 4)
    return graph


def test_indistinguishable_graphs_that_are_not_isomorphic():
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    graphs = [nx.cycle_graph(6), triangles, SHAPES["rook"], shrikhande(), permuted(triangles, 1)]
    store = from_networkx(graphs)
    assert [group.tolist() for group in wl_indistinguishable(store)] == [[0, 1, 4], [2, 3]]
    duplicates = find_duplicates(store)
    assert (as_lists(duplicates), duplicates.undecided) == ([[1, 4]], ())


def test_undecided_graphs_are_reported_and_stay_together():
    store = from_networkx([SHAPES["rook"], shrikhande(), nx.path_graph(3)], ["a", "b", "a"])
    duplicates = find_duplicates(store, steps=5)
    undecided = [group.tolist() for group in duplicates.undecided]
    assert (as_lists(duplicates), undecided) == ([], [[0, 1]])
    assert duplicates.group_ids().tolist() == [0, 0, 1]
    assert duplicates.group_ids(undecided=False).tolist() == [0, 1, 2]
    assert [group.tolist() for group in find_duplicates(store, max_nodes=15).undecided] == [[0, 1]]
    assert [group.tolist() for group in find_duplicates(store, seconds=-1).undecided] == [[0, 1]]
    assert "unsure-duplicates" in {one.kind for one in quality_report(store, seconds=-1).findings}


def test_labels_attributes_and_weights_count():
    base = nx.path_graph(3)
    store = from_networkx([base, permuted(base, 0), permuted(base, 1)])
    assert as_lists(find_duplicates(store)) == [[0, 1, 2]]
    labels = store.degree.unsqueeze(1)  # a function of the structure
    assert as_lists(find_duplicates(replace(store, node_labels=labels))) == [[0, 1, 2]]
    labels = labels.clone()
    labels[0] = 9
    assert as_lists(find_duplicates(replace(store, node_labels=labels))) == [[1, 2]]
    assert as_lists(find_duplicates(replace(store, node_attributes=labels.float()))) == [[1, 2]]
    edges = torch.ones(store.neighbours.numel(), 1, dtype=torch.long)
    edges[:4] = 2
    assert as_lists(find_duplicates(replace(store, edge_labels=edges))) == [[1, 2]]
    assert as_lists(find_duplicates(replace(store, edge_labels=edges), edges=False)) == [[0, 1, 2]]
    assert as_lists(find_duplicates(replace(store, edge_weight=edges[:, 0].float()))) == [[1, 2]]
    assert as_lists(find_duplicates(replace(store, edge_attributes=edges.float()))) == [[1, 2]]


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
        for members in classes:
            same = {"node_match": lambda a, b: a == b, "edge_match": lambda a, b: a == b}
            if nx.is_isomorphic(to_networkx(store, members[0]), one, **same):
                members.append(index)
                break
        else:
            classes.append([index])
    duplicates = find_duplicates(store)
    assert as_lists(duplicates) == [members for members in classes if len(members) > 1]
    ids = duplicates.group_ids()
    assert all(len(set(ids[members].tolist())) == 1 for members in classes)
    assert len(set(ids.tolist())) == len(classes)


# ---------------------------------------------------------------------- folds
def many(copies: int = 20, others: int = 20) -> GraphStore:
    graphs = [permuted(nx.wheel_graph(6), seed) for seed in range(copies)]
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
    assert sum(expected)  # the two are in different folds


# ---------------------------------------------------------------------- in the quality report
def test_findings_about_duplicates():
    report = quality_report(many())
    findings = {finding.kind: finding for finding in report.findings}
    assert "look-alikes" not in findings  # the same groups as the duplicates
    assert findings["duplicates"].sentence == (
        "20 of 40 graphs have duplicates, in 1 group (isomorphic graphs with equal structure; confirmed)."
    )
    assert findings["conflicting-duplicates"].sentence == (
        "1 group of duplicates with different classes: no classifier has an accuracy above 75.0%."
    )
    assert findings["leakage"].severity == "warning"
    assert (report.ceiling, report.as_dict()["duplicates"]["graphs"]) == (0.75, 20)
    assert report.as_dict()["leakage"]["mean"] == pytest.approx(np.mean(report.leakage), abs=1e-4)
    unlabelled = quality_report(replace(many(), y=None, class_names=()))
    assert (unlabelled.ceiling, unlabelled.leakage) == (None, None)


def test_indistinguishable_graphs_of_mutag_differ_in_their_bonds(shared_data):
    store = load_dataset("MUTAG", shared_data)
    assert as_lists(find_duplicates(store)) == []
    assert find_duplicates(store, edges=False).num_duplicates == 24
    assert "look-alikes" in {one.kind for one in quality_report(store).findings}


def test_canonical_forms_include_labels():
    """Candidates already agree in their colours, but equal forms must be a proof by themselves."""
    base = from_networkx([nx.path_graph(2), nx.path_graph(2)])
    nodes, edges = torch.tensor([[1], [1], [2], [2]]), torch.tensor([[1], [1], [2], [2]])
    for columns in ({"node_labels": nodes}, {"node_attributes": nodes.float()}, {"edge_labels": edges}):
        forms = CanonicalForms(replace(base, **columns))
        assert forms.digest(0) != forms.digest(1)
    assert CanonicalForms(base).digest(0) == CanonicalForms(base).digest(1)
    assert CanonicalForms(from_networkx([nx.cycle_graph(9)]), work=1).digest(0) is None
