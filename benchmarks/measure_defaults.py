"""Held-out accuracy and calibration of ``HGCNClassifier()`` with its defaults.

    python -m benchmarks.measure_defaults --seeds 5 --jobs 3 --device cuda --precision tf32

Trains the default preset with the classifier's patience in the ten held-out folds of ``graphcaps evaluate``, all folds
of a data set together: eight folds train and one is the validation set. Accuracies are compared with those of the
paper's preset in ``results/reproduction``. Probabilities are compared before and after calibration, in three ways:
temperature scaling and isotonic calibration fitted on the other nine folds, and temperature scaling fitted on the
validation set of the fold, as a single training does it. Rows in the file with the same configuration are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

import graphcaps
from benchmarks.held_out_curves import held_out_curves
from graphcaps._io.atomic_write import write_atomically
from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.estimator import HGCNClassifier
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.evaluation.epoch_selection import held_out
from graphcaps.evaluation.graph_predictions import GraphPredictions
from graphcaps.evaluation.ledger import choose_epochs
from graphcaps.evaluation.record import SeedRecord
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.metrics import class_metrics
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.calibration import calibrate_probabilities, report_calibration
from graphcaps.training.device import choose_device

METRICS = ("accuracy", "balanced_accuracy", "roc_auc", "pr_auc", "mcc", "log_loss", "brier", "ece")
PATIENCE: int = HGCNClassifier().patience or 0
SELECTION = "centred mean"
"""Rule of ``graphcaps evaluate`` for the epoch; rows without one were selected by the mean of the last epochs."""


def calibrated_on_validation(found: GraphPredictions) -> dict[str, Any]:
    """Metrics of the test graphs with the temperature of each fold fitted on its validation set."""
    calibrated, test = found.probabilities.copy(), found.part == 1
    for fold in np.unique(found.fold):
        tested, used = (found.fold == fold) & test, (found.fold == fold) & ~test
        calibration = calibrate_probabilities(found.probabilities[used], found.y[used], "temperature")
        calibrated[tested] = calibration.apply(found.probabilities[tested])
    return class_metrics(found.y[test], calibrated[test])


def configured(name: str, arguments: argparse.Namespace, store: GraphStore) -> RunConfig:
    """The configuration of a data set."""
    preset = load_preset(arguments.preset, name)
    config = preset.with_training(epochs=arguments.epochs, precision=arguments.precision)
    return replace(resolve_config(config, store), dataset=name)


def measure(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one data set, of all seeds."""
    store = graphcaps.load_dataset(name)
    config = configured(name, arguments, store)
    ledger = graphcaps.cross_validate(
        store, config, seeds=arguments.seeds, patience=PATIENCE, predictions=True, device=arguments.device
    )
    return [row_of(record) for record in ledger.records]


def row_of(record: SeedRecord) -> dict[str, Any]:
    """The row of one data set and seed."""
    found = record.predictions
    assert found is not None
    test = found.part == 1
    p, y, fold = found.probabilities[test], found.y[test], found.fold[test]
    choice = choose_epochs(record)["held-out"]
    reports = {method: report_calibration(p, y, fold, method)
          for method in ("temperature", "isotonic")}  # fmt: skip
    metrics = {
        "before": reports["temperature"].before,
        "temperature, other folds": reports["temperature"].after,
        "isotonic, other folds": reports["isotonic"].after,
        "temperature, own hold-out": calibrated_on_validation(found),
    }
    return {
        "dataset": record.key.dataset,
        "seed": record.key.seed,
        "graphs": record.data.graphs,
        "accuracy": round(choice.mean, 4),
        "folds": [round(100 * value, 4) for value in choice.accuracies.tolist()],
        "epochs_kept": choice.epochs.tolist(),
        "seconds": round(record.seconds, 1),
        "probabilities": {
            way: {metric: values[metric] for metric in METRICS if metric in values}
            for way, values in metrics.items()
        },
        "patience": PATIENCE,
        "selection": SELECTION,
        "config": record.config.as_dict(),
        "versions": record.versions,
        "hardware": record.hardware,
    }


def rule_of(row: Mapping[str, Any]) -> tuple[int, str | None]:
    """Patience and rule for the epoch of a stored row."""
    return row["patience"], row.get("selection")


def paper_preset(name: str, folder: Path) -> list[float]:
    """Held-out accuracy of the paper's preset in percent, of every stored seed."""
    return [
        held_out(np.asarray(curves.validation_loss), np.asarray(curves.test_accuracy)).mean
        for curves in held_out_curves(ResultsStore(folder), name)
    ]


