"""How unlike the training graphs a graph is: a few measures, kept in the model file, and a sentence.

A model answers whatever it is asked. Graphs far from all that it learned from deserve a warning, not trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcaps.data.features.recipe import node_label_columns
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["QUANTILE", "TrainingProfile"]

QUANTILE = 0.99
"""Share of the training graphs that lies below the threshold."""
LEAST = 2.0
"""The threshold is never lower: twice as far out as the outermost twentieth of the training graphs."""
_EDGES = (0.05, 0.5, 0.95)
_FLOOR = 0.05  # of a spread, where all training graphs are alike: a twentieth more or less is no news
_KEPT = ("sizes", "labels", "attributes", "ranges", "threshold", "graphs")
_WORDS = {
    "nodes": "{value:,.0f} nodes (nine of ten training graphs: {low:,.0f} to {high:,.0f})",
    "degree": "{value:.3g} neighbours a node (nine of ten training graphs: {low:.3g} to {high:.3g})",
    "density": "{value:.3g} of all pairs joined (nine of ten training graphs: {low:.3g} to {high:.3g})",
    "hub": "a node with {value:,.0f} neighbours (nine of ten training graphs: up to {high:,.0f})",
    "labels": "{value:.0%} of its node labels elsewhere than usual (nine of ten training graphs: up to {high:.0%})",
    "attributes": "attribute {column} is {value:.3g} on average (nine of ten training graphs: {low:.3g} to {high:.3g})",
}


@dataclass(frozen=True)
class TrainingProfile:
    r"""What the training graphs are like, in numbers.

    Measures of a graph: logarithms of its nodes, of 1 + its mean degree and of 1 + its largest degree; its
    density; how far the frequencies of its node labels are from those of the training graphs (half the sum of
    the differences, the largest of the label columns); the mean of each attribute column. With the 5, 50 and
    95 % quantiles of a measure over the training graphs, :math:`a < m < b`, its distance is

    .. math:: \frac{v - m}{b - m} \text{ above } m, \qquad \frac{m - v}{m - a} \text{ below,}

    1 at the outermost twentieth. A graph's score is the largest of its distances, and it is *unlike* the training
    graphs where that exceeds the threshold: the 99 % quantile of their own scores, at least 2.

    Args:
        sizes (dict): Quantiles of each measure by name.
        labels (tuple): For each label column, values and their frequencies.
        attributes (tuple): Quantiles of the mean of each attribute column.
        ranges (dict): The 5 and 95 % quantile of each measure as people read it, for sentences.
        threshold (float): Scores above it are unlike.
        graphs (int): Training graphs.
    """

    sizes: dict[str, tuple[float, ...]]
    labels: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    attributes: tuple[tuple[float, ...], ...]
    ranges: dict[str, tuple[float, float]]
    threshold: float
    graphs: int

    @classmethod
    def of(cls, store: GraphStore) -> TrainingProfile:
        """The profile of the graphs of a store."""
        if not len(store):
            raise ArgumentError("TrainingProfile", "store", "hold at least one graph", "none")
        counts = _label_counts(store, None)
        labels = tuple(
            (values, tuple((table.sum(0) / table.sum()).tolist())) for values, table in counts
        )  # fmt: skip
        values = _measures(store, labels)
        means = _attribute_means(store)
        ranges = {name: _ends(column) for name, column in values.items()}
        ranges |= {f"attributes[{c}]": _ends(means[:, c]) for c in range(means.shape[1])}
        sizes = {name: _quantiles(_scale(name, column)) for name, column in values.items()}
        attributes = tuple(_quantiles(means[:, c]) for c in range(means.shape[1]))
        profile = cls(sizes, labels, attributes, ranges, LEAST, len(store))
        own = profile.distances(store)
        scores = np.max(list(own.values()), axis=0)
        threshold = max(LEAST, float(np.quantile(scores, QUANTILE)))
        return cls(sizes, labels, attributes, ranges, threshold, len(store))

    def distances(self, store: GraphStore) -> dict[str, np.ndarray]:
        """Distance of each graph by each measure, ``[G]`` each."""
        values = _measures(store, self.labels)
        found = {
            name: _distance(_scale(name, values[name]), edges, rising=name == "labels")
            for name, edges in self.sizes.items()
            if name in values
        }
        means = _attribute_means(store)
        for column, edges in enumerate(self.attributes[: means.shape[1]]):
            found[f"attributes[{column}]"] = _distance(means[:, column], edges)
        return found

    def scores(self, store: GraphStore) -> np.ndarray:
        """Score of each graph, ``[G]``."""
        return np.max(list(self.distances(store).values()), axis=0)

    def reasons(self, store: GraphStore) -> tuple[str, ...]:
        """For each graph the sentence that says how it is unlike the training graphs; "" where it is not."""
        found = self.distances(store)
        names, table = list(found), np.stack(list(found.values()))  # [measures, G]
        values = _measures(store, self.labels)
        means = _attribute_means(store)
        told = []
        for graph, worst in enumerate(table.argmax(0)):
            name = names[worst]
            if not table[worst, graph] > self.threshold:
                told.append("")
                continue
            low, high = self.ranges[name]
            kind, _, column = name.rstrip("]").partition("[")
            value = means[graph, int(column)] if column else values[name][graph]
            told.append(_WORDS[kind].format(value=value, low=low, high=high, column=column))
        return tuple(told)

    def to_dict(self) -> dict[str, Any]:
        """In JSON's own types; :meth:`from_dict` reads it back."""
        return {
            "sizes": {name: list(edges) for name, edges in self.sizes.items()},
            "labels": [[list(values), list(shares)] for values, shares in self.labels],
            "attributes": [list(edges) for edges in self.attributes],
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "threshold": self.threshold,
            "graphs": self.graphs,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingProfile:
        """Reads what :meth:`to_dict` wrote.

        Raises:
            ArgumentError: If it is something else.
        """
        try:
            if set(values) != set(_KEPT):
                raise ValueError(f"the entries {', '.join(values)}")
            sizes = {name: _three(edges) for name, edges in values["sizes"].items()}
            unknown = set(sizes) - set(_WORDS)
            if unknown or not {"nodes", "degree"} <= set(sizes):
                raise ValueError(f"the measures {', '.join(sizes)}")
            labels = tuple(
                (tuple(map(int, known)), tuple(map(float, shares))) for known, shares in values["labels"]
            )
            if any(len(known) != len(shares) for known, shares in labels):
                raise ValueError("label columns of two lengths")
            attributes = tuple(_three(edges) for edges in values["attributes"])
            ranges = {name: (float(low), float(high)) for name, (low, high) in values["ranges"].items()}
            named = {*sizes, *(f"attributes[{column}]" for column in range(len(attributes)))}
            if named != set(ranges):
                raise ValueError("ranges of other measures")
            return cls(sizes, labels, attributes, ranges, float(values["threshold"]), int(values["graphs"]))
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            expected = "be what TrainingProfile.to_dict writes"
            raise ArgumentError("TrainingProfile", "entries", expected, f"'{error}'") from error


def _three(edges: Any) -> tuple[float, ...]:
    low, middle, high = map(float, edges)
    return low, middle, high


def _measures(store: GraphStore, labels: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Measures of each graph as people read them, ``[G]`` each; attributes apart."""
    nodes = store.sizes.cpu().numpy().astype(np.float64)
    first = store.node_ptr.cpu().numpy()[:-1]
    degree = store.degree.cpu().numpy().astype(np.float64)
    entries = np.add.reduceat(degree, first) if len(first) else nodes
    found = {
        "nodes": nodes,
        "degree": entries / nodes,
        "density": entries / np.maximum(nodes * (nodes - 1), 1),
        "hub": np.maximum.reduceat(degree, first) if len(first) else nodes,
    }
    if labels and store.node_labels is not None:
        tables = _label_counts(store, tuple(values for values, _ in labels))
        away = []
        for (_, table), (_, shares) in zip(tables, labels, strict=False):
            own = table / nodes[:, None]
            # Labels outside the known ones are nowhere near: what is missing from the sum counts as well.
            away.append((np.abs(own - np.asarray(shares)).sum(-1) + 1 - own.sum(-1)) / 2)
        found["labels"] = np.max(away, axis=0)
    return found


def _label_counts(
    store: GraphStore, known: tuple[Any, ...] | None
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """For each label column its values and how often each graph has them, ``[G, values]``."""
    graph = store.node_graph.cpu().numpy()
    found = []
    for column, labels in enumerate(node_label_columns(store) if store.node_labels is not None else []):
        if known is not None and column >= len(known):
            break
        values = np.unique(labels) if known is None else np.asarray(known[column], dtype=np.int64)
        place = np.searchsorted(values, labels).clip(max=max(len(values) - 1, 0))
        hit = values[place] == labels
        table = np.zeros((len(store), len(values)))
        np.add.at(table, (graph[hit], place[hit]), 1)
        found.append((tuple(values.tolist()), table))
    return found


def _attribute_means(store: GraphStore) -> np.ndarray:
    """Mean of each attribute column over the nodes of each graph, ``[G, A]``."""
    if store.node_attributes is None or not len(store):
        return np.zeros((len(store), 0))
    numbers = store.node_attributes.cpu().double().numpy()
    first = store.node_ptr.cpu().numpy()[:-1]
    found: np.ndarray = np.add.reduceat(numbers, first, axis=0) / store.sizes.cpu().numpy()[:, None]
    return found


def _scale(name: str, values: np.ndarray) -> np.ndarray:
    """Counts by their logarithm: twice as large is as far as half as large."""
    if name == "nodes":
        return np.log(values)
    return np.log1p(values) if name in ("degree", "hub") else values


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(values, _EDGES).tolist())


def _ends(values: np.ndarray) -> tuple[float, float]:
    """What nine of ten graphs lie between: a graph beyond them may be no further out than the very last."""
    low, _, high = _quantiles(values)
    return low, high


def _distance(values: np.ndarray, edges: tuple[float, ...], *, rising: bool = False) -> np.ndarray:
    low, middle, high = edges
    least = _FLOOR * max(1.0, abs(middle))
    above = (values - middle) / max(high - middle, least)
    below = (middle - values) / max(middle - low, least)
    found = np.where(values >= middle, above, 0 * below if rising else below)
    return np.where(np.isfinite(found), found, np.inf)
