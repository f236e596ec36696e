"""How well probabilities agree with frequencies, before and after calibration, on held-out graphs.

    python benchmarks/calibration.py NCI1 PROTEINS --preset default --device cuda --out results/calibration.json

Trains the ten held-out folds of each data set together, keeps the weights of the epoch that counts, and pools the
scores of all tested graphs. Three ways are compared: a temperature and a staircase fitted on the other nine
folds, and a temperature fitted on the fold's own validation graphs, as a single training does it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

import graphcaps
from graphcaps.evaluation.calibration import calibrate_shares, report_calibration
from graphcaps.evaluation.metrics import class_metrics
from graphcaps.evaluation.scores import HeldOutScores, held_out_scores
from graphcaps.evaluation.versions import describe_hardware, versions
from graphcaps.files import write_atomically
from graphcaps.paper.presets import load_preset
from graphcaps.probability import probabilities

FIGURES = ("ece", "log_loss", "brier", "accuracy")


def own_hold_out(found: HeldOutScores, shares: np.ndarray) -> dict[str, float | None]:
    """Figures where each fold's temperature is fitted on its own validation graphs."""
    chosen = probabilities(torch.from_numpy(found.validation_scores), found.scores_are)
    after = np.empty_like(shares)
    for fold in np.unique(found.fold):
        own, used = found.fold == fold, found.validation_fold == fold
        after[own] = calibrate_shares(chosen[used], found.y[used], "temperature").apply(shares[own])
    known = class_metrics(found.y, after)
    return {name: known[name] for name in FIGURES}


def measure(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    """One data set."""
    store = graphcaps.load_dataset(name)
    config = load_preset(arguments.preset, name).with_training(
        epochs=arguments.epochs, precision=arguments.precision
    )
    began = time.perf_counter()

    def tell(event: object) -> None:
        if getattr(event, "epoch", 0) % 10 == 0:
            accuracy = 100 * float(np.mean(getattr(event, "test_accuracy", [0])))
            line = f"{name} epoch {getattr(event, 'epoch', 0)}: test {accuracy:.1f} %"
            print(f"{line}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)

    found = held_out_scores(
        store,
        config,
        seed=arguments.seed,
        patience=arguments.patience,
        device=arguments.device,
        on_epoch=tell,
    )
    shares = probabilities(torch.from_numpy(found.scores), found.scores_are)
    if arguments.scores is not None:
        arguments.scores.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(
            arguments.scores / f"{name}.npz",
            scores=found.scores,
            validation_scores=found.validation_scores,
            y=found.y,
            fold=found.fold,
            validation_fold=found.validation_fold,
        )
    reports = {method: report_calibration(shares, found.y, found.fold, method)
               for method in ("temperature", "isotonic")}  # fmt: skip
    return {
        "dataset": name,
        "graphs": len(store),
        "preset": config.source,
        "epochs": config.training.epochs,
        "patience": arguments.patience,
        "seed": arguments.seed,
        "epochs_kept": found.epochs.tolist(),
        "seconds": round(time.perf_counter() - began, 1),
        "before": reports["temperature"].before,
        "temperature, other folds": reports["temperature"].after,
        "isotonic, other folds": reports["isotonic"].after,
        "temperature, own hold-out": own_hold_out(found, shares),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--patience", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision")
    parser.add_argument("--scores", type=Path, help="folder for the scores of each graph")
    parser.add_argument("--out", type=Path, help="JSON file of figures; data sets in it are replaced")
    arguments = parser.parse_args()
    rows = [measure(name, arguments) for name in arguments.datasets]
    told = {"command": " ".join(["python", *sys.argv]), "versions": versions()}
    told["hardware"] = describe_hardware(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    for row in rows:
        print(json.dumps(row, indent=1))
    if arguments.out is not None:
        known = json.loads(arguments.out.read_text("utf-8"))["rows"] if arguments.out.exists() else []
        names = {row["dataset"] for row in rows}
        kept = [row for row in known if row["dataset"] not in names]
        rows = [*kept, *({**row, "made": told} for row in rows)]
        write_atomically(arguments.out, json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
