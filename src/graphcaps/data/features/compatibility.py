"""Which graphs a fitted recipe cannot encode, and why: checked for all graphs at once, before any is encoded."""

from __future__ import annotations

import numpy as np
import torch

from graphcaps.data.datasets.element_labels import describe_labels
from graphcaps.data.features.recipe import (
    FeatureRecipe,
    UnseenPolicy,
    check_column_counts,
    check_finite_attributes,
    find_unseen_edge_labels,
    find_unseen_node_labels,
    report_unseen_edge_labels,
    report_unseen_node_labels,
)
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["check_columns", "check_compatible", "find_incompatible"]


def check_columns(store: GraphStore, recipe: FeatureRecipe, owner: str = "FittedModel") -> None:
    """Checks that graphs have as many label and attribute columns as the training graphs.

    Raises:
        ArgumentError: If the numbers of columns differ.
    """
    check_column_counts(recipe, store, owner, "graphs", "the model was trained on")


def check_compatible(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    unseen: UnseenPolicy = "refuse",
    dtype: torch.dtype = torch.float32,
    owner: str = "FittedModel",
) -> None:
    """Checks that the recipe can encode all graphs; with ``unseen="ignore"`` warns about unseen labels.

    Raises:
        ArgumentError: If a graph cannot be encoded, or ``unseen`` is invalid.
    """
    if unseen not in ("refuse", "ignore"):
        raise ArgumentError(owner, "unseen", "be 'refuse' or 'ignore'", repr(unseen))
    check_columns(store, recipe, owner)
    if recipe.attributes:
        check_finite_attributes(store, owner, dtype)
    for column, rows, labels in find_unseen_node_labels(store, recipe):
        mask = np.zeros(len(labels), dtype=bool)
        mask[rows] = True
        report_unseen_node_labels(store, column, labels, mask, unseen)
    report_unseen_edge_labels(store, recipe.edge_label_values or (), unseen)


def find_incompatible(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    unseen: UnseenPolicy = "refuse",
    dtype: torch.dtype = torch.float32,
) -> dict[int, str]:
    """Graphs that the recipe cannot encode, by index from 0, each with the reason in words.

    Args:
        store (GraphStore): Graphs with the recipe's columns, see :func:`check_columns`.
        recipe (FeatureRecipe): A fitted recipe.
        unseen (str): ``"ignore"`` accepts labels without an input column. (default: ``"refuse"``)
        dtype (torch.dtype): Type in which attributes must be finite. (default: ``torch.float32``)
    """
    reasons: dict[int, list[str]] = {}
    if recipe.attributes and store.node_attributes is not None:
        _add_attribute_reasons(reasons, store, dtype)
    if unseen == "refuse":
        _add_node_label_reasons(reasons, store, recipe)
        _add_edge_label_reasons(reasons, store, recipe)
    return {graph: "; ".join(reasons[graph]) for graph in sorted(reasons)}


def _add_attribute_reasons(reasons: dict[int, list[str]], store: GraphStore, dtype: torch.dtype) -> None:
    """The first attribute of each graph that is not finite."""
    assert store.node_attributes is not None
    values = store.node_attributes.cpu()
    graph_of = store.node_graph.cpu().numpy()
    rows, columns = (~torch.isfinite(values.to(dtype))).numpy().nonzero()
    for index in np.unique(graph_of[rows], return_index=True)[1]:
        row, column = int(rows[index]), int(columns[index])
        graph = int(graph_of[row])
        value = float(values[row, column])
        problem = "too large to compute with" if np.isfinite(value) else "which is not a finite number"
        node = row - int(store.host_node_ptr[graph])
        reasons.setdefault(graph, []).append(f"attribute {column} of node {node} is {value}, {problem}")


def _add_node_label_reasons(reasons: dict[int, list[str]], store: GraphStore, recipe: FeatureRecipe) -> None:
    molecules = "element" in store.truth  # their label columns have names
    unit = "atom" if molecules else "node"
    graph_of = store.node_graph.cpu().numpy()
    for column, rows, labels in find_unseen_node_labels(store, recipe):
        several = len(recipe.label_values or ()) > 1 and not molecules
        where = f" in label column {column}" if several else ""
        for graph, members in _by_graph(rows, graph_of[rows]):
            words = describe_labels(store, column, np.unique(labels[members]))
            nodes = f"1 {unit}" if len(members) == 1 else f"{len(members)} {unit}s"
            reasons.setdefault(graph, []).append(f"{words}{where}, on {nodes}, not seen in training")


def _add_edge_label_reasons(reasons: dict[int, list[str]], store: GraphStore, recipe: FeatureRecipe) -> None:
    unit = "bond" if "element" in store.truth else "edge"
    for column, rows, labels in find_unseen_edge_labels(store, recipe.edge_label_values or ()):
        graph_of_rows = np.searchsorted(store.host_entry_ptr.numpy(), rows, side="right") - 1
        for graph, members in _by_graph(rows, graph_of_rows):
            words = describe_labels(store, column, np.unique(labels[members]), kind="edge")
            count = len(members) // 2  # an edge has two entries
            edges = f"1 {unit}" if count == 1 else f"{count} {unit}s"
            reasons.setdefault(graph, []).append(f"{words}, on {edges}, not seen in training")


def _by_graph(rows: np.ndarray, graph_of_rows: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Rows of each graph; rows are in the order of graphs."""
    graphs, starts = np.unique(graph_of_rows, return_index=True)
    return [(int(graph), members) for graph, members in zip(graphs, np.split(rows, starts[1:]), strict=True)]
