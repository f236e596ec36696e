"""Edited copies of a graph: without some nodes, or with one node in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import clean_edges

__all__ = ["Edit", "EditKind", "edit_graph"]

EditKind = Literal["removal", "replacement"]


@dataclass(frozen=True)
class Edit:
    """A change of one graph.

    Args:
        kind (str): ``"removal"``: the nodes and their edges are removed. ``"replacement"``: one node takes their
            place, connected to everything that they were connected to.
        nodes (tuple): The nodes, ascending, counted from 0.
    """

    kind: EditKind
    nodes: tuple[int, ...]


def edit_graph(
    own: GraphStore,
    edits: Sequence[Edit],
    *,
    node_label: int | None = None,
    edge_label: int | None = None,
) -> GraphStore:
    """Copies of a graph, one for each edit.

    A new node has the most frequent labels of the graph and the mean of its attributes, a new edge likewise.

    Args:
        own (GraphStore): A store of one graph, on the CPU.
        edits (sequence): At least one edit; none may remove all nodes.
        node_label, edge_label (int, optional): First label of new nodes and edges in place of the most frequent one.
    """
    n = own.num_nodes
    source = np.repeat(np.arange(n), np.diff(own.edge_ptr.numpy()))
    target = own.neighbours.numpy().astype(np.int64)
    common_labels = _with_first(_most_frequent(own.node_labels), node_label)
    mean_attributes = None if own.node_attributes is None else own.node_attributes.mean(0, keepdim=True)
    edge_rows = _new_edge(own, edge_label)
    sizes, nodes, ends, entries = [], [], [], []
    first = 0
    for edit in edits:
        removed = np.zeros(n, dtype=bool)
        removed[list(edit.nodes)] = True
        kept = np.flatnonzero(~removed)
        place = np.full(n, len(kept))  # of the new node
        place[kept] = np.arange(len(kept))
        inside = removed[source] & removed[target]
        if edit.kind == "removal":
            inside |= removed[source] | removed[target]
        outside = np.flatnonzero(~inside)
        touched = removed[source[outside]] | removed[target[outside]]
        ends.append(np.stack([place[source[outside]], place[target[outside]]]) + first)
        entries.append(np.where(touched, len(source), outside))  # the last row is the new edge
        added = [n] if edit.kind == "replacement" else []
        nodes.append(np.concatenate([kept, np.array(added, dtype=np.int64)]))
        sizes.append(len(nodes[-1]))
        first += sizes[-1]
    rows, picked = torch.from_numpy(np.concatenate(nodes)), torch.from_numpy(np.concatenate(entries))
    sources, targets = torch.from_numpy(np.concatenate(ends, 1))

    def pick(values: Tensor | None, new: Tensor | None, index: Tensor) -> Tensor | None:
        return None if values is None or new is None else torch.cat([values, new])[index]

    ptr = torch.nn.functional.pad(torch.tensor(sizes).cumsum(0), (1, 0))
    edges = clean_edges(
        sources,
        targets,
        first,
        weight=pick(own.edge_weight, edge_rows["edge_weight"], picked),
        labels=pick(own.edge_labels, edge_rows["edge_labels"], picked),
        attributes=pick(own.edge_attributes, edge_rows["edge_attributes"], picked),
    )
    return GraphStore.from_clean_edges(
        own.name,
        ptr,
        replace(edges, report=own.report),
        class_names=own.class_names,
        node_labels=pick(own.node_labels, common_labels, rows),
        node_attributes=pick(own.node_attributes, mean_attributes, rows),
        label_names=own.label_names,
        featurizer=own.featurizer,
        fragments=own.fragments,
        source_columns=own.source_columns,
    )


def _most_frequent(rows: Tensor | None) -> Tensor | None:
    """The row that occurs most often, ``[1, L]``, the first of several in the order of values; zeros without rows."""
    if rows is None:
        return None
    if not rows.size(0):
        return rows.new_zeros(1, rows.size(1))
    values, counts = torch.unique(rows, dim=0, return_counts=True)
    return values[counts.argmax()][None]


def _with_first(row: Tensor | None, value: int | None) -> Tensor | None:
    if row is None or value is None:
        return row
    return torch.cat([row.new_tensor([[value]]), row[:, 1:]], 1)


def _new_edge(own: GraphStore, label: int | None) -> dict[str, Tensor | None]:
    """Columns of a new edge, one row each."""

    def mean(values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        return values.mean(0, keepdim=True) if len(values) else values.new_ones(1, *values.shape[1:])

    return {
        "edge_labels": _with_first(_most_frequent(own.edge_labels), label),
        "edge_attributes": mean(own.edge_attributes),
        "edge_weight": mean(own.edge_weight),
    }
