"""Accuracy of the model ``wl-forest`` on the folds of the paper's tables: the simple baseline of the README.

    python -m benchmarks.measure_wl_forest --root DIR --jobs 2 --out results/wl-forest/summary.csv

The forest selects nothing, so it trains on the folds of the held-out protocol that HGCN trains on, eight of ten, and
the validation fold is left out. ``graphcaps evaluate DATASET --model wl-forest`` gives the same accuracies.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

import graphcaps
from graphcaps._io.provenance import describe_hardware
from graphcaps.models.wl_forest import WLForest
from graphcaps.reproduction.published import paper_datasets

FOLDS_SEED = 12345
COLUMNS = ("dataset", "model", "protocol", "seed", "accuracy", "std_folds", "seconds", "hardware")


def measure(name: str, root: str | None, seeds: int, jobs: int) -> list[dict[str, object]]:
    store = graphcaps.load_dataset(name, root=root)
    assert store.y is not None
    began = time.perf_counter()
    y = store.y.numpy()
    folds = graphcaps.stratified_folds(store.y, seed=FOLDS_SEED)
    rows = []
    for seed in range(seeds):
        accuracies = []
        for fold in range(folds.num_folds):
            split = folds.held_out(fold)
            train, test = split.train.numpy(), split.test.numpy()
            model = WLForest(store.num_classes, seed=seed, jobs=jobs)
            model.fit(store, train, y[train])
            predicted = model.predict_proba(store, test).argmax(1)
            accuracies.append(100 * (predicted == y[test]).mean())
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
        print(f"{name} seed {seed}: {mean:.2f} ± {std:.2f} ({seconds:.1f} s)", flush=True)
        began = time.perf_counter()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="*", help="default: the paper's eleven")
    parser.add_argument("--root", help="folder with the zips of the data sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="threads that fit the forest")
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
