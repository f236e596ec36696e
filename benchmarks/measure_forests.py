"""Accuracy of a forest on the folds of the paper's tables: ``wl-forest``, the baseline of the README, and others.

    python -m benchmarks.measure_forests --root DIR --jobs 2 --out results/wl-forest/summary.csv
    python -m benchmarks.measure_forests --model features-trees --protocol held-out paper --root DIR --jobs 2 \
        --out results/features-trees/summary.csv

A forest selects nothing. Under the held-out protocol it trains on the folds that HGCN trains on, eight of ten, and the
validation fold is left out; ``graphcaps evaluate DATASET --model wl-forest`` gives the same accuracies. Under the
paper's protocol it trains on nine folds. A file that exists keeps its rows of other data sets.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import graphcaps
from graphcaps._io.provenance import describe_hardware
from graphcaps.config import RunConfig
from graphcaps.models.builder import build_classical
from graphcaps.reproduction.published import paper_datasets

FOLDS_SEED = 12345
COLUMNS = ("dataset", "model", "protocol", "seed", "accuracy", "std_folds", "seconds", "hardware")


def measure(
    name: str, root: str | None, *, model: str, protocol: str, seed: int, jobs: int
) -> dict[str, object]:
    """Mean test accuracy over ten folds, as a row of the summary."""
    store = graphcaps.load_dataset(name, root=root)
    assert store.y is not None
    began = time.perf_counter()
    y = store.y.numpy()
    folds = graphcaps.stratified_folds(store.y, seed=FOLDS_SEED)
    accuracies = []
    for fold in range(folds.num_folds):
        split = folds.held_out(fold) if protocol == "held-out" else folds.paper(fold)
        train, test = split.train.numpy(), split.test.numpy()
        forest = build_classical(RunConfig(model=model), store.num_classes, seed=seed, jobs=jobs)
        forest.fit(store, train, y[train])
        predicted = forest.predict_proba(store, test).argmax(1)
        accuracies.append(100 * (predicted == y[test]).mean())
    seconds = time.perf_counter() - began
    mean, std = np.mean(accuracies), np.std(accuracies, ddof=1)
    print(f"{name} {protocol} seed {seed}: {mean:.2f} ± {std:.2f} ({seconds:.1f} s)", flush=True)
    numbers = (f"{mean:.2f}", f"{std:.2f}", f"{seconds:.1f}")
    return dict(zip(COLUMNS, (name, model, protocol, seed, *numbers, describe_hardware()), strict=True))


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """Writes the rows; those of other data sets that the file has are kept, in the order of the paper's tables."""
    names = {row["dataset"] for row in rows}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["dataset"] not in names] + rows
    order = paper_datasets()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: order.index(str(row["dataset"]))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="*", help="default: the paper's eleven")
    parser.add_argument("--model", default="wl-forest")
    parser.add_argument("--protocol", nargs="+", choices=("held-out", "paper"), default=["held-out"])
    parser.add_argument("--root", help="folder with the zips of the data sets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="threads that fit the forest")
    parser.add_argument("--out", type=Path, help="CSV to write")
    options = parser.parse_args()
    for name in options.datasets or paper_datasets():
        rows = [
            measure(name, options.root, model=options.model, protocol=protocol, seed=seed, jobs=options.jobs)
            for protocol in options.protocol
            for seed in range(options.seeds)
        ]
        if options.out:
            write(options.out, rows)


if __name__ == "__main__":
    main()
