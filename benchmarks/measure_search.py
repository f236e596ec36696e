"""Time of a search in which trials are trained together, beside that of one trial after another.

    python -m benchmarks.measure_search --root DATA                                       # two CPU cores
    python -m benchmarks.measure_search --root DATA --device cuda --trials 64 --batch 64 --folds 10 --out FILE
    python -m benchmarks.measure_search --merge FILE                                      # into results/search.json

Both search MUTAG with the default space and the preset ``default``. The sampler is ``random``, so that Optuna is not
needed. First a few trials are trained together and alone, and their losses compared. ``alone`` trains trials one after
another to the last epoch, all folds of a trial together; by default every fourth trial, from which the time of all is
extrapolated. ``together`` is the search without dropping trials, ``search`` the search as it is. On a GPU ``first`` is
a search before it, in which kernels are compiled and loaded. Times are wall-clock seconds and CPU seconds of all
processes; on a machine with other load, compare the latter. ``results/search.json`` has one measurement per device;
``make pages`` writes the table of docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import graphcaps
from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.presets import load_preset
from graphcaps.search.successive_halving import BatchTrainer
from graphcaps.search.trial import Trial
from graphcaps.search.tuning import Search

RESULTS = Path("results/search.json")
_TOLERANCE = 2e-3
"""Of losses after three epochs in float32, trained together and alone."""


def measure(function: Callable[[], object]) -> dict[str, float]:
    """Wall-clock and CPU seconds of a call, child processes included."""
    began, cpu = time.perf_counter(), _cpu_seconds()
    function()
    return {"seconds": time.perf_counter() - began, "cpu_seconds": _cpu_seconds() - cpu}


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def trainer(search: Search, epochs: int) -> BatchTrainer:
    """Trains the trials of a search to the last of ``epochs``, without dropping any."""
    return BatchTrainer(
        search.store, search.resolved.with_training(epochs=epochs), search.space, search.folds,
        seed=search.seed, reduction=1, device=search.device,
    )  # fmt: skip


def check_equality(search: Search, trials: list[Trial]) -> float:
    """The largest difference between losses of trials that are trained together and alone, after three epochs."""
    few, threads = trials[:3], torch.get_num_threads()
    # In one process: otherwise other folds would be padded together, and rounding errors grow in float32.
    torch.set_num_threads(1)
    *_, together = trainer(search, 3).train(few)
    largest = 0.0
    for trial, joint in zip(few, together, strict=True):
        *_, [alone] = trainer(search, 3).train([trial])
        differences = [abs(a - b) for a, b in zip(alone.fold_losses, joint.fold_losses, strict=True)]
        largest = max(largest, *differences)
    torch.set_num_threads(threads)
    if largest > _TOLERANCE:
        raise SystemExit(f"Losses differ by {largest}: nothing is measured.")
    return largest


def read_results(path: Path) -> list[dict[str, Any]]:
    """The stored measurements; none if there is no file."""
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def merge(measured: dict[str, Any]) -> None:
    """Stores a measurement in place of that of the same device."""
    others = [each for each in read_results(RESULTS) if each["device"] != measured["device"]]
    rows = sorted([*others, measured], key=lambda each: each["device"])
    write_atomically(RESULTS, json.dumps(rows, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="folder with MUTAG.zip")
    parser.add_argument("--dataset", default="MUTAG")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--every", type=int, default=4, help="train every n-th trial alone; 0: none")
    parser.add_argument("--without", nargs="*", default=(), choices=("together",), help="leave a part out")
    parser.add_argument("--out", type=Path, help="write the results to a JSON file")
    parser.add_argument(
        "--merge", type=Path, help="add such a file to those of this repository; train nothing"
    )
    options = parser.parse_args()
    if options.merge is not None:
        merge(json.loads(options.merge.read_text("utf-8")))
        return
    store = graphcaps.load_dataset(options.dataset, root=options.root)
    config = load_preset("default").with_training(epochs=options.epochs)

    def make() -> Search:
        return Search(
            store, config, trials=options.trials, batch=options.batch, folds=options.folds,
            device=options.device, sampler="random",
        )  # fmt: skip

    search = make()
    trials = search._propose()
    results: dict[str, Any] = {
        "dataset": options.dataset,
        "device": options.device,
        "sampler": search.sampler,
        "trials": options.trials,
        "batch": search.batch,
        "folds": options.folds,
        "epochs": options.epochs,
        "rungs": list(search.trainer.rungs),
        "hardware": describe_hardware(search.device),
        "versions": versions_and_commit(),
        "largest_difference": check_equality(search, trials),
    }

    def write() -> None:
        text = json.dumps(results, indent=1)
        print(text, flush=True)
        if options.out is not None:
            write_atomically(options.out, text + "\n")

    if options.device == "cuda":
        results["first"] = measure(lambda: make().run())
    results["search"] = measure(lambda: make().run())
    write()
    if options.every:
        chosen = trials[:: options.every]
        spent = measure(lambda: [list(trainer(search, options.epochs).train([trial])) for trial in chosen])
        factor = options.trials / len(chosen)
        results["alone"] = {name: value * factor for name, value in spent.items()}
        results["alone"]["measured_trials"] = len(chosen)
        results["ratio"] = {
            name: results["alone"][name] / results["search"][name] for name in ("seconds", "cpu_seconds")
        }
        write()
    if "together" not in options.without:
        results["together"] = measure(lambda: list(trainer(search, options.epochs).train(trials)))
        write()


if __name__ == "__main__":
    main()
