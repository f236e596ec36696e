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
import torch

import graphcaps
from benchmarks.held_out_curves import held_out_curves
from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.config import RunConfig
from graphcaps.data.store import GraphStore
from graphcaps.estimator import HGCNClassifier
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.evaluation.epoch_selection import held_out
from graphcaps.evaluation.held_out_scores import HeldOutScores, held_out_scores
from graphcaps.evaluation.results_store import ResultsStore
from graphcaps.inference.probabilities import probabilities
from graphcaps.metrics import class_metrics
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.calibration import calibrate_probabilities, report_calibration
from graphcaps.training.device import choose_device

METRICS = ("accuracy", "balanced_accuracy", "roc_auc", "pr_auc", "mcc", "log_loss", "brier", "ece")
PATIENCE: int = HGCNClassifier().patience or 0


def calibrated_on_validation(held: HeldOutScores, probs: np.ndarray) -> dict[str, Any]:
    """Metrics with the temperature of each fold fitted on its validation set."""
    validation_probs = probabilities(torch.from_numpy(held.validation_scores), held.score_kind)
    calibrated = np.empty_like(probs)
    for fold in np.unique(held.fold):
        tested, used = held.fold == fold, held.validation_fold == fold
        calibrated[tested] = calibrate_probabilities(
            validation_probs[used], held.y[used], "temperature"
        ).apply(probs[tested])
    return class_metrics(held.y, calibrated)


def configured(name: str, arguments: argparse.Namespace, store: GraphStore) -> RunConfig:
    """The configuration of a data set."""
    preset = load_preset(arguments.preset, name)
    config = preset.with_training(epochs=arguments.epochs, precision=arguments.precision)
    return replace(resolve_config(config, store), dataset=name)


def measure(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The row of one data set and seed."""
    store = graphcaps.load_dataset(name)
    config = configured(name, arguments, store)
    start = time.perf_counter()
    held = held_out_scores(store, config, seed=seed, patience=PATIENCE, device=arguments.device)
    probs = probabilities(torch.from_numpy(held.scores), held.score_kind)
    correct = probs.argmax(1) == held.y
    folds = [100 * float(correct[held.fold == fold].mean()) for fold in np.unique(held.fold)]
    reports = {method: report_calibration(probs, held.y, held.fold, method)
          for method in ("temperature", "isotonic")}  # fmt: skip
    metrics = {
        "before": reports["temperature"].before,
        "temperature, other folds": reports["temperature"].after,
        "isotonic, other folds": reports["isotonic"].after,
        "temperature, own hold-out": calibrated_on_validation(held, probs),
    }
    return {
        "dataset": name,
        "seed": seed,
        "graphs": len(store),
        "accuracy": round(float(np.mean(folds)), 4),
        "folds": [round(value, 4) for value in folds],
        "epochs_kept": held.epochs.tolist(),
        "seconds": round(time.perf_counter() - start, 1),
        "probabilities": {
            way: {metric: values[metric] for metric in METRICS if metric in values}
            for way, values in metrics.items()
        },
        "patience": PATIENCE,
        "config": config.as_dict(),
        "versions": versions_and_commit(),
        "hardware": describe_hardware(choose_device(arguments.device, "measure_defaults")),
    }


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

    def take(name: str, seed: int) -> None:
        if time.perf_counter() - start > 60 * arguments.minutes:
            return
        row = measure(name, seed, arguments)
        with lock:
            rows.append(row)
            rows.sort(key=lambda each: (*sort_key(each["dataset"]), each["seed"]))
            write_atomically(arguments.out, rows_as_json(command(arguments), rows))
        print(name, seed, row["accuracy"], row["seconds"], "s", file=sys.stderr, flush=True)

    done = [
        (row["dataset"], row["seed"], RunConfig.from_dict(row["config"]).as_dict(), row["patience"])
        for row in rows
    ]
    tasks = []
    for name in arguments.datasets:
        config = configured(name, arguments, graphcaps.load_dataset(name)).as_dict()
        if any(key[0] == name and key[2:] != (config, PATIENCE) for key in done):
            raise SystemExit(f"{arguments.out} holds {name} under another configuration: name another file")
        finished_seeds = {key[1] for key in done if key[0] == name}
        tasks += [(seed, name) for seed in range(arguments.seeds) if seed not in finished_seeds]
    calls = [partial(take, name, seed) for seed, name in sorted(tasks, key=lambda task: task[0])]
    list(run_concurrently(calls, arguments.jobs, choose_device(arguments.device, "measure_defaults")))
    print(report(rows, arguments.paper))


if __name__ == "__main__":
    main()