def sort_key(name: str) -> tuple[int, str]:
    """Sort key of a data set: the paper's in its order, then others by name."""
    names = paper_datasets()
    return (names.index(name), "") if name in names else (len(names), name)


def command(arguments: argparse.Namespace) -> str:
    """The command that repeats these rows."""
    others = [name for name in arguments.datasets if name not in paper_datasets()]
    parts = ["python -m benchmarks.measure_defaults", *others]
    parts += [f"--preset {arguments.preset}"] if arguments.preset != "default" else []
    parts += [f"--seeds {arguments.seeds} --jobs {arguments.jobs} --device {arguments.device}"]
    parts += [f"--precision {arguments.precision}"] if arguments.precision else []
    parts += [f"--out {arguments.out}"] if others else []
    return " ".join(parts)


def report(rows: list[dict[str, Any]], paper: Path) -> str:
    """A line per data set: default, paper preset, difference, and calibration."""
    lines, near = [], 0
    for name in paper_datasets():
        dataset_rows = [row for row in rows if row["dataset"] == name]
        paper_accuracies = paper_preset(name, paper)
        if not dataset_rows or not paper_accuracies:
            continue
        mean, paper_mean = np.mean([row["accuracy"] for row in dataset_rows]), np.mean(paper_accuracies)
        near += bool(mean >= paper_mean - 1)
        ways = dataset_rows[0]["probabilities"]
        shown = ", ".join(
            f"{metric} {ways['before'][metric]:.3f} → {ways['temperature, other folds'][metric]:.3f}"
            for metric in ("ece", "log_loss", "brier")
        )
        lines.append(
            f"{name:14} {mean:6.2f} ({len(dataset_rows)} seeds)  "
            f"paper preset {paper_mean:6.2f} ({len(paper_accuracies)} seeds)  "
            f"{mean - paper_mean:+.2f}  {shown}"
        )
    others = sorted({row["dataset"] for row in rows} - set(paper_datasets()))
    accuracies = [(name, [row["accuracy"] for row in rows if row["dataset"] == name]) for name in others]
    beyond = [
        f"{name:20} {np.mean(dataset_rows):6.2f} ({len(dataset_rows)} seeds)"
        for name, dataset_rows in accuracies
    ]
    return "\n".join([*lines, f"within one point: {near} of {len(lines)}", *beyond])


def rows_as_json(command: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The file of results, a line per row."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    return f'{{"command": {json.dumps(command)}, "rows": [\n{lines}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="*", default=list(paper_datasets()))
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, help="fewer epochs, for a quick run")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start no training after this time")
    parser.add_argument("--paper", type=Path, default=Path("results/reproduction"))
    parser.add_argument("--out", type=Path, default=Path("results/defaults.json"))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = (
        json.loads(arguments.out.read_text("utf-8"))["rows"] if arguments.out.exists() else []
    )
    start, lock = time.perf_counter(), Lock()

    def take(name: str) -> None:
        if time.perf_counter() - start > 60 * arguments.minutes:
            return
        measured = measure(name, arguments)
        with lock:
            rows[:] = [row for row in rows if row["dataset"] != name] + measured
            rows.sort(key=lambda each: (*sort_key(each["dataset"]), each["seed"]))
            write_atomically(arguments.out, rows_as_json(command(arguments), rows))
        for row in measured:
            print(name, row["seed"], row["accuracy"], row["seconds"], "s", file=sys.stderr, flush=True)

    done = [
        (row["dataset"], row["seed"], RunConfig.from_dict(row["config"]).as_dict(), *rule_of(row))
        for row in rows
    ]
    tasks = []
    for name in arguments.datasets:
        config = configured(name, arguments, graphcaps.load_dataset(name)).as_dict()
        if any(key[0] == name and key[2:] != (config, PATIENCE, SELECTION) for key in done):
            raise SystemExit(
                f"{arguments.out} holds {name} under another configuration or rule for the epoch: name another file"
            )
        finished_seeds = {key[1] for key in done if key[0] == name}
        if not set(range(arguments.seeds)) <= finished_seeds:
            tasks.append(name)
    calls = [partial(take, name) for name in tasks]
    list(run_concurrently(calls, arguments.jobs, choose_device(arguments.device, "measure_defaults")))
    print(report(rows, arguments.paper))


if __name__ == "__main__":
    main()
