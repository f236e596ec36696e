"""Quality report of the paper's eleven data sets: duplicates, leakage across folds, class balance.

    python -m benchmarks.measure_quality --root DIR            # writes results/data-quality.json

The result depends neither on random numbers nor on a time limit; a pair of graphs that takes too many steps counts as
undecided. ``make pages`` writes the tables of docs/data-quality.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from graphcaps._io.atomic_write import write_atomically
from graphcaps.data.datasets.catalogue import CATALOGUE
from graphcaps.data.datasets.loading import load_dataset
from graphcaps.data.quality.duplicates import find_duplicates, fold_leakage
from graphcaps.data.quality.quality_report import quality_report
from graphcaps.data.splits.folds import stratified_folds
from graphcaps.data.store import GraphStore

RESULTS = Path(__file__).resolve().parents[1] / "results" / "data-quality.json"


def measure(store: GraphStore) -> dict[str, Any]:
    """The row of one data set."""
    assert store.y is not None
    start = time.perf_counter()
    report = quality_report(store)
    sizes = store.sizes
    counts = np.bincount(store.y.numpy())
    row = {
        "name": store.name,
        "graphs": len(store),
        "classes": store.num_classes,
        "largest_class": round(float(counts.max() / len(store)), 4),
        "smallest_class": int(counts.min()),
        "nodes": [int(sizes.min()), int(sizes.median()), int(sizes.max())],
        "isolated_nodes": int((store.degree == 0).sum()),
        "conflicting_groups": len(report.duplicates.conflicts(store.y)[0]),
        **report.as_dict(),
        "without_edge_labels": without_edges(store),
        "grouped_folds": grouped(store, report.duplicates.group_ids()),
    }
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def without_edges(store: GraphStore) -> dict[str, Any] | None:
    """Duplicates without edge labels, attributes and weights, as the published model sees graphs."""
    if store.edge_labels is None and store.edge_attributes is None and store.edge_weight is None:
        return None
    duplicates = find_duplicates(store, edges=False)
    assert store.y is not None
    groups, lost = duplicates.conflicts(store.y)
    shares = fold_leakage(stratified_folds(store.y), duplicates.group_ids(undecided=False))
    return {
        "graphs": duplicates.num_duplicates,
        "groups": len(duplicates.groups),
        "conflicting_groups": len(groups),
        "ceiling": round(1 - lost / len(store), 4),
        "leakage": round(float(np.mean(shares)), 4),
    }


def grouped(store: GraphStore, groups: np.ndarray) -> dict[str, Any]:
    """Sizes and leakage of folds that keep duplicates together."""
    folds = stratified_folds(store.y, groups=groups)
    sizes = np.bincount(folds.assignment.numpy(), minlength=folds.num_folds)
    leak = float(np.mean(fold_leakage(folds, groups)))
    return {"smallest": int(sizes.min()), "largest": int(sizes.max()), "leakage": leak}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder to look in first for the data sets")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = []
    for name, entry in CATALOGUE.items():
        if not entry.embedded:
            rows.append(measure(load_dataset(name, arguments.root)))
            print(f"{name}: {rows[-1]['seconds']} s", flush=True)
    write_atomically(arguments.out, json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
