"""Edited copies of a graph, against networkx."""

from __future__ import annotations

import networkx as nx
import pytest
import torch

from graphcaps.data.convert.networkx_graphs import to_networkx
from graphcaps.explanation.graph_edits import Edit, edit_graph
from tests.small_models import bonded


@pytest.mark.parametrize("kind", ["removal", "replacement"])
def test_edits_equal_those_of_networkx(kind: str) -> None:
    own = bonded()[4]
    sets = [(0,), (1, 2, 5), tuple(range(own.num_nodes - 1))]
    edited = edit_graph(own, [Edit(kind, nodes) for nodes in sets])  # type: ignore[arg-type]
    for graph, nodes in enumerate(sets):
        expected = to_networkx(own, 0)
        outside = {other for node in nodes for other in expected[node]} - set(nodes)
        expected.remove_nodes_from(nodes)
        if kind == "replacement":
            expected.add_node("new")
            expected.add_edges_from(("new", other) for other in outside)
        expected = nx.convert_node_labels_to_integers(expected)
        found = to_networkx(edited, graph)
        assert set(found.nodes) == set(expected.nodes)
        assert set(map(frozenset, found.edges)) == set(map(frozenset, expected.edges))


def test_new_nodes_have_the_most_frequent_labels_and_mean_attributes() -> None:
    own = bonded()[4]
    assert own.node_labels is not None
    assert own.node_attributes is not None
    assert own.edge_labels is not None
    edited = edit_graph(own, [Edit("replacement", (0, 1))])
    values, counts = torch.unique(own.node_labels, dim=0, return_counts=True)
    assert edited.node_labels is not None
    assert torch.equal(edited.node_labels[-1], values[counts.argmax()])
    assert torch.equal(edited.node_labels[:-1], own.node_labels[2:])
    assert edited.node_attributes is not None
    assert torch.allclose(edited.node_attributes[-1], own.node_attributes.mean(0))
    values, counts = torch.unique(own.edge_labels, dim=0, return_counts=True)
    new = edited.num_nodes - 1
    rows = edited.edge_labels[edited.edge_ptr[new] : edited.edge_ptr[new + 1]]  # type: ignore[index]
    assert len(rows)
    assert (rows == values[counts.argmax()]).all()
    named = edit_graph(own, [Edit("replacement", (0, 1))], node_label=3, edge_label=2)
    assert int(named.node_labels[-1, 0]) == 3  # type: ignore[index]
    assert int(named.edge_labels[named.edge_ptr[new], 0]) == 2  # type: ignore[index]
