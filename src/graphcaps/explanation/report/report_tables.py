"""Tables of the report: explanation metrics and confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["confusion_matrix", "metric_tables"]


def confusion_matrix(true: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Number of graphs of each true class (rows) and predicted class (columns), ``[O, O]``."""
    cells = np.bincount(true * num_classes + predicted, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes)


# Heading and definition of each metric.
_DEFINITIONS: dict[str, tuple[str, str]] = {
    "auc_nodes": (
        "AUC, nodes",
        "of node scores for deciding nodes within a graph, where they are known; 0.5 by chance",
    ),
    "auc_edges": ("AUC, edges", "the same for edges between deciding nodes"),
    "group_recall": (
        "groups found",
        "fraction of deciding groups that overlap by half or more with a connected group of one capsule",
    ),
    "group_overlap": (
        "overlap",
        "of a deciding group with the most similar one (intersection over union), mean",
    ),
    "purity": ("purity", "fraction of all nodes that are of the most frequent kind of their capsule"),
    "connected": ("connected", "fraction of the capsules of all graphs whose nodes are connected"),
    "capsules_per_graph": (
        "capsules per graph",
        "capsules with at least one assigned node, mean over graphs",
    ),
    "used_low": ("capsules per graph, 5 %", "5 % quantile of the number of capsules with a node of a graph"),
    "used_high": ("capsules per graph, 95 %", "95 % quantile of that number"),
    "nmi": ("NMI", "agreement of capsules with planted kinds within a graph, mean over graphs; 1 is perfect"),
    "nmi_all": ("NMI, all nodes", "the same over the nodes of all graphs together"),
    "ari": ("ARI", "adjusted Rand index within a graph, mean over graphs: 0 by chance, 1 is perfect"),
    "fidelity_plus": (
        "fidelity+",
        "fraction of graphs whose class changes without the top-scored nodes; higher is better",
    ),
    "fidelity_minus": (
        "fidelity−",
        "fraction of graphs whose class changes with only these nodes; lower is better",
    ),
    "sparsity": ("sparsity", "fraction of a graph's nodes outside the explanation"),
    "entropy": ("entropy", "of the routing weights: 0 for a hard assignment, 1 for uniform weights"),
    "dead_capsules": ("dead capsules", "capsules to which no node of any graph is assigned"),
    "used_per_graph": (
        "capsules per graph",
        "capsules with at least one assigned node, mean over graphs",
    ),
    "seconds_per_graph": ("s per graph", "run time per graph"),
    "rank": ("rank correlation", "Spearman correlation of node scores of models with different seeds"),
}

# Captions of the other groups of metrics.
_GROUPS = {
    "capsules": "Use of the capsules",
    "instances": "Agreement with planted parts, in graphs whose parts are of different kinds",
    "stability": "Agreement of models with different seeds",
    "truth": "Graphs whose deciding nodes are known",
}


def metric_tables(metrics: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Tables with the entries ``caption``, ``head``, ``rows`` and ``definitions`` (of the headings).

    Args:
        metrics (mapping, optional): Result of :func:`graphcaps.explanation.evaluate_explanations`, or a dictionary of
            numbers per method, or plain names and numbers.
    """
    if not metrics:
        return []
    entries = dict(metrics)
    if "methods" not in entries and all(isinstance(value, Mapping) for value in entries.values()):
        entries = {"methods": entries}
    tables = []
    if methods := entries.pop("methods", None):
        tables.append(_by_method(_caption(entries), methods))
    sample = entries.pop("sample", None)
    if isinstance(sample, Mapping) and sample.get("fidelity_plus"):
        measured = ("fidelity_plus", "fidelity_minus", "auc_nodes", "auc_edges")
        names = [name for name in measured if any(v is not None for v in sample.get(name, {}).values())]
        rows = {method: {name: sample[name].get(method) for name in names} for method in sample[names[0]]}
        count = len(sample.get("graphs", ()))
        table = _by_method(f"Every method on the same {count} graphs", rows)
        tables.append(table | {"definitions": []})
    plain: dict[str, Any] = {}
    for name, value in entries.items():
        if isinstance(value, Mapping):
            if flat := _flat(value):
                tables.append(_pairs(_GROUPS.get(name, _heading(name)), flat))
        elif value is not None:
            plain[name] = value
    # Settings are in the caption, not in a table.
    settings = ("graphs", "classes_right", "share", "seed", "command", "model", "data", "seconds")
    if plain.get("members") == 1:  # a single network, not a committee
        del plain["members"]
    if flat := _flat({name: value for name, value in plain.items() if name not in settings}):
        tables.append(_pairs("Metrics", flat))
    return tables


def _caption(entries: Mapping[str, Any]) -> str:
    phrases = ["One row per method"]
    if isinstance(entries.get("graphs"), int):
        phrases.append(f"over {entries['graphs']:,} graphs")
    if isinstance(entries.get("share"), int | float):
        phrases.append(f"an explanation is {100 * entries['share']:.0f} % of a graph's nodes")
    return ", ".join(phrases) + "."


def _by_method(caption: str, methods: Mapping[str, Any]) -> dict[str, Any]:
    """One row per method and one column per metric that at least one method has."""
    flat = {str(name): _flat(value) for name, value in methods.items() if isinstance(value, Mapping)}
    names = dict.fromkeys(name for row in flat.values() for name, value in row.items() if value is not None)
    return {
        "caption": caption,
        "head": ["method", *(_heading(name) for name in names)],
        "rows": [
            [method, *(row.get(name) for name in names)]
            for method, row in flat.items()
            if any(value is not None for value in row.values())
        ],
        "definitions": [list(_DEFINITIONS[name]) for name in names if name in _DEFINITIONS],
    }


def _pairs(caption: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "caption": caption,
        "head": ["metric", "value"],
        "rows": [[_heading(name), value] for name, value in values.items()],
        "definitions": [],
    }


def _heading(name: str) -> str:
    return _DEFINITIONS[name][0] if name in _DEFINITIONS else name.replace("_", " ")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Names and plain values; values that are neither numbers nor strings are left out."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        full = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{full} ")
        elif isinstance(value, list) and name == "share":
            flat["share of a graph per capsule"] = ", ".join(f"{100 * part:.0f} %" for part in value)
        elif isinstance(value, bool | str) or value is None:
            flat[full] = value
        elif isinstance(value, int | float):
            flat[full] = value if math.isfinite(value) else None
    return flat
