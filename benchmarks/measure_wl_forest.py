"""Accuracy of a simple baseline on the folds of the paper's tables: a random forest on Weisfeiler-Lehman counts.

    python -m benchmarks.measure_wl_forest --root DIR --jobs 2 --out results/wl-forest/summary.csv

A graph is described by how often each Weisfeiler-Lehman colour of its nodes occurs, after 0, 1 and 2 iterations from
the node labels (a constant where there are none). Colours that occur in fewer than max(3, G / 500) of the G graphs are
left out, and of the rest the 4,000 most frequent are kept; this uses no class. The forest is scikit-learn's with 500
trees and its other defaults. It selects nothing, so it trains on the folds of the held-out protocol that HGCN trains
on, eight of ten, and the validation fold is left out.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier

import graphcaps
from graphcaps._io.provenance import describe_hardware
from graphcaps.data.quality.weisfeiler_lehman import mix64
from graphcaps.reproduction.published import paper_datasets

ITERATIONS, MOST_COLUMNS, TREES, FOLDS_SEED = 2, 4000, 500, 12345
COLUMNS = ("dataset", "model", "protocol", "seed", "accuracy", "std_folds", "seconds", "hardware")


def wl_counts(store: graphcaps.GraphStore) -> sparse.csr_matrix:
    """Counts of Weisfeiler-Lehman colours, ``[G, colours]``."""
    sizes = store.sizes.numpy()
    graph = np.repeat(np.arange(len(store)), sizes)
    degree = np.diff(store.edge_ptr.numpy())
    node = np.repeat(np.arange(store.num_nodes), degree)
    neighbour = store.neighbours.numpy() + np.repeat(np.repeat(store.node_ptr.numpy()[:-1], sizes), degree)
    colours = np.zeros(store.num_nodes, np.uint64)
    if store.node_labels is not None:
        for column in store.node_labels.reshape(store.num_nodes, -1).unbind(1):
            colours = mix64(colours + mix64(column.long().numpy().view(np.uint64)))
    blocks = [_count(colours, graph, len(store))]
    for _ in range(ITERATIONS):
        sums = np.zeros_like(colours)
        np.add.at(sums, node, mix64(colours)[neighbour])
        colours = mix64(colours + mix64(sums))
        blocks.append(_count(colours, graph, len(store)))
    counts = sparse.hstack(blocks).tocsc()
    occurs = np.diff(counts.indptr)
    kept = np.flatnonzero(occurs >= max(3, len(store) / 500))
    kept = np.sort(kept[np.argsort(-occurs[kept], kind="stable")[:MOST_COLUMNS]])
    return counts[:, kept].tocsr()


def _count(colours: NDArray[np.uint64], graph: NDArray[np.int64], graphs: int) -> sparse.csr_matrix:
    values, column = np.unique(colours, return_inverse=True)
    ones = np.ones(len(colours), np.float32)
    return sparse.csr_matrix((ones, (graph, column)), shape=(graphs, len(values)))


def measure(name: str, root: str | None, seeds: int, jobs: int) -> list[dict[str, object]]:
    store = graphcaps.load_dataset(name, root=root)
    assert store.y is not None
    began = time.perf_counter()
    x, y = wl_counts(store), store.y.numpy()
    folds = graphcaps.stratified_folds(store.y, seed=FOLDS_SEED)
    rows = []
    for seed in range(seeds):
        accuracies = []
        for fold in range(folds.num_folds):
            split = folds.held_out(fold)
            forest = RandomForestClassifier(TREES, n_jobs=jobs, random_state=seed)
            forest.fit(x[split.train.numpy()], y[split.train.numpy()])
            accuracies.append(100 * forest.score(x[split.test.numpy()], y[split.test.numpy()]))
        seconds = time.perf_counter() - began
        mean, std = np.mean(accuracies), np.std(accuracies, ddof=1)
        values = (
            name,
            "wl-forest",
            "held-out",
            seed,
            f"{mean:.2f}",
            f"{std:.2f}",
            f"{seconds:.1f}",
            describe_hardware(),
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        print(
            f"{name} seed {seed}: {mean:.2f} ± {std:.2f} ({x.shape[1]} columns, {seconds:.1f} s)", flush=True
        )
        began = time.perf_counter()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="*", help="default: the paper's eleven")
    parser.add_argument("--root", help="folder with the zips of the data sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes of the forest")
    parser.add_argument("--out", type=Path, help="CSV to write")
    options = parser.parse_args()
    names = options.datasets or paper_datasets()
    rows = [row for name in names for row in measure(name, options.root, options.seeds, options.jobs)]
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
