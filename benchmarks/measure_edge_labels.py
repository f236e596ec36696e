"""Held-out accuracy of the paper's preset with and without edge labels.

    python -m benchmarks.measure_edge_labels --device cuda --precision tf32

The published model ignores edge labels. Here each node counts the labels of its edges
(``FeatureRecipe(edge_labels="counts")``); everything else is the preset's, and nothing is tuned. Both use the same
folds and seeds; the records without edge labels are those of ``results/reproduction``.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

import graphcaps
from graphcaps._io.atomic_write import write_atomically
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.evaluation.cross_validation import CrossValidation
from graphcaps.evaluation.epoch_selection import held_out
from graphcaps.evaluation.record import RecordKey
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.evaluation.statistics import corrected_t_test, fold_ratio
from graphcaps.presets import load_preset
from graphcaps.training.device import choose_device

VARIANT = "edge-labels"
SETS = ("MUTAG", "PTC_MR")  # the paper's data sets with edge labels

COMMAND = "python -m benchmarks.measure_edge_labels --device cuda --precision tf32"


def accuracies(store: ResultsStore, name: str, variant: str, seeds: int) -> np.ndarray:
    """Held-out accuracy of every seed and fold, from 0 to 1, ``[S, F]``."""
    rows = []
    for seed in range(seeds):
        record = store.get(RecordKey(name, variant, "held-out", seed))
        if record is None:
            raise SystemExit(f"no record of {name}, {variant}, seed {seed}")
        curves = record.curves
        chosen = held_out(np.asarray(curves.validation_loss), np.asarray(curves.test_accuracy))
        rows.append(chosen.accuracies)
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="fewer epochs, for a quick run")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--report", action="store_true", help="only evaluate stored records")
    parser.add_argument("--without", type=Path, default=Path("results/reproduction"))
    parser.add_argument("--out", type=Path, default=Path("results/edge-labels"))
    arguments = parser.parse_args()
    results = ResultsStore(arguments.out)

    def train(name: str) -> None:
        preset = load_preset("paper", name).with_training(
            epochs=arguments.epochs, precision=arguments.precision
        )
        config = replace(preset, features=replace(preset.features, edge_labels="counts"))
        CrossValidation(
            graphcaps.load_dataset(name),
            config,
            seeds=arguments.seeds,
            device=arguments.device,
            variant=VARIANT,
            results=results,
            resume=True,
        ).run()

    if not arguments.report:
        device = choose_device(arguments.device, "edge_labels")
        list(run_concurrently([partial(train, name) for name in SETS], arguments.jobs, device))
    rows = []
    for name in SETS:
        labelled = accuracies(results, name, VARIANT, arguments.seeds)
        plain = accuracies(ResultsStore(arguments.without), name, "hgcn", arguments.seeds)
        test = corrected_t_test(labelled, plain, fold_ratio(plain.shape[1]))
        rows.append(
            {
                "dataset": name,
                "seeds": arguments.seeds,
                "with": round(100 * labelled.mean(), 2),
                "with, deviation over seeds": round(100 * labelled.mean(1).std(ddof=1), 2),
                "without": round(100 * plain.mean(), 2),
                "difference": round(test.difference, 2),
                "interval": [round(value, 2) for value in test.interval],
                "p": round(test.p, 3),
            }
        )
        print(json.dumps(rows[-1]))
    path, command = arguments.out / "comparison.json", COMMAND
    if arguments.report and path.exists():  # nothing was trained: the command of the records stays
        command = json.loads(path.read_text("utf-8"))["command"]
    write_atomically(path, json.dumps({"command": command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
