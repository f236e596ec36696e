"""Applicability domain of a model: which graphs are out of distribution, and why.

A model predicts a class for any graph. The statistics here, stored in the model file, flag graphs that differ so much
from the training graphs that the prediction should not be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from graphcaps.chemistry.featurizers import find_featurizer
from graphcaps.data.batching import size_chunks
from graphcaps.data.datasets.element_labels import describe_labels
from graphcaps.data.features.label_columns import LabelBlocks, label_indices, node_label_columns
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError

__all__ = ["MIN_THRESHOLD", "NO_NODES", "THRESHOLD_QUANTILE", "TrainingProfile"]

NO_NODES = "no nodes: its probabilities are the class frequencies of the training graphs"
"""Reason for a graph without nodes."""

THRESHOLD_QUANTILE = 0.99
"""Quantile of the training graphs' scores that is the threshold."""
MIN_THRESHOLD = 2.0
"""Lower bound of the threshold: twice the distance of the 5 or 95 % quantile from the median."""
_QUANTILES = (0.05, 0.5, 0.95)
_NODES_PER_STEP = 1 << 16  # nodes whose labels are counted at once
_MIN_SPREAD = 0.05  # lower bound of a spread, relative to the median: training graphs may all be alike
_ENTRIES = ("quantiles", "label_frequencies", "attribute_quantiles", "ranges", "threshold", "graphs")
_RANGE = "90 % of the training graphs:"
_REASONS = {
    "nodes": "{value:,.0f} nodes (" + _RANGE + " {low:,.0f} to {high:,.0f})",
    "mean_degree": "mean degree {value:.3g} (" + _RANGE + " {low:.3g} to {high:.3g})",
    "density": "density {value:.3g} (" + _RANGE + " {low:.3g} to {high:.3g})",
    "max_degree": "largest degree {value:,.0f} (" + _RANGE + " {low:,.0f} to {high:,.0f})",
    "label_distance": "frequencies of {label} differ by {value:.0%} ("
    + _RANGE
    + " up to {high:.0%}{detail})",
    "attributes": "mean of attribute {column} is {value:.3g} (" + _RANGE + " {low:.3g} to {high:.3g})",
}


