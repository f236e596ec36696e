"""What the doctor finds, each thing planted in a small store; look-alikes against plain Python."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.quality import weisfeiler_lehman
from graphcaps.data.quality.quality_report import Finding, basic_findings
from graphcaps.data.quality.weisfeiler_lehman import wl_graph_colours, wl_indistinguishable
from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import EdgeReport, clean_edges


def found(store: GraphStore) -> dict[str, Finding]:
    findings = basic_findings(store)
    kinds = [finding.kind for finding in findings]
    assert len(set(kinds)) == len(kinds)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, reverse=True)  # warnings first
    for finding in findings:
        assert finding.sentence.endswith(".")
        assert finding.count > 0
    return dict(zip(kinds, findings, strict=True))


def sound(graphs: int = 40) -> GraphStore:
    """Graphs about which there is nothing to say but the share of the largest class."""
    y = [graph % 2 for graph in range(graphs)]
    store = joined(*(nx.path_graph(n) for n in range(5, 5 + graphs)), y=y)
    assert set(found(store)) == {"balance"}
    return store


def joined(*graphs: nx.Graph, y: list[int] | None = None) -> GraphStore:
    sizes = [graph.number_of_nodes() for graph in graphs]
    first = np.cumsum([0, *sizes])
    ends = [(a + s, b + s) for graph, s in zip(graphs, first, strict=False) for a, b in graph.edges]
    pairs = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T
    clean = clean_edges(torch.cat([pairs[0], pairs[1]]), torch.cat([pairs[1], pairs[0]]), sum(sizes))
    names = () if y is None else tuple("abc"[: max(y) + 1])
    labels = None if y is None else torch.tensor(y)
    return GraphStore.from_clean_edges("T", torch.tensor(first), clean, y=labels, class_names=names)


# ---------------------------------------------------------------------- classes
def test_the_share_of_the_largest_class():
    finding = found(sound())["balance"]
    assert (finding.severity, finding.count) == ("note", 20)
    assert finding.sentence == "Always answering the largest class, a, is right for 50.0% of the graphs."
    y = torch.tensor([1] * 32 + [0] * 8)
    lopsided = found(replace(sound(), y=y, class_names=("rare", "common")))
    assert lopsided["balance"].severity == "warning"
    assert "common, is right for 80.0% of the graphs: accuracy alone" in lopsided["balance"].sentence
    assert lopsided["small-classes"].graphs == (32, 33, 34, 35, 36, 37, 38, 39)


def test_small_and_empty_classes():
    y = torch.tensor([0] * 18 + [1] * 9 + [2] * 13)
    store = replace(sound(), y=y, class_names=("a", "b", "c", "d"))
    small, empty = found(store)["small-classes"], found(store)["empty-classes"]
    assert (small.severity, small.count) == ("warning", 1)
    assert small.sentence == "1 class with fewer than 10 graphs, too few for 10 folds: b (9)."
    assert empty.sentence == "1 class without a graph: d."
    assert "small-classes" not in found(replace(store, y=torch.tensor([0] * 20 + [1] * 10 + [2] * 10)))


def test_no_class_and_one_class():
    assert found(replace(sound(), y=None))["no-classes"].severity == "note"
    one = found(replace(sound(), y=torch.zeros(40, dtype=torch.long)))
    assert one["one-class"].severity == "warning"
    assert "balance" not in one


# ---------------------------------------------------------------------- nodes and edges
def test_graphs_without_edges_and_isolated_nodes():
    bare, island = nx.empty_graph(3), nx.path_graph(4)
    island.add_nodes_from([4, 5])
    paths = [nx.path_graph(n) for n in range(10, 60)]
    findings = found(joined(*paths, bare, island))
    assert findings["no-edges"].sentence.startswith("1 graph of 52 without edges")
    assert (findings["no-edges"].severity, findings["no-edges"].graphs) == ("note", (50,))
    assert findings["isolated-nodes"].sentence.startswith(
        "2 nodes without neighbours in 1 graph that has edges"
    )
    assert (findings["isolated-nodes"].count, findings["isolated-nodes"].graphs) == (2, (51,))
    assert found(joined(bare, *paths[:5]))["no-edges"].severity == "warning"


@pytest.mark.parametrize(
    ("report", "kind", "severity", "start"),
    [
        (
            EdgeReport(9, self_loops=3, edges=3),
            "self-loops",
            "note",
            "3 self-loops in the edge list, removed",
        ),
        (
            EdgeReport(9, repeated=1, edges=4),
            "repeated-edges",
            "note",
            "1 row of 9 in the edge list repeated",
        ),
        (
            EdgeReport(9, one_way=9, edges=9),
            "one-way-edges",
            "note",
            "9 edges of 9 listed in one direction only",
        ),
        (
            EdgeReport(9, one_way=1, edges=5),
            "one-way-edges",
            "warning",
            "1 edge of 5 listed in one direction only",
        ),
        (
            EdgeReport(9, conflicting_labels=2),
            "conflicting-edge-labels",
            "warning",
            "2 edges listed with different",
        ),
    ],
)
def test_the_edge_list(report, kind, severity, start):
    findings = found(replace(sound(), report=report))
    assert set(findings) == {"balance", kind}
    assert findings[kind].severity == severity
    assert findings[kind].sentence.startswith(start)


# ---------------------------------------------------------------------- columns
def test_attributes():
    store = sound()
    good = torch.linspace(-9999, 9999, store.num_nodes)
    table = torch.stack([good, torch.full_like(good, 2.5), good * 1e6, good.abs().sqrt()], 1)
    findings = found(replace(store, node_attributes=table))
    assert set(findings) == {"balance", "constant-attributes", "large-attributes"}
    constant, large = findings["constant-attributes"], findings["large-attributes"]
    assert constant.sentence == "1 of 4 node attribute columns with one value: attribute[1] is 2.5."
    assert large.sentence.endswith("best scaled before training: attribute[2] up to 1e+10.")
    assert (constant.count, large.count) == (1, 1)
    table[3, 0] = float("nan")
    table[store.num_nodes - 1, 3] = float("inf")
    findings = found(replace(store, node_attributes=table))
    assert findings["not-finite-attributes"].count == 2
    assert findings["not-finite-attributes"].graphs == (0, 39)


def test_labels():
    store = sound()
    table = torch.stack([torch.arange(store.num_nodes), torch.full((store.num_nodes,), 7)], 1)
    findings = found(replace(store, node_labels=table))
    assert findings["constant-labels"].sentence == "1 of 2 node label columns with one value: label[1] is 7."
    assert findings["constant-labels"].severity == "note"


# ---------------------------------------------------------------------- look-alikes
def test_copies_look_alike_and_their_classes_may_differ():
    wheel, other = nx.wheel_graph(6), nx.relabel_nodes(nx.wheel_graph(6), dict(enumerate([3, 1, 5, 0, 2, 4])))
    paths = [nx.path_graph(n) for n in range(2, 20)]
    store = joined(wheel, *paths, other, nx.path_graph(3), y=[0] * 10 + [1] * 11)
    assert [group.tolist() for group in wl_indistinguishable(store)] == [[0, 19], [2, 20]]
    findings = found(store)
    assert (findings["look-alikes"].count, findings["look-alikes"].graphs) == (4, (0, 2, 19, 20))
    assert findings["look-alikes"].severity == "warning"
    assert "(the same structure, as far as" in findings["look-alikes"].sentence
    assert findings["conflicting-classes"].count == 2
    assert "at most 90.5% of the graphs" in findings["conflicting-classes"].sentence  # 19 of 21
    assert "conflicting-classes" not in found(replace(store, y=None, class_names=()))
    labels = torch.arange(store.num_nodes).unsqueeze(-1)
    assert "look-alikes" not in found(replace(store, node_labels=labels))
    assert "look-alikes" not in found(replace(store, node_attributes=labels.float().reshape(-1, 1)))
    labelled = found(replace(store, node_labels=labels * 0, node_attributes=torch.zeros(store.num_nodes, 1)))
    assert "(the same structure, node labels and node attributes, as far" in labelled["look-alikes"].sentence


def test_what_refinement_cannot_tell_apart():
    """Said in the docstring: a hexagon looks like two triangles."""
    triangles = nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))
    assert len(wl_indistinguishable(joined(nx.cycle_graph(6), triangles))) == 1
    assert not wl_indistinguishable(joined(nx.cycle_graph(6), nx.cycle_graph(5)))
    assert not wl_indistinguishable(joined(nx.cycle_graph(6), nx.path_graph(6)))


def test_minus_zero_is_zero_and_no_graph_is_no_group():
    store = joined(nx.path_graph(2), nx.path_graph(2))
    attributes = torch.tensor([[0.0], [1.0], [-0.0], [1.0]])
    assert len(wl_indistinguishable(replace(store, node_attributes=attributes))) == 1
    assert not wl_indistinguishable(store[[]])
    assert not wl_indistinguishable(joined(nx.empty_graph(3), nx.empty_graph(2)))


def naive_groups(store: GraphStore) -> list[list[int]]:
    """Colour refinement of each graph with nested tuples, n rounds."""
    seen: dict[object, list[int]] = {}
    for index in range(len(store)):
        one = store[index]
        rows = [one.neighbours[one.edge_ptr[i] : one.edge_ptr[i + 1]].tolist() for i in range(one.num_nodes)]
        labels = one.node_labels.tolist() if one.node_labels is not None else [0] * one.num_nodes
        colours: list[object] = [str(label) for label in labels]
        for _ in range(int(store.sizes.max())):
            colours = [
                str((colours[i], sorted(map(str, (colours[j] for j in row))))) for i, row in enumerate(rows)
            ]
            # short names, the same in every graph
            colours = [str(hash(colour)) for colour in colours]
        seen.setdefault(tuple(sorted(map(str, colours))), []).append(index)
    return [group for group in seen.values() if len(group) > 1]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_groups_equal_those_of_plain_python(data):
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=12))
    graphs = []
    for n in sizes:
        pairs = [(a, b) for a in range(n) for b in range(a)]
        graph = nx.empty_graph(n)
        graph.add_edges_from(data.draw(st.lists(st.sampled_from(pairs), max_size=6)) if pairs else [])
        graphs.append(graph)
    store = joined(*graphs)
    if data.draw(st.booleans()):
        labels = data.draw(st.lists(st.integers(0, 1), min_size=sum(sizes), max_size=sum(sizes)))
        store = replace(store, node_labels=torch.tensor(labels).reshape(-1, 1))
    assert [group.tolist() for group in wl_indistinguishable(store)] == naive_groups(store)


def test_order_of_nodes_and_size_of_steps_do_not_matter(monkeypatch):
    store = load_dataset("planted-parts")[range(30)]
    colours = wl_graph_colours(store)
    monkeypatch.setattr(weisfeiler_lehman, "_ENTRIES", 5)
    assert (wl_graph_colours(store) == colours).all()
    generator = torch.Generator().manual_seed(0)
    graphs, turned = [nx.Graph(to_networkx(store, index).edges) for index in range(4)], []
    for graph in graphs:
        order = torch.randperm(graph.number_of_nodes(), generator=generator).tolist()
        other = nx.empty_graph(graph.number_of_nodes())
        other.add_edges_from((order[a], order[b]) for a, b in graph.edges)
        turned.append(other)
    both = wl_graph_colours(joined(*graphs, *turned))
    assert (both[:4] == both[4:]).all()
    assert len(set(both.tolist())) == 4


def test_mutag_look_alikes_are_copies(shared_data):
    store = load_dataset("MUTAG", shared_data)
    groups = wl_indistinguishable(store)
    assert (len(groups), sum(map(len, groups))) == (11, 24)
    for group in groups:
        first, *others = (to_networkx(store, int(index)) for index in group)
        for other in others:
            assert nx.is_isomorphic(first, other, node_match=lambda a, b: a == b)


@pytest.mark.parametrize(("name", "bound"), [("IMDB-BINARY", "88.6%"), ("IMDB-MULTI", "63.3%")])
def test_known_bounds(name, bound, shared_data):
    """Without node labels, copies with different classes bound what any classifier of structure reaches."""
    findings = found(load_dataset(name, shared_data))
    assert f"at most {bound} of the graphs" in findings["conflicting-classes"].sentence
    assert "repeated-edges" in findings
