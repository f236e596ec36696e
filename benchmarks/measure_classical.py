"""Accuracy of classical models on the folds of the paper's tables: forests and kernels.

    python -m benchmarks.measure_classical --root DIR --jobs 2 --out results/classical.csv
    python -m benchmarks.measure_classical --model wl --protocol held-out refitted --root DIR --jobs 2 \
        --out results/classical.csv

Under the held-out protocol a model is fitted to the folds that HGCN trains on, eight of ten; the fold before the test
fold selects the options of a kernel and is left out by a forest. ``graphcaps evaluate DATASET --model NAME`` gives the
same accuracies. Under the paper's protocol it is fitted to nine folds. ``refitted`` selects as under the held-out
protocol and then fits the model with the selected options to nine folds. A file that exists keeps its rows of other
models, data sets and protocols.
"""

from __future__ import annotations

import argparse
import csv
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

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


@dataclass
class Scores:
    """Test accuracies of the folds in percent, and seconds."""

    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0


def measure_fold(
    store: GraphStore, folds: Folds, fold: int, scores: dict[str, Scores], *, model: str, seed: int, jobs: int
) -> None:
    """Fits the model to the training graphs of a fold under each protocol, and adds its test accuracy and time."""
    assert store.y is not None
    y, nine, eight = store.y.numpy(), folds.paper(fold), folds.held_out(fold)
    assert eight.validation is not None
    build = partial(build_classical, num_classes=store.num_classes, seed=seed, jobs=jobs)

    def add(protocol: str, classifier: ClassicalModel, began: float) -> None:
        test = nine.test.numpy()
        right = classifier.predict_proba(store, test).argmax(1) == y[test]
        scores[protocol].accuracies.append(100 * right.mean())
        scores[protocol].seconds += time.perf_counter() - began

    began = time.perf_counter()
    if "held-out" in scores or "refitted" in scores:
        classifier = build(RunConfig(model=model))
        train, judge = eight.train.numpy(), eight.validation.numpy()
        classifier.fit(store, train, y[train], validation=ValidationGraphs(judge, y[judge]))
        if "held-out" in scores:
            add("held-out", classifier, began)
        selected = {
            name: int(value) if value == int(value) else value for name, value in classifier.selected.items()
        }
    train = nine.train.numpy()
    if "refitted" in scores:
        classifier = build(RunConfig(model=model, model_arguments=selected))
        classifier.fit(store, train, y[train])
        add("refitted", classifier, began)
    if "paper" in scores:
        began, classifier = time.perf_counter(), build(RunConfig(model=model))
        classifier.fit(store, train, y[train])
        add("paper", classifier, began)


def measure(
    name: str, root: str | None, *, model: str, protocols: list[str], seed: int, jobs: int
) -> list[dict[str, object]]:
    """Mean test accuracy over ten folds under each protocol, as rows of the summary."""
    store = graphcaps.load_dataset(name, root=root)
    folds = graphcaps.stratified_folds(store.y, seed=FOLDS_SEED)
    scores = {protocol: Scores() for protocol in protocols}
    for fold in range(folds.num_folds):
        measure_fold(store, folds, fold, scores, model=model, seed=seed, jobs=jobs)
    rows = []
    for protocol, found in scores.items():
        mean, std = np.mean(found.accuracies), np.std(found.accuracies, ddof=1)
        print(
            f"{name} {model} {protocol} seed {seed}: {mean:.2f} ± {std:.2f} ({found.seconds:.1f} s)",
            flush=True,
        )
        values = (name, model, protocol, seed, f"{mean:.2f}", f"{std:.2f}", f"{found.seconds:.1f}")
        rows.append(dict(zip(COLUMNS, (*values, describe_hardware()), strict=True)))
    return rows


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """Writes the rows, by model and in the order of the paper's tables; other models, data sets and protocols stay."""
    names = ("model", "dataset", "protocol")
    new = {tuple(row[name] for name in names) for row in rows}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            kept = [row for row in csv.DictReader(file) if tuple(row[name] for name in names) not in new]
            rows = [*kept, *rows]
    datasets = paper_datasets()

    def order(row: dict[str, object]) -> tuple[str, int, str, int]:
        place = datasets.index(str(row["dataset"]))
        return str(row["model"]), place, str(row["protocol"]), int(str(row["seed"]))

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=order))


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
            row
            for seed in range(options.seeds)
            for row in measure(
                name,
                options.root,
                model=options.model,
                protocols=options.protocol,
                seed=seed,
                jobs=options.jobs,
            )
        ]
        if options.out:
            write(options.out, rows)


if __name__ == "__main__":
    main()