@dataclass(frozen=True)
class TrainingProfile:
    r"""Statistics of the training graphs, and the distance of other graphs from them.

    Statistics of a graph: number of nodes, mean degree and maximum degree (as log n, log(1 + degree)); density; total
    variation distance between its node label frequencies and those of all training graphs (the largest over label
    columns); mean of each attribute column. With the 5, 50 and 95 % quantiles :math:`a < m < b` of a statistic
    over the training graphs, the distance of a value v is

    .. math:: \frac{v - m}{b - m} \text{ above } m, \qquad \frac{m - v}{m - a} \text{ below,}

    which is 1 at the outer quantiles. The score of a graph is its largest distance. A graph is out of distribution
    if the score exceeds the threshold: the 99 % quantile of the training graphs' scores, at least 2.

    A graph without nodes has none of these statistics. It is always out of distribution, and does not count among the
    training graphs.

    Args:
        quantiles (dict): The 5, 50 and 95 % quantile of each statistic, on the scale above.
        label_frequencies (tuple): For each label column, its values and their frequencies.
        attribute_quantiles (tuple): The three quantiles of the mean of each attribute column.
        ranges (dict): The 5 and 95 % quantile of each statistic on its original scale, for messages.
        threshold (float): Graphs with a higher score are out of distribution.
        graphs (int): Number of training graphs with nodes.
    """

    quantiles: dict[str, tuple[float, ...]]
    label_frequencies: tuple[tuple[tuple[int, ...], tuple[float, ...]], ...]
    attribute_quantiles: tuple[tuple[float, ...], ...]
    ranges: dict[str, tuple[float, float]]
    threshold: float
    graphs: int

    @classmethod
    def from_store(cls, store: GraphStore) -> TrainingProfile:
        """The profile of the graphs of a store."""
        store = store.with_nodes()
        if not len(store):
            raise ArgumentError("TrainingProfile", "store", "hold at least one graph with nodes", "none")
        label_values = tuple(tuple(np.unique(labels).tolist()) for labels in node_label_columns(store))
        totals = np.split(_label_counts(store, label_values).sum(0), _first_values(label_values)[1:])
        frequencies = tuple(
            (values, tuple((total / total.sum()).tolist()))
            for values, total in zip(label_values, totals, strict=False)  # one empty part without columns
        )
        statistics = _statistics(store, frequencies)
        means = _attribute_means(store)
        ranges = {name: _outer_quantiles(column) for name, column in statistics.items()}
        ranges |= {f"attributes[{c}]": _outer_quantiles(means[:, c]) for c in range(means.shape[1])}
        quantiles = {name: _quantiles(_rescale(name, column)) for name, column in statistics.items()}
        attributes = tuple(_quantiles(means[:, c]) for c in range(means.shape[1]))
        profile = cls(quantiles, frequencies, attributes, ranges, MIN_THRESHOLD, len(store))
        threshold = max(MIN_THRESHOLD, float(np.quantile(profile.scores(store), THRESHOLD_QUANTILE)))
        return cls(quantiles, frequencies, attributes, ranges, threshold, len(store))

    def distances(self, store: GraphStore) -> dict[str, np.ndarray]:
        """Distance of each graph in each statistic, ``[G]`` each; infinite for a graph without nodes."""
        if store.empty_graphs.numel():
            kept = self.distances(store.with_nodes())
            return {name: _insert_infinite(values, store) for name, values in kept.items()}
        return self._distances(_statistics(store, self.label_frequencies), _attribute_means(store))

    def _distances(self, statistics: dict[str, np.ndarray], means: np.ndarray) -> dict[str, np.ndarray]:
        """:meth:`distances` from statistics of the graphs and the means of their attributes."""
        distances = {
            name: _distance(_rescale(name, statistics[name]), quantiles, one_sided=name == "label_distance")
            for name, quantiles in self.quantiles.items()
            if name in statistics
        }
        for column, quantiles in enumerate(self.attribute_quantiles[: means.shape[1]]):
            distances[f"attributes[{column}]"] = _distance(means[:, column], quantiles)
        return distances

    def scores(self, store: GraphStore) -> np.ndarray:
        """Score of each graph, ``[G]``: the largest of its distances."""
        return np.max(list(self.distances(store).values()), axis=0)

    def reasons(self, store: GraphStore, attribute_names: Sequence[str] | None = None) -> tuple[str, ...]:
        """For each graph the statistic that puts it out of distribution, in words; "" if it is in distribution.

        Args:
            store (GraphStore): Graphs with the columns of the training graphs.
            attribute_names (sequence, optional): Names of the attributes. (default: their indices)
        """
        if store.empty_graphs.numel():
            kept = iter(self.reasons(store.with_nodes(), attribute_names) if store.num_nodes else ())
            return tuple(next(kept) if size else NO_NODES for size in store.sizes.tolist())
        statistics, means = _statistics(store, self.label_frequencies), _attribute_means(store)
        distances = self._distances(statistics, means)
        names, table = list(distances), np.stack(list(distances.values()))  # [statistics, G]
        reasons = [""] * len(store)
        largest_of = table.argmax(0)
        for graph in np.flatnonzero(table.max(0) > self.threshold).tolist():
            name = names[largest_of[graph]]
            low, high = self.ranges[name]
            kind, _, column = name.rstrip("]").partition("[")
            value = means[graph, int(column)] if column else statistics[name][graph]
            if column and attribute_names is not None:
                column = f"'{attribute_names[int(column)]}'"
            words = self._label_words(store[graph]) if kind == "label_distance" else {}
            reasons[graph] = _REASONS[kind].format(value=value, low=low, high=high, column=column, **words)
        return tuple(reasons)

    def _label_words(self, one: GraphStore) -> dict[str, str]:
        """The label column of a graph whose frequencies differ most, and its label that differs most."""
        distances = _label_distances(one, self.label_frequencies)[:, 0]  # [columns]
        column = int(distances.argmax())
        values, trained = self.label_frequencies[column]
        label, several = "node labels", len(self.label_frequencies) > 1
        if one.featurizer is not None:
            label = f"'{find_featurizer(one.featurizer).atoms[column].name}'"
        elif several:
            label = f"node labels in column {column}"
        labels, counts = np.unique(node_label_columns(one)[column], return_counts=True)
        here = dict(zip(labels.tolist(), (counts / counts.sum()).tolist(), strict=True))
        before = dict(zip(values, trained, strict=True))
        most = max({**before, **here}, key=lambda value: abs(here.get(value, 0) - before.get(value, 0)))
        word = describe_labels(one, column, [most])
        shares = f"{here.get(most, 0):.0%} of the nodes here, {before.get(most, 0):.0%} in training"
        return {"label": label, "detail": f"; most: {word}, {shares}"}

    def to_dict(self) -> dict[str, Any]:
        """JSON values; :meth:`from_dict` is the inverse."""
        return {
            "quantiles": {name: list(values) for name, values in self.quantiles.items()},
            "label_frequencies": [[list(values), list(shares)] for values, shares in self.label_frequencies],
            "attribute_quantiles": [list(values) for values in self.attribute_quantiles],
            "ranges": {name: list(ends) for name, ends in self.ranges.items()},
            "threshold": self.threshold,
            "graphs": self.graphs,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingProfile:
        """Reads the result of :meth:`to_dict`.

        Raises:
            ArgumentError: If the values are not valid.
        """
        try:
            if set(values) != set(_ENTRIES):
                raise ValueError(f"the entries {', '.join(values)}")
            quantiles = {name: _three(row) for name, row in values["quantiles"].items()}
            unknown = set(quantiles) - set(_REASONS)
            if unknown or not {"nodes", "mean_degree"} <= set(quantiles):
                raise ValueError(f"the statistics {', '.join(quantiles)}")
            frequencies = tuple(
                (tuple(map(int, labels)), tuple(map(float, shares)))
                for labels, shares in values["label_frequencies"]
            )
            if any(len(labels) != len(shares) for labels, shares in frequencies):
                raise ValueError("label values and frequencies of different lengths")
            if not all(_are_labels(labels) for labels, _ in frequencies):
                raise ValueError("label values that are not distinct 64-bit integers in increasing order")
            attributes = tuple(_three(row) for row in values["attribute_quantiles"])
            ranges = {name: (float(low), float(high)) for name, (low, high) in values["ranges"].items()}
            names = {*quantiles, *(f"attributes[{column}]" for column in range(len(attributes)))}
            if names != set(ranges):
                raise ValueError("ranges that do not match the quantiles")
            threshold, graphs = float(values["threshold"]), int(values["graphs"])
            return cls(quantiles, frequencies, attributes, ranges, threshold, graphs)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            expected = "be the output of TrainingProfile.to_dict"
            raise ArgumentError("TrainingProfile", "entries", expected, f"'{error}'") from error


def _are_labels(values: tuple[int, ...]) -> bool:
    """Whether values can be the labels of a column: at least one, increasing, 64-bit."""
    bounds = np.iinfo(np.int64)
    is_increasing = all(before < after for before, after in pairwise(values))
    return bool(values) and is_increasing and bounds.min <= values[0] and values[-1] <= bounds.max


def _three(values: Any) -> tuple[float, ...]:
    low, median, high = map(float, values)
    return low, median, high


def _statistics(store: GraphStore, label_frequencies: tuple[Any, ...]) -> dict[str, np.ndarray]:
    """Statistics of each graph on their original scale, without attributes, ``[G]`` each."""
    first = store.host_node_ptr.numpy()[:-1]
    nodes = np.diff(store.host_node_ptr.numpy()).astype(np.float64)
    degree = np.diff(store.edge_ptr.cpu().numpy()).astype(np.float64)
    entries = np.add.reduceat(degree, first) if len(first) else nodes
    statistics = {
        "nodes": nodes,
        "mean_degree": entries / nodes,
        "density": entries / np.maximum(nodes * (nodes - 1), 1),
        "max_degree": np.maximum.reduceat(degree, first) if len(first) else nodes,
    }
    if label_frequencies and store.node_labels is not None:
        statistics["label_distance"] = np.max(_label_distances(store, label_frequencies), axis=0)
    return statistics


def _label_distances(store: GraphStore, label_frequencies: tuple[Any, ...]) -> np.ndarray:
    """Total variation distance between the label frequencies of each graph and others, ``[label columns, G]``."""
    assert store.node_labels is not None
    read = label_frequencies[: store.node_labels.size(1)]
    label_values, shares = (tuple(entry[place] for entry in read) for place in (0, 1))
    nodes = np.diff(store.host_node_ptr.numpy()).astype(np.float64)
    frequency, first = _label_counts(store, label_values) / nodes[:, None], _first_values(label_values)
    difference = np.abs(frequency - np.concatenate(shares))
    # Labels that are not in the table count as well: 1 − Σ frequency is their share.
    sums, differences = (np.add.reduceat(table, first, axis=1) for table in (frequency, difference))
    distances: np.ndarray = (differences + 1 - sums).T / 2
    return distances


def _first_values(label_values: LabelBlocks) -> np.ndarray:
    """Index of the first value of each label column among the values of all columns."""
    sizes = [len(values) for values in label_values]
    first: np.ndarray = np.cumsum(sizes, dtype=np.int64) - sizes
    return first


def _label_counts(store: GraphStore, label_values: LabelBlocks) -> np.ndarray:
    """Number of nodes of each graph with each value of each label column, ``[G, values of all columns]``."""
    total, first_nodes = sum(len(values) for values in label_values), store.host_node_ptr.numpy()
    tables: list[np.ndarray] = [np.empty((0, total))]
    if store.node_labels is None:
        return tables[0]
    for start, end in size_chunks(store, _NODES_PER_STEP, store.neighbours.numel()):
        ptr = first_nodes[start : end + 1]
        index = label_indices(label_values, store.node_labels[ptr[0] : ptr[-1]])  # [nodes, columns]
        first_cells = np.repeat(np.arange(end - start) * total, np.diff(ptr))
        cells = (first_cells[:, None] + _first_values(label_values) + index)[index >= 0]
        tables.append(np.bincount(cells, minlength=(end - start) * total).reshape(-1, total))
    return np.concatenate(tables)


def _attribute_means(store: GraphStore) -> np.ndarray:
    """Mean of each attribute column over the nodes of each graph, ``[G, A]``."""
    if store.node_attributes is None or not len(store):
        return np.zeros((len(store), 0))
    attributes = store.node_attributes.cpu().double().numpy()
    first = store.node_ptr.cpu().numpy()[:-1]
    means: np.ndarray = np.add.reduceat(attributes, first, axis=0) / store.sizes.cpu().numpy()[:, None]
    return means


def _insert_infinite(values: np.ndarray, store: GraphStore) -> np.ndarray:
    """``values`` of the graphs with nodes, and infinity for the others, ``[G]``."""
    every = np.full(len(store), np.inf)
    every[store.sizes.cpu().numpy() > 0] = values
    return every


def _rescale(name: str, values: np.ndarray) -> np.ndarray:
    """Counts on a logarithmic scale: twice as large is as distant as half as large."""
    if name == "nodes":
        return np.log(values)
    return np.log1p(values) if name in ("mean_degree", "max_degree") else values


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(values, _QUANTILES).tolist())


def _outer_quantiles(values: np.ndarray) -> tuple[float, float]:
    low, _, high = _quantiles(values)
    return low, high


def _distance(values: np.ndarray, quantiles: tuple[float, ...], *, one_sided: bool = False) -> np.ndarray:
    """Distances from the median in units of the spread; ``one_sided``: zero below the median."""
    low, median, high = quantiles
    min_spread = _MIN_SPREAD * max(1.0, abs(median))
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite becomes infinite below
        above = (values - median) / max(high - median, min_spread)
        below = (median - values) / max(median - low, min_spread)
        distance = np.where(values >= median, above, 0 * below if one_sided else below)
    return np.where(np.isfinite(distance), distance, np.inf)
