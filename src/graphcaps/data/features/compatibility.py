"""Which graphs a fitted recipe cannot read, and why: found for all graphs at once, before any is encoded."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from graphcaps.data.datasets.element_labels import describe_labels
from graphcaps.data.features.recipe import (
    FeatureRecipe,
    check_finite_attributes,
    find_unseen_edge_labels,
    node_label_columns,
    report_unseen_edge_labels,
    report_unseen_node_labels,
)
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["check_columns", "check_compatible", "find_incompatible"]

UnseenPolicy = Literal["refuse", "ignore"]


def check_columns(store: GraphStore, recipe: FeatureRecipe, owner: str = "FittedModel") -> None:
    """Refuses graphs with other label or attribute columns than the recipe was fitted on.

    Raises:
        ArgumentError: If the numbers of columns differ.
    """
    labels, attributes = store.node_labels, store.node_attributes
    found = {
        "node label": (
            len(recipe.label_values or ()),
            0 if labels is None else labels.size(1),
            recipe.labels,
        ),
        "node attribute": (
            recipe.num_attributes or 0,
            0 if attributes is None else attributes.size(1),
            recipe.attributes,
        ),
        "edge label": (
            len(recipe.edge_label_values or ()),
            0 if store.edge_labels is None else store.edge_labels.size(1),
            recipe.edge_labels and bool(store.neighbours.numel()),
        ),
    }
    for kind, (expected, got, used) in found.items():
        if used and expected != got:
            raise ArgumentError(
                owner,
                "graphs",
                f"have {_columns(expected, kind)}, as the graphs that the model was trained on",
                f"{_columns(got, kind)} in {store.name}",
            )


def find_incompatible(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    unseen: UnseenPolicy = "refuse",
    dtype: torch.dtype = torch.float32,
) -> dict[int, str]:
    """Graphs that the recipe cannot read, by index from 0, each with its reason in words.

    Args:
        store (GraphStore): Graphs with the recipe's columns, see :func:`check_columns`.
        recipe (FeatureRecipe): A fitted recipe.
        unseen (str): ``"ignore"`` lets labels without a column pass. (default: ``"refuse"``)
        dtype (torch.dtype): Type in which attributes must be finite. (default: ``torch.float32``)
    """
    reasons: dict[int, list[str]] = {}
    graph_of = store.node_graph.cpu().numpy()
    first = store.node_ptr.cpu().numpy()
    molecules = "element" in store.truth
    unit, link = ("atom", "bond") if molecules else ("node", "edge")
    if recipe.attributes and store.node_attributes is not None:
        numbers = store.node_attributes.cpu()
        rows, columns = (~torch.isfinite(numbers.to(dtype))).numpy().nonzero()
        for place in np.unique(graph_of[rows], return_index=True)[1]:  # the first of each graph
            row, column = int(rows[place]), int(columns[place])
            graph = int(graph_of[row])
            node = row - int(first[graph])
            number = float(numbers[row, column])
            told = f"attribute {column} of node {node} is {number}, which is not a finite number"
            if np.isfinite(number):
                told = f"attribute {column} of node {node} is {number}, too large to compute with"
            reasons.setdefault(graph, []).append(told)
    for column, strange, values in _unseen(store, recipe) if unseen == "refuse" else []:
        several = len(recipe.label_values or ()) > 1 and not molecules  # theirs have names
        where = f" in label column {column}" if several else ""
        graphs, starts = np.unique(graph_of[strange], return_index=True)  # rows lie in order of graphs
        for graph, own in zip(graphs, np.split(strange, starts[1:]), strict=True):
            told = describe_labels(store, column, np.unique(values[own]))
            nodes = f"1 {unit}" if len(own) == 1 else f"{len(own)} {unit}s"
            reasons.setdefault(int(graph), []).append(f"{told}{where}, on {nodes}, not seen in training")
    edges = find_unseen_edge_labels(store, recipe.edge_label_values or ()) if unseen == "refuse" else []
    for column, strange, values in edges:
        owners = np.searchsorted(store.host_entry_ptr.numpy(), strange, side="right") - 1
        graphs, starts = np.unique(owners, return_index=True)
        for graph, own in zip(graphs, np.split(strange, starts[1:]), strict=True):
            told = describe_labels(store, column, np.unique(values[own]), kind="edge")
            count = f"1 {link}" if len(own) == 2 else f"{len(own) // 2} {link}s"
            reasons.setdefault(int(graph), []).append(f"{told}, on {count}, not seen in training")
    return {graph: "; ".join(reasons[graph]) for graph in sorted(reasons)}


def check_compatible(
    store: GraphStore,
    recipe: FeatureRecipe,
    *,
    unseen: UnseenPolicy = "refuse",
    dtype: torch.dtype = torch.float32,
    owner: str = "FittedModel",
) -> None:
    """Raises in a sentence where a graph does not fit; warns, once, of labels that ``"ignore"`` lets pass.

    Raises:
        ArgumentError: If a graph does not fit, or ``unseen`` is no such choice.
    """
    if unseen not in ("refuse", "ignore"):
        raise ArgumentError(owner, "unseen", "be 'refuse' or 'ignore'", repr(unseen))
    check_columns(store, recipe, owner)
    if recipe.attributes:
        check_finite_attributes(store, owner, dtype)
    for column, rows, values in _unseen(store, recipe):
        wrong = np.zeros(len(values), dtype=bool)
        wrong[rows] = True
        report_unseen_node_labels(store, column, values, wrong, unseen)
    report_unseen_edge_labels(store, recipe.edge_label_values or (), unseen)


def _unseen(store: GraphStore, recipe: FeatureRecipe) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Per label column with labels that have no input column: its number, their rows, and all values."""
    found = []
    columns = node_label_columns(store) if recipe.labels else []
    for column, (known, values) in enumerate(zip(recipe.label_values or (), columns, strict=True)):
        rows = np.flatnonzero(~np.isin(values, np.asarray(known, dtype=np.int64)))
        if len(rows):
            found.append((column, rows, values))
    return found


def _columns(count: int, kind: str) -> str:
    return f"{count or 'no'} {kind} column{'' if count == 1 else 's'}"
