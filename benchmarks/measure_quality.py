"""What the doctor finds in the paper's eleven data sets: ``results/doctor.json``, and the tables of docs/doctor.md.

    python -m benchmarks.measure_quality --root DIR            # looks the sets over and writes the file
    python -m benchmarks.measure_quality --tables              # prints the tables from the file

Nothing depends on chance or on a limit of time; a pair of graphs that takes too many steps is told as undecided.
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

RESULTS = Path(__file__).resolve().parents[1] / "results" / "doctor.json"


def look_over(store: GraphStore) -> dict[str, Any]:
    """What is kept of one data set."""
    assert store.y is not None
    start = time.perf_counter()
    found = quality_report(store)
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
        "conflicting_groups": len(found.duplicates.conflicts(store.y)[0]),
        **found.as_dict(),
        "without_edge_labels": without_edges(store),
        "grouped_folds": grouped(store, found.duplicates.group_ids()),
    }
    return row | {"seconds": round(time.perf_counter() - start, 1)}


def without_edges(store: GraphStore) -> dict[str, Any] | None:
    """Copies as the published model sees graphs, where edges have labels, attributes or weights."""
    if store.edge_labels is None and store.edge_attributes is None and store.edge_weight is None:
        return None
    found = find_duplicates(store, edges=False)
    assert store.y is not None
    groups, lost = found.conflicts(store.y)
    shares = fold_leakage(stratified_folds(store.y), found.group_ids(undecided=False))
    return {
        "graphs": found.num_duplicates,
        "groups": len(found.groups),
        "conflicting_groups": len(groups),
        "ceiling": round(1 - lost / len(store), 4),
        "leakage": round(float(np.mean(shares)), 4),
    }


def grouped(store: GraphStore, groups: np.ndarray) -> dict[str, Any]:
    """Folds that keep copies together: their sizes, and that nothing leaks."""
    folds = stratified_folds(store.y, groups=groups)
    sizes = np.bincount(folds.assignment.numpy(), minlength=folds.num_folds)
    leak = float(np.mean(fold_leakage(folds, groups)))
    return {"smallest": int(sizes.min()), "largest": int(sizes.max()), "leakage": leak}


def tables(rows: list[dict[str, Any]]) -> str:
    """The two tables of the page."""
    lines = [
        "| data set | graphs | with a copy | groups | test graphs with a copy | groups with different classes "
        "| at most |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        copies, leak = row["duplicates"], row["leakage"]
        lines.append(
            f"| {row['name']} | {row['graphs']:,} | {copies['graphs']:,} | {copies['groups']} | {leak['mean']:.1%} "
            f"({leak['min']:.1%} to {leak['max']:.1%}) | {row['conflicting_groups']} | {row['ceiling']:.1%} |"
        )
    lines += [
        "",
        "| data set | largest class | smallest class | nodes: least, median, most | isolated nodes | folds with copies "
        "together |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        folds, nodes = row["grouped_folds"], " / ".join(f"{count:,}" for count in row["nodes"])
        lines.append(
            f"| {row['name']} | {row['largest_class']:.1%} | {row['smallest_class']:,} graphs | {nodes} | "
            f"{row['isolated_nodes']:,} | {folds['smallest']} to {folds['largest']} graphs |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    if not arguments.tables:
        rows = []
        for name, entry in CATALOGUE.items():
            if not entry.embedded:
                rows.append(look_over(load_dataset(name, arguments.root)))
                print(f"{name}: {rows[-1]['seconds']} s", flush=True)
        write_atomically(RESULTS, json.dumps({"rows": rows}, indent=1, ensure_ascii=False) + "\n")
    print(tables(json.loads(RESULTS.read_text("utf-8"))["rows"]))


if __name__ == "__main__":
    main()
