"""Descriptive statistics of a data set, counted by hand."""

from __future__ import annotations

import torch

from graphcaps.data.quality.summary import describe_edge_cleaning, summarize
from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import EdgeReport, clean_edges


def test_statistics_of_three_graphs():
    """A triangle with a tail and a loop at node 0, an edge listed twice, and a single node."""
    source = torch.tensor([0, 1, 1, 2, 2, 0, 2, 0, 4, 4])
    target = torch.tensor([1, 0, 2, 1, 0, 2, 3, 0, 5, 5])
    clean = clean_edges(source, target, 7, labels=torch.tensor([[1], [2], *[[0]] * 8]))
    store = GraphStore.from_clean_edges(
        "tiny",
        torch.tensor([0, 4, 6, 7]),
        clean,
        y=torch.tensor([0, 2, 0]),
        class_names=("a", "b", "c"),
        node_labels=torch.tensor([[1], [1], [4], [9], [1], [1], [1]]),
        node_attributes=torch.zeros(7, 3),
    )
    summary = summarize(store).as_dict()
    labels = summary.pop("node_labels")
    assert (labels["columns"], labels["distinct"], labels["min"], labels["max"]) == (1, (3,), (1,), (9,))
    assert summary.pop("edge_labels")["distinct"] == (2,)
    removed = summary.pop("edges_removed")
    assert removed.pop("what_was_done") == [
        "1 self-loop removed: the model adds its own.",
        "1 repeated row merged.",
        "2 edges listed in one direction only, read as undirected.",
        "1 edge listed with different labels: the first label is kept.",
    ]
    assert removed == {
        "rows": 10,
        "self_loops": 1,
        "repeated": 1,
        "one_way": 2,
        "conflicting_labels": 1,
        "edges": 5,
    }
    assert summary == {
        "name": "tiny",
        "graphs": 3,
        "classes": 3,
        "class_names": ("a", "b", "c"),
        "class_counts": (2, 0, 1),
        "avg_nodes": 2.33,
        "avg_edges": 2.0,  # 5 edges and the looped node
        "min_nodes": 1,
        "max_nodes": 4,
        "avg_degree": 1.43,
        "isolated_nodes": 1,
        "graphs_without_nodes": 0,
        "graphs_without_edges": 1,
        "node_attributes": 3,
        "edge_attributes": 0,
        "edge_weights": False,
        "featurizer": None,
    }


def test_edge_cleaning_in_words():
    assert describe_edge_cleaning(EdgeReport(rows=8, edges=4)) == (
        "nothing: every edge is listed once in each direction, without self-loops.",
    )
    twice = EdgeReport(rows=386_124, repeated=193_062, edges=96_531)
    assert describe_edge_cleaning(twice) == (
        "every row of the edge file appears twice: 193,062 repeated rows merged.",
    )
