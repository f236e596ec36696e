"""Graphs in another node order, which the checks of both contracts compare."""

from __future__ import annotations

from dataclasses import replace

import torch

from graphcaps.data.datasets.planted_parts import planted_parts
from graphcaps.testing.subject import reorder_nodes


def test_reordered_nodes_keep_their_edges_and_columns() -> None:
    store = planted_parts(num_graphs=6)
    store = replace(store, node_labels=torch.arange(store.num_nodes).unsqueeze(-1))
    other, old_of = reorder_nodes(store)
    assert not torch.equal(old_of, torch.arange(store.num_nodes))
    assert torch.equal(store.node_graph[old_of], store.node_graph)
    assert torch.equal(other.degree, store.degree[old_of])
    assert store.node_labels is not None
    assert other.node_labels is not None
    assert torch.equal(other.node_labels, store.node_labels[old_of])
    former = []
    for graphs, index in ((store, torch.arange(store.num_nodes)), (other, old_of)):
        source = torch.arange(graphs.num_nodes).repeat_interleave(graphs.degree)
        target = graphs.neighbours.long() + graphs.node_ptr[graphs.node_graph[source]]
        former.append(sorted(zip(index[source].tolist(), index[target].tolist(), strict=True)))
    assert former[0] == former[1]
