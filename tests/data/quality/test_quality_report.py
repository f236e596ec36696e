"""Findings of the quality report, each on a small store made to have it."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch

from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.quality.quality_report import Finding, basic_findings
from graphcaps.data.quality.weisfeiler_lehman import wl_indistinguishable
from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import EdgeReport, clean_edges


def findings_of(store: GraphStore) -> dict[str, Finding]:
    findings = basic_findings(store)
    kinds = [finding.kind for finding in findings]
    assert len(set(kinds)) == len(kinds)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, reverse=True)  # warnings first
    for finding in findings:
        assert finding.sentence.endswith(".")
        assert finding.count > 0
    return dict(zip(kinds, findings, strict=True))


def unremarkable(graphs: int = 40) -> GraphStore:
    """Graphs without findings other than the class balance."""
    y = [graph % 2 for graph in range(graphs)]
    store = store_of(*(nx.path_graph(n) for n in range(5, 5 + graphs)), y=y)
    assert set(findings_of(store)) == {"balance"}
    return store


def store_of(*graphs: nx.Graph, y: list[int] | None = None) -> GraphStore:
    sizes = [graph.number_of_nodes() for graph in graphs]
    first = np.cumsum([0, *sizes])
    ends = [(a + s, b + s) for graph, s in zip(graphs, first, strict=False) for a, b in graph.edges]
    pairs = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T
    clean = clean_edges(torch.cat([pairs[0], pairs[1]]), torch.cat([pairs[1], pairs[0]]), sum(sizes))
    names = () if y is None else tuple("abc"[: max(y) + 1])
    labels = None if y is None else torch.tensor(y)
    return GraphStore.from_clean_edges("T", torch.tensor(first), clean, y=labels, class_names=names)


# ---------------------------------------------------------------------- classes
def test_class_balance():
    finding = findings_of(unremarkable())["balance"]
    assert (finding.severity, finding.count) == ("note", 20)
    assert finding.sentence == (
        "2 classes: a (20), b (20). Always predicting the largest class, a, has an accuracy of 50.0%."
    )
    y = torch.tensor([1] * 32 + [0] * 8)
    imbalanced = findings_of(replace(unremarkable(), y=y, class_names=("rare", "common")))
    assert imbalanced["balance"].severity == "warning"
    assert "common, has an accuracy of 80.0%: also look at" in imbalanced["balance"].sentence
    assert imbalanced["small-classes"].graphs == (32, 33, 34, 35, 36, 37, 38, 39)


def test_classes_that_differ_in_case_only():
    store = replace(unremarkable(), y=torch.arange(40) % 3, class_names=("Yes", "no", "yes"))
    finding = findings_of(store)["classes-alike"]
    assert (finding.severity, finding.count) == ("warning", 2)
    assert finding.sentence.endswith("written in several ways: Yes and yes.")
    assert "classes-alike" not in findings_of(unremarkable())


def test_numbers_beside_text_as_classes():
    store = replace(unremarkable(), y=torch.arange(40) % 3, class_names=("1", "no", "yes"))
    finding = findings_of(store)["numbers-beside-text"]
    assert (finding.severity, finding.count) == ("warning", 1)
    assert finding.sentence.endswith("written in several ways: 1 beside no, yes.")
    assert "numbers-beside-text" not in findings_of(unremarkable())


def test_a_measured_quantity_as_classes():
    store = unremarkable()
    fractions = tuple(f"{4 + index / 4}" for index in range(8))
    finding = findings_of(replace(store, y=torch.arange(len(store)) % 8, class_names=fractions))["quantities"]
    assert finding.severity == "warning"
    assert "models predict classes, not quantities" in finding.sentence
    assert "quantities" not in findings_of(store)


def test_small_and_empty_classes():
    y = torch.tensor([0] * 18 + [1] * 9 + [2] * 13)
    store = replace(unremarkable(), y=y, class_names=("a", "b", "c", "d"))
    small, empty = findings_of(store)["small-classes"], findings_of(store)["empty-classes"]
    assert (small.severity, small.count) == ("warning", 1)
    assert small.sentence == "1 class with fewer than 10 graphs, too few for 10 folds: b (9)."
    assert empty.sentence == "1 class without graphs: d."
    assert "small-classes" not in findings_of(replace(store, y=torch.tensor([0] * 20 + [1] * 10 + [2] * 10)))


def test_no_class_and_one_class():
    assert findings_of(replace(unremarkable(), y=None))["no-classes"].severity == "note"
    one = findings_of(replace(unremarkable(), y=torch.zeros(40, dtype=torch.long)))
    assert one["one-class"].severity == "warning"
    assert "balance" not in one


# ---------------------------------------------------------------------- nodes and edges
def test_graphs_without_edges_and_isolated_nodes():
    bare, island = nx.empty_graph(3), nx.path_graph(4)
    island.add_nodes_from([4, 5])
    paths = [nx.path_graph(n) for n in range(10, 60)]
    findings = findings_of(store_of(*paths, bare, island))
    assert findings["no-edges"].sentence.startswith("1 graph of 52 without edges")
    assert (findings["no-edges"].severity, findings["no-edges"].graphs) == ("note", (50,))
    assert findings["isolated-nodes"].sentence.startswith(
        "2 nodes without neighbours in 1 graph that has edges"
    )
    assert (findings["isolated-nodes"].count, findings["isolated-nodes"].graphs) == (2, (51,))
    assert findings_of(store_of(bare, *paths[:5]))["no-edges"].severity == "warning"


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
def test_edge_list(report, kind, severity, start):
    findings = findings_of(replace(unremarkable(), report=report))
    assert set(findings) == {"balance", kind}
    assert findings[kind].severity == severity
    assert findings[kind].sentence.startswith(start)


# ---------------------------------------------------------------------- columns
def test_attributes():
    store = unremarkable()
    good = torch.linspace(-9999, 9999, store.num_nodes)
    table = torch.stack([good, torch.full_like(good, 2.5), good * 1e6, good.abs().sqrt()], 1)
    findings = findings_of(replace(store, node_attributes=table))
    assert set(findings) == {"balance", "constant-attributes", "large-attributes"}
    constant, large = findings["constant-attributes"], findings["large-attributes"]
    assert constant.sentence == "1 of 4 node attribute columns with one value: attribute[1] is 2.5."
    assert large.sentence.endswith("best scaled before training: attribute[2] up to 1e+10.")
    assert (constant.count, large.count) == (1, 1)
    table[3, 0] = float("nan")
    table[store.num_nodes - 1, 3] = float("inf")
    findings = findings_of(replace(store, node_attributes=table))
    assert findings["not-finite-attributes"].count == 2
    assert findings["not-finite-attributes"].graphs == (0, 39)


def test_labels():
    store = unremarkable()
    table = torch.stack([torch.arange(store.num_nodes), torch.full((store.num_nodes,), 7)], 1)
    findings = findings_of(replace(store, node_labels=table))
    assert findings["constant-labels"].sentence == "1 of 2 node label columns with one value: label[1] is 7."
    assert findings["constant-labels"].severity == "note"


# ---------------------------------------------------------------------- WL-indistinguishable graphs
def test_indistinguishable_graphs_with_different_classes():
    wheel, other = nx.wheel_graph(6), nx.relabel_nodes(nx.wheel_graph(6), dict(enumerate([3, 1, 5, 0, 2, 4])))
    paths = [nx.path_graph(n) for n in range(2, 20)]
    store = store_of(wheel, *paths, other, nx.path_graph(3), y=[0] * 10 + [1] * 11)
    assert [group.tolist() for group in wl_indistinguishable(store)] == [[0, 19], [2, 20]]
    findings = findings_of(store)
    assert (findings["look-alikes"].count, findings["look-alikes"].graphs) == (4, (0, 2, 19, 20))
    assert findings["look-alikes"].severity == "warning"
    assert "(equal structure): folds" in findings["look-alikes"].sentence
    assert findings["conflicting-classes"].count == 2
    assert "at most 90.5%." in findings["conflicting-classes"].sentence  # 19 of 21
    assert "conflicting-classes" not in findings_of(replace(store, y=None, class_names=()))
    labels = torch.arange(store.num_nodes).unsqueeze(-1)
    assert "look-alikes" not in findings_of(replace(store, node_labels=labels))
    assert "look-alikes" not in findings_of(replace(store, node_attributes=labels.float().reshape(-1, 1)))
    labelled = findings_of(
        replace(store, node_labels=labels * 0, node_attributes=torch.zeros(store.num_nodes, 1))
    )
    assert "(equal structure, node labels and node attributes): folds" in labelled["look-alikes"].sentence


@pytest.mark.parametrize(("name", "bound"), [("IMDB-BINARY", "88.6%"), ("IMDB-MULTI", "63.3%")])
def test_known_accuracy_bounds(name, bound, shared_data):
    """Without node labels, duplicates with different classes bound the accuracy of any classifier."""
    findings = findings_of(load_dataset(name, shared_data))
    assert f"at most {bound}." in findings["conflicting-classes"].sentence
    assert "repeated-edges" in findings
