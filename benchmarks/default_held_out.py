"""Held-out accuracy of the default preset, beside that of each data set's own paper preset.

    python benchmarks/default_held_out.py --device cuda --precision tf32 --out results/defaults

Trains what ``HGCNClassifier()`` trains, in the ten held-out folds of ``graphcaps evaluate``: nine tenths of a
classifier's graphs to learn from and one to choose by are here eight folds and one. All folds of a data set are
one training, so that a GPU is busy. Records hold every epoch, so that both rules are read from them: the
held-out rule of ``graphcaps evaluate``, and the one of the classifier, which stops 50 epochs after the best.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import graphcaps
from graphcaps.evaluation.cross_validation import CrossValidation
from graphcaps.evaluation.record import RecordKey
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.evaluation.selection import WINDOW, held_out
from graphcaps.files import write_atomically
from graphcaps.paper.presets import load_preset
from graphcaps.paper.tables import paper_datasets

PATIENCE = 50


def stopped_early(loss: np.ndarray, accuracy: np.ndarray, patience: int = PATIENCE) -> np.ndarray:
    """Test accuracy of each fold at the epoch that the classifier would have kept, ``[F]``.

    That is the epoch of lowest validation loss, mean of the last 21, before patience runs out.
    """
    found = []
    for losses, accuracies in zip(loss, accuracy, strict=True):
        best, kept = np.inf, 0
        for epoch in range(min(WINDOW, len(losses)), len(losses) + 1):
            mean = losses[max(0, epoch - WINDOW) : epoch].mean()
            if mean < best:
                best, kept = mean, epoch
            if epoch - kept >= patience:
                break
        found.append(accuracies[kept - 1])
    return np.array(found)


def figures(folder: Path, name: str, variant: str, seeds: int) -> dict[str, float] | None:
    """Accuracies in percent from the records of a folder; ``None`` where there are none."""
    store = ResultsStore(folder)
    chosen, early = [], []
    for seed in range(seeds):
        record = store.get(RecordKey(name, variant, "held-out", seed))
        if record is None:
            return None
        loss, accuracy = np.asarray(record.curves.validation_loss), np.asarray(record.curves.test_accuracy)
        chosen.append(held_out(loss, accuracy).mean)
        early.append(100 * stopped_early(loss, accuracy).mean())
    return {"held-out": float(np.mean(chosen)), "as the classifier stops": float(np.mean(early))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="*", default=list(paper_datasets()))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="for a trial")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision")
    parser.add_argument("--out", type=Path, default=Path("results/defaults"))
    parser.add_argument("--paper", type=Path, default=Path("results/paper"), help="records to compare with")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.datasets:
        store = graphcaps.load_dataset(name)
        config = load_preset("default").with_training(epochs=arguments.epochs, precision=arguments.precision)
        results = ResultsStore(arguments.out)
        CrossValidation(
            store,
            replace(config, dataset=name),
            seeds=arguments.seeds,
            device=arguments.device,
            results=results,
            resume=True,
        ).run()
        ours = figures(arguments.out, name, "hgcn", arguments.seeds)
        paper = figures(arguments.paper, name, "hgcn", 1)
        assert ours is not None
        behind = None if paper is None else round(paper["held-out"] - ours["held-out"], 2)
        row = {"dataset": name, "default": ours, "paper preset": paper, "points behind": behind}
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
    near = sum(row["points behind"] is not None and row["points behind"] <= 1 for row in rows)
    told = {"command": " ".join(["python", *sys.argv]), "within one point": near, "rows": rows}
    write_atomically(arguments.out / "summary.json", json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
