"""Accuracy of classical models on the folds of the paper's tables: forests and kernels.

    python -m benchmarks.measure_classical --root DIR --jobs 2 --out results/wl-forest/summary.csv
    python -m benchmarks.measure_classical --model wl --protocol held-out refitted --root DIR --jobs 2 \
        --out results/wl/summary.csv

Under the held-out protocol a model is fitted to the folds that HGCN trains on, eight of ten; the fold before the test
fold selects the options of a kernel and is left out by a forest. ``graphcaps evaluate DATASET --model NAME`` gives the
same accuracies. Under the paper's protocol it is fitted to nine folds. ``refitted`` selects as under the held-out
protocol and then fits the model with the selected options to nine folds. A file that exists keeps its rows of other
data sets and protocols.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import graphcaps
from graphcaps._io.provenance import describe_hardware
from graphcaps.config import RunConfig
from graphcaps.data.splits.folds import Folds
from graphcaps.data.store import GraphStore
from graphcaps.models import ClassicalModel, ValidationGraphs
from graphcaps.models.builder import build_classical
from graphcaps.reproduction.published import paper_datasets

FOLDS_SEED = 12345
COLUMNS = ("dataset", "model", "protocol", "seed", "accuracy", "std_folds", "seconds", "hardware")
PROTOCOLS = ("held-out", "paper", "refitted")


def fit_fold(
    store: GraphStore, folds: Folds, fold: int, *, model: str, protocol: str, seed: int, jobs: int
) -> tuple[ClassicalModel, NDArray[np.int64]]:
    """The model fitted to the training graphs of a fold, and its test graphs."""
    assert store.y is not None
    y, nine = store.y.numpy(), folds.paper(fold)
    eight = folds.held_out(fold)
    assert eight.validation is not None
    classifier = build_classical(RunConfig(model=model), store.num_classes, seed=seed, jobs=jobs)
    if protocol != "paper":
        train, judge = eight.train.numpy(), eight.validation.numpy()
        classifier.fit(store, train, y[train], validation=ValidationGraphs(judge, y[judge]))
    if protocol == "refitted":
        fixed = {
            name: int(value) if value == int(value) else value for name, value in classifier.selected.items()
        }
        config = RunConfig(model=model, model_arguments=fixed)
        classifier = build_classical(config, store.num_classes, seed=seed, jobs=jobs)
    if protocol != "held-out":
        train = nine.train.numpy()
        classifier.fit(store, train, y[train])
    return classifier, nine.test.numpy()


def measure(
    name: str, root: str | None, *, model: str, protocol: str, seed: int, jobs: int
) -> dict[str, object]:
    """Mean test accuracy over ten folds, as a row of the summary."""
    store = graphcaps.load_dataset(name, root=root)
    assert store.y is not None
    began, y = time.perf_counter(), store.y.numpy()
    folds = graphcaps.stratified_folds(store.y, seed=FOLDS_SEED)
    accuracies = []
    for fold in range(folds.num_folds):
        classifier, test = fit_fold(store, folds, fold, model=model, protocol=protocol, seed=seed, jobs=jobs)
        accuracies.append(100 * (classifier.predict_proba(store, test).argmax(1) == y[test]).mean())
    seconds = time.perf_counter() - began
    mean, std = np.mean(accuracies), np.std(accuracies, ddof=1)
    print(f"{name} {model} {protocol} seed {seed}: {mean:.2f} ± {std:.2f} ({seconds:.1f} s)", flush=True)
    numbers = (f"{mean:.2f}", f"{std:.2f}", f"{seconds:.1f}")
    return dict(zip(COLUMNS, (name, model, protocol, seed, *numbers, describe_hardware()), strict=True))


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """Writes the rows; those of other data sets and protocols are kept, in the order of the paper's tables."""
    new = {(row["dataset"], row["protocol"]) for row in rows}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            kept = [row for row in csv.DictReader(file) if (row["dataset"], row["protocol"]) not in new]
            rows = [*kept, *rows]
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
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=["held-out"])
    parser.add_argument("--root", help="folder with the zips of the data sets")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="threads of a fit")
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
