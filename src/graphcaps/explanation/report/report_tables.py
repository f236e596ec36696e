"""Measures of explanations as tables of plain values, whatever was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Reliability", "confusion_matrix", "metric_tables", "reliability"]


@dataclass(frozen=True, eq=False)
class Reliability:
    """Confidence against the share of right answers, in B groups of about equal size.

    Args:
        confidence, accuracy (ndarray): Means inside each group, ``[B]``.
        count (ndarray): Graphs of each group, ``[B]``.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    count: np.ndarray

    @property
    def ece(self) -> float:
        """Expected calibration error: the mean distance of the two, each group weighed by its graphs."""
        if not self.count.sum():
            return 0.0
        return float(np.abs(self.confidence - self.accuracy) @ self.count / self.count.sum())


def confusion_matrix(known: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Graphs of each class (rows) that were taken for each class (columns), ``[O, O]``."""
    cells = np.bincount(known * num_classes + predicted, minlength=num_classes**2)
    return cells.reshape(num_classes, num_classes)


def reliability(confidence: np.ndarray, right: np.ndarray, bins: int | None = None) -> Reliability:
    """Groups graphs by confidence, about as many in each.

    Args:
        confidence (ndarray): Probability of the predicted class, ``[G]``.
        right (ndarray): Whether the prediction was right, ``[G]``.
        bins (int, optional): Groups, at most one per graph. (default: 10, or 15 from 1,500 graphs on)
    """
    wanted = bins or (15 if len(confidence) >= 1500 else 10)
    order = np.argsort(confidence, kind="stable")
    groups = [group for group in np.array_split(order, wanted) if len(group)]
    return Reliability(
        np.array([confidence[group].mean() for group in groups]),
        np.array([right[group].mean() for group in groups]),
        np.array([len(group) for group in groups]),
    )


# What a heading says, and what it means.
_KNOWN: dict[str, tuple[str, str]] = {
    "nmi": ("NMI", "agreement of the parts found with the kinds planted, mean inside graphs; 1 is perfect"),
    "nmi_all": ("NMI, all nodes", "the same over the nodes of all graphs together"),
    "ari": ("ARI", "adjusted Rand index, mean inside graphs: 0 by chance, 1 is perfect"),
    "fidelity_plus": (
        "fidelity+",
        "graphs whose class changes without the best-scored nodes; more is better",
    ),
    "fidelity_minus": ("fidelity−", "graphs whose class changes with only these nodes; less is better"),
    "sparsity": ("sparsity", "share of a graph's nodes that are not in the explanation"),
    "entropy": ("entropy", "0 where every node belongs to one capsule, 1 where to all alike"),
    "dead_capsules": ("dead capsules", "capsules that are the strongest of no node of any graph"),
    "used_per_graph": (
        "capsules in a graph",
        "capsules that are the strongest of some node, mean over graphs",
    ),
    "seconds_per_graph": ("s per graph", "time for one graph"),
    "rank": ("rank correlation", "Spearman's, of node scores of models that differ in their seed"),
}

# Groups of figures beside those of the methods, and what their tables are called.
_GROUPS = {
    "capsules": "How the capsules are used",
    "instances": "Agreement with planted parts, in graphs with one part of each kind",
    "stability": "Agreement of models that differ in their seed",
}


def metric_tables(metrics: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Tables with ``caption``, ``head``, ``rows`` and ``words`` (what the headings mean).

    Args:
        metrics (mapping, optional): Result of :func:`graphcaps.explanation.evaluate_explanations`, or a dictionary of
            numbers per method, or plain names and numbers.
    """
    if not metrics:
        return []
    given = dict(metrics)
    if "methods" not in given and all(isinstance(value, Mapping) for value in given.values()):
        given = {"methods": given}
    tables = []
    if methods := given.pop("methods", None):
        tables.append(_by_method(_caption(given), methods))
    sample = given.pop("sample", None)
    if isinstance(sample, Mapping) and sample.get("fidelity_plus"):
        names = [name for name in ("fidelity_plus", "fidelity_minus") if sample.get(name)]
        rows = {method: {name: sample[name].get(method) for name in names} for method in sample[names[0]]}
        count = len(sample.get("graphs", ()))
        table = _by_method(f"Fidelity on the same {count} graphs for every method", rows)
        tables.append(table | {"words": []})
    plain: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            if flat := _flat(value):
                tables.append(_pairs(_GROUPS.get(name, _heading(name)), flat))
        elif value is not None:
            plain[name] = value
    # What the figures were made with stands in the caption above.
    made_with = ("graphs", "classes_right", "share", "seed", "command", "model", "data", "seconds")
    if flat := _flat({name: value for name, value in plain.items() if name not in made_with}):
        tables.append(_pairs("Measures", flat))
    return tables


def _caption(given: Mapping[str, Any]) -> str:
    words = ["One row per method"]
    if isinstance(given.get("graphs"), int):
        words.append(f"over {given['graphs']:,} graphs")
    if isinstance(given.get("share"), int | float):
        words.append(f"an explanation is {100 * given['share']:.0f} % of a graph's nodes")
    return ", ".join(words) + "."


def _by_method(caption: str, methods: Mapping[str, Any]) -> dict[str, Any]:
    """A row per method and a column per measure that some method has."""
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
        "words": [list(_KNOWN[name]) for name in names if name in _KNOWN],
    }


def _pairs(caption: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "caption": caption,
        "head": ["measure", "value"],
        "rows": [[_heading(name), value] for name, value in values.items()],
        "words": [],
    }


def _heading(name: str) -> str:
    return _KNOWN[name][0] if name in _KNOWN else name.replace("_", " ")


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Names and plain values; what is neither number nor text is left out."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        full = f"{before}{name}"
        if isinstance(value, Mapping):
            found |= _flat(value, f"{full} ")
        elif isinstance(value, list) and name == "share":
            found["share of a graph, capsule by capsule"] = ", ".join(f"{100 * part:.0f} %" for part in value)
        elif isinstance(value, bool | str) or value is None:
            found[full] = value
        elif isinstance(value, int | float):
            found[full] = value if math.isfinite(value) else None
    return found
