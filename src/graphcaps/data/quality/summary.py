"""Descriptive statistics of a data set, and sentences on the cleaning of its edge list."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.ops.edges import EdgeReport

__all__ = [
    "LabelSummary",
    "StoreSummary",
    "describe_edge_cleaning",
    "describe_empty_graphs",
    "summarize",
]

_MAX_LISTED = 10  # graphs listed in a sentence


@dataclass(frozen=True)
class LabelSummary:
    """Number of label columns, and per column the number of distinct values, the smallest and the largest."""

    columns: int
    distinct: tuple[int, ...]
    min: tuple[int, ...]
    max: tuple[int, ...]


@dataclass(frozen=True)
class StoreSummary:
    """Descriptive statistics of a store.

    ``avg_edges`` describes the data set as distributed: distinct undirected edges, with a self-loop counted once.
    ``node_attributes`` and ``edge_attributes`` are numbers of columns. ``edge_weights`` is whether edges have
    weights. ``graphs_without_edges`` includes ``graphs_without_nodes``. ``report`` counts the changes to the edge list.
    ``featurizer`` is that of molecules read from SMILES.
    """

    name: str
    graphs: int
    classes: int
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    avg_nodes: float
    avg_edges: float
    min_nodes: int
    max_nodes: int
    avg_degree: float
    isolated_nodes: int
    graphs_without_nodes: int
    graphs_without_edges: int
    node_labels: LabelSummary | None
    node_attributes: int
    edge_labels: LabelSummary | None
    edge_attributes: int
    edge_weights: bool
    report: EdgeReport
    featurizer: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The statistics in JSON types, as ``graphcaps data info --json`` prints them."""
        plain = asdict(self)
        report = plain.pop("report")
        del report["looped_nodes"]
        return plain | {
            "edges_removed": report | {"what_was_done": list(describe_edge_cleaning(self.report))}
        }


def summarize(store: GraphStore) -> StoreSummary:
    """Computes the descriptive statistics of a store."""
    graphs, sizes, degree = len(store), store.sizes, store.degree
    entries = store.edge_ptr[store.node_ptr]
    counts = torch.bincount(store.y, minlength=store.num_classes).tolist() if store.y is not None else []
    return StoreSummary(
        name=store.name,
        graphs=graphs,
        classes=store.num_classes,
        class_names=store.class_names,
        class_counts=tuple(counts),
        avg_nodes=_mean(store.num_nodes, graphs),
        avg_edges=_mean(store.num_edges + store.report.looped_nodes, graphs),
        min_nodes=int(sizes.min()) if graphs else 0,
        max_nodes=int(sizes.max()) if graphs else 0,
        avg_degree=_mean(2 * store.num_edges, store.num_nodes),
        isolated_nodes=int((degree == 0).sum()),
        graphs_without_nodes=store.empty_graphs.numel(),
        graphs_without_edges=int((entries[1:] == entries[:-1]).sum()),
        node_labels=_label_summary(store.node_labels),
        node_attributes=_num_columns(store.node_attributes),
        edge_labels=_label_summary(store.edge_labels),
        edge_attributes=_num_columns(store.edge_attributes),
        edge_weights=store.edge_weight is not None,
        report=store.report,
        featurizer=store.featurizer,
    )


def describe_edge_cleaning(report: EdgeReport) -> tuple[str, ...]:
    """The changes to the edge list, one sentence for each kind of change."""
    sentences = []
    if report.self_loops:
        sentences.append(f"{_count(report.self_loops, 'self-loop')} removed: the model adds its own.")
    if report.repeated:
        twice = 2 * report.repeated == report.rows - report.self_loops
        start = "every row of the edge file appears twice: " if twice else ""
        sentences.append(f"{start}{_count(report.repeated, 'repeated row')} merged.")
    if report.one_way:
        sentences.append(
            f"{_count(report.one_way, 'edge')} listed in one direction only, read as undirected."
        )
    if report.conflicting_labels:
        edges = _count(report.conflicting_labels, "edge")
        sentences.append(f"{edges} listed with different labels: the first label is kept.")
    return tuple(sentences) or ("nothing: every edge is listed once in each direction, without self-loops.",)


def describe_empty_graphs(store: GraphStore) -> str:
    """A sentence that counts the graphs without nodes and names the first of them, from 1; "" if there are none."""
    empty = store.empty_graphs.tolist()
    if not empty:
        return ""
    listed = ", ".join(f"{graph + 1}" for graph in empty[:_MAX_LISTED])
    more = ", …" if len(empty) > _MAX_LISTED else ""
    numbers = f"{'graph' if len(empty) == 1 else 'graphs'} {listed}{more}"
    return (
        f"{len(empty):,} of {len(store):,} graphs {'has' if len(empty) == 1 else 'have'} no nodes ({numbers}): "
        "training leaves them out, and their prediction is the most frequent class of the training graphs."
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _mean(total: int, count: int) -> float:
    return round(total / count, 2) if count else 0.0


def _num_columns(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.reshape(tensor.size(0), -1).size(1)


def _label_summary(labels: Tensor | None) -> LabelSummary | None:
    if labels is None or not labels.numel():
        return None
    columns = labels.reshape(labels.size(0), -1).unbind(1)
    return LabelSummary(
        columns=len(columns),
        distinct=tuple(int(torch.unique(column).numel()) for column in columns),
        min=tuple(int(column.min()) for column in columns),
        max=tuple(int(column.max()) for column in columns),
    )
