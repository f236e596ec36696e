"""Accuracy of simple graph statistics and agreement of k-means on planted-parts (docs/planted-parts.md).

    python -m benchmarks.measure_planted_statistics            # writes results/planted_statistics.json

No graph network is used. Classifiers are those of scikit-learn, with its defaults unless stated. ``make pages`` writes
the tables.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import GroupKFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.data.datasets.planted_parts import LEVELS, NUM_PROFILES, planted_parts
from graphcaps.data.store import GraphStore

RESULTS = Path(__file__).resolve().parents[1] / "results" / "planted_statistics.json"
FOLD_SEED = 12345
Counts = dict[object, float]


@dataclass(frozen=True)
class Numbers:
    """A store as numpy and scipy arrays."""

    adjacency: sp.csr_matrix  # of all nodes of all graphs
    graph: np.ndarray  # of each node
    degree: np.ndarray
    y: np.ndarray


def to_numbers(store: GraphStore) -> Numbers:
    """The arrays of a store, with neighbours as indices among all nodes."""
    graph, degree = store.node_graph.numpy(), store.degree.numpy()
    first = np.repeat(store.node_ptr.numpy()[graph], degree)
    columns = store.neighbours.numpy() + first
    entries = np.ones(len(columns))
    adjacency = sp.csr_matrix((entries, columns, store.edge_ptr.numpy()), shape=(len(graph),) * 2)
    assert store.y is not None
    return Numbers(adjacency, graph, degree, store.y.numpy())


# ---------------------------------------------------------------------- statistics of whole graphs
def sizes_and_degrees(data: Numbers) -> list[Counts]:
    """Degree histogram, node count, edge count, mean and largest degree."""
    rows: list[Counts] = []
    for g in range(len(data.y)):
        degree = data.degree[data.graph == g]
        row: Counts = {f"degree {d}": c for d, c in Counter(degree.tolist()).items()}
        row |= {"nodes": degree.size, "edges": degree.sum() / 2, "mean": degree.mean(), "max": degree.max()}
        rows.append(row)
    return rows


def triangles_and_clustering(data: Numbers) -> list[Counts]:
    """Triangles, mean clustering coefficient, transitivity."""
    rows: list[Counts] = []
    for g in range(len(data.y)):
        nodes = np.flatnonzero(data.graph == g)
        graph = nx.from_scipy_sparse_array(data.adjacency[nodes][:, nodes])
        triangles = sum(nx.triangles(graph).values()) / 3
        clustering = nx.average_clustering(graph)
        rows.append(
            {"triangles": triangles, "clustering": clustering, "transitivity": nx.transitivity(graph)}
        )
    return rows


def joint_degrees(data: Numbers) -> list[Counts]:
    """Number of edges between nodes of degrees d and e, for every pair."""
    rows: list[Counts] = [Counter() for _ in data.y]
    upper = sp.triu(data.adjacency).tocoo()
    for a, b in zip(upper.row, upper.col, strict=True):
        d, e = sorted((int(data.degree[a]), int(data.degree[b])))
        rows[data.graph[a]][f"{d}-{e}"] += 1
    return rows


def refined_colours(rounds: int) -> Callable[[Numbers], list[Counts]]:
    """Histograms of Weisfeiler-Lehman colours after 1 … ``rounds`` iterations; the first is the degree."""

    def count(data: Numbers) -> list[Counts]:
        rows: list[Counts] = [Counter() for _ in data.y]
        colour = np.zeros(len(data.graph), dtype=int)
        ptr, neighbours = data.adjacency.indptr, data.adjacency.indices
        for turn in range(1, rounds + 1):
            names: dict[tuple[int, ...], int] = {}
            updated = np.empty_like(colour)
            for v in range(len(colour)):
                around = sorted(colour[neighbours[ptr[v] : ptr[v + 1]]].tolist())
                updated[v] = names.setdefault((int(colour[v]), *around), len(names))
            colour = updated
            for g, c in zip(data.graph, colour, strict=True):
                rows[g][f"{turn}:{c}"] += 1
        return rows

    return count


STATISTICS: dict[str, Callable[[Numbers], list[Counts]]] = {
    "sizes and degree histogram": sizes_and_degrees,
    "triangles and clustering": triangles_and_clustering,
    "joint degrees of edges": joint_degrees,
    "colours, 2 iterations": refined_colours(2),
    "colours, 3 iterations": refined_colours(3),
    "colours, 4 iterations": refined_colours(4),
}


def accuracies(rows: list[Counts], y: np.ndarray) -> list[float]:
    """Accuracy of two classifiers in ten stratified folds, and in six folds that keep profiles together."""
    x = DictVectorizer().fit_transform(rows)
    profile = np.arange(len(y)) // 3 % NUM_PROFILES
    models = (
        make_pipeline(MaxAbsScaler(), LogisticRegression(C=10.0, max_iter=5000)),
        RandomForestClassifier(n_estimators=100, random_state=0),
    )
    stratified = StratifiedKFold(10, shuffle=True, random_state=FOLD_SEED)
    schemes = (stratified.split(x, y), GroupKFold(6).split(x, y, profile))
    return [
        float(cross_val_score(model, x, y, cv=folds).mean())
        for folds in map(list, schemes)
        for model in models
    ]


# ---------------------------------------------------------------------- k-means on nodes
def input_features(data: Numbers, cap: int = 100) -> np.ndarray:
    """[1, degree, one-hot degree, Â1, Â²1, Â³1] with Â = D^-½ (A + 1e-8 I) D^-½."""
    V = len(data.graph)
    looped = data.adjacency + 1e-8 * sp.identity(V)
    root = sp.diags(1.0 / np.sqrt(np.asarray(looped.sum(1)).ravel()))
    propagation = root @ looped @ root
    columns = [np.ones(V)]
    for _ in range(3):
        columns.append(propagation @ columns[-1])
    one_hot = np.eye(cap + 1)[np.minimum(data.degree, cap)]
    return np.column_stack([columns[0], data.degree, one_hot, *columns[1:]])


def kmeans_scores(store: GraphStore, data: Numbers, standardise: bool) -> list[float]:
    """NMI of one clustering of all nodes: with kinds over all nodes, with kinds and with parts per graph."""
    kind, part = store.truth["kind"].numpy(), store.truth["part"].numpy()
    x = input_features(data)
    if standardise:
        x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
    clusters = KMeans(len(np.unique(kind)), n_init=10, random_state=0).fit_predict(x)

    def within_graphs(truth: np.ndarray) -> float:
        graphs = [data.graph == g for g in range(len(data.y))]
        return float(np.mean([normalized_mutual_info_score(truth[at], clusters[at]) for at in graphs]))

    return [float(normalized_mutual_info_score(kind, clusters)), within_graphs(kind), within_graphs(part)]


# ---------------------------------------------------------------------- levels
def checksum(store: GraphStore) -> str:
    """sha256 of the arrays as little-endian 64-bit integers, in the order written here."""
    columns = [store.node_ptr, store.edge_ptr, store.neighbours, store.y]
    columns += [store.truth["part"], store.truth["kind"]]
    arrays = [column.numpy().astype("<i8") for column in columns if column is not None]
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def spread(values: np.ndarray) -> dict[str, float]:
    """Mean, minimum and maximum."""
    return {"mean": float(values.mean()), "min": int(values.min()), "max": int(values.max())}


def measure(level: str, seed: int) -> dict[str, Any]:
    """Sizes, accuracies and agreement of one level."""
    store = planted_parts(level, seed)  # type: ignore[arg-type]
    data = to_numbers(store)
    edges = np.bincount(data.graph, weights=data.degree).astype(int) // 2
    return {
        "level": level,
        "sha256": checksum(store),
        "nodes": spread(store.sizes.numpy()),
        "edges": spread(edges),
        "scaffold": float((store.truth["kind"] == 0).double().mean()),
        "accuracy": {name: accuracies(statistic(data), data.y) for name, statistic in STATISTICS.items()},
        "kmeans": {
            name: kmeans_scores(store, data, standardise)
            for name, standardise in (("as they are", False), ("standardised", True))
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = []
    for level in LEVELS:
        rows.append(measure(level, arguments.seed))
        print(json.dumps(rows[-1]), flush=True)
    record = {
        "command": "python -m benchmarks.measure_planted_statistics",
        "hardware": describe_hardware(),
        "versions": versions_and_commit(),
        "rows": rows,
    }
    write_atomically(arguments.out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
