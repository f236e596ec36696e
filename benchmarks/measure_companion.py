"""Held-out results of networks with companions beside those of their parts, on the data sets of the paper.

    python -m benchmarks.measure_companion --root DIR --device cuda --ensemble 5 --budget 1500 --out results/companion
    python -m benchmarks.measure_companion MUTAG PTC_MR --root DIR --device cpu --out results/companion

Each data set is one cross-validation with the preset ``default`` (``graphcaps evaluate NAME --preset default
--companion …``): network or committee, companions, and inner trainings where the validation folds are small. Records
stay in the working folder, so that a further call goes on where the first one stopped; a data set is begun only if the
seconds of the budget are not used up. The result of each data set is a file of its own in ``--out``, with accuracy,
log loss and ECE of every part and of the mixture, weights of every fold, CPU seconds, versions and hardware.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import graphcaps
from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import versions_and_commit
from graphcaps.evaluation import CrossValidation, ResultsStore
from graphcaps.presets import load_preset
from graphcaps.reproduction.published import paper_datasets

COMPANIONS = "wl-forest"


def file_name(dataset: str, companions: str, members: int) -> str:
    """Name of the result of a data set, such as ``MUTAG-5-wl-forest+features-trees.json``."""
    return f"{dataset}-{members}-{companions.replace(',', '+')}.json"


def measure(dataset: str, options: argparse.Namespace) -> dict[str, Any]:
    """Runs the cross-validation of one data set and returns its results, JSON-safe."""
    store = graphcaps.load_dataset(dataset, root=options.root)
    config = load_preset("default", store.name)
    began, cpu = time.perf_counter(), time.process_time()
    validation = CrossValidation(
        store,
        config,
        seeds=options.seeds,
        device=options.device,
        results=ResultsStore(options.records),
        resume=True,
        patience=options.patience or None,
        members=options.ensemble,
        companion=options.companion,
    )
    ledger = validation.run()
    results = ledger.mixture(options.ensemble)
    return {
        "dataset": dataset,
        "preset": "default",
        "companion": options.companion,
        "members": options.ensemble,
        "seeds": options.seeds,
        "patience": options.patience or None,
        "graphs": len(store),
        "results": results.as_dict(),
        "network_seconds": round(ledger.seconds, 1),
        "companion_seconds": round(results.seconds, 1),
        "wall_seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "hardware": ledger.hardware,
        "versions": versions_and_commit(),
        "command": command(dataset, options),
    }


def command(dataset: str, options: argparse.Namespace) -> str:
    """The command of a user that gives the same results."""
    words = ["graphcaps evaluate", dataset, "--preset default", f"--companion {options.companion}"]
    words += [f"--ensemble {options.ensemble}"] if options.ensemble > 1 else []
    words += [f"--seeds {options.seeds}"] if options.seeds > 1 else []
    words += [f"--patience {options.patience}"] if options.patience else []
    return " ".join([*words, f"--device {options.device}"])


def show(found: dict[str, Any]) -> str:
    """One line per part and for the mixture."""
    results = found["results"]
    lines = [f"{found['dataset']}, members {found['members']}, {found['cpu_seconds']} CPU s"]
    weights = [*results["weights"]["mean"], None]
    for part, weight in zip((*results["parts"], results["mixture"]), weights, strict=True):
        ece, loss = ((part[name] or {}).get("mean") for name in ("ece", "log_loss"))
        of = "" if weight is None else f", weight {weight:.2f}"
        lines.append(
            f"  {part['name']}: {100 * part['accuracy']['mean']:.2f}, log loss {loss}, ECE {ece}{of}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="*", help="default: the paper's eleven")
    parser.add_argument("--root", help="folder with the zips of the data sets")
    parser.add_argument("--companion", default=COMPANIONS, help="names of classical models, with commas")
    parser.add_argument("--ensemble", type=int, default=1, help="members of the network's committee")
    parser.add_argument("--seeds", type=int, default=1, help="number of networks or committees")
    parser.add_argument("--patience", type=int, default=0, help="epochs without progress; 0: all epochs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budget", type=float, help="seconds after which no further data set is begun")
    parser.add_argument("--records", type=Path, default=Path("companion-records"), help="working folder")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    options = parser.parse_args()
    began = time.perf_counter()
    for dataset in options.datasets or paper_datasets():
        path = options.out / file_name(dataset, options.companion, options.ensemble)
        if path.exists():
            continue
        if options.budget is not None and time.perf_counter() - began > options.budget:
            print(f"{dataset}: left out, the budget of {options.budget:g} s is used up", flush=True)
            continue
        found = measure(dataset, options)
        options.out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(show(found), flush=True)


if __name__ == "__main__":
    main()
