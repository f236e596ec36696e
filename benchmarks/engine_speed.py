"""What the engine takes: the paper's HGCN row on one GPU, and folds together against folds alone on a CPU.

    python benchmarks/engine_speed.py row --device cuda --records results/paper
    python benchmarks/engine_speed.py together --dataset MUTAG --epochs 100

Figures are merged into results/performance.json: one entry per what, data set and device.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from graphcaps.bench import entry, merge_entries

PAPER = (
    *("MUTAG", "PTC_MR", "ENZYMES", "PROTEINS", "NCI1", "NCI109", "DD"),
    *("COLLAB", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY"),
)


def row(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Runs ``graphcaps evaluate`` on the data sets as a user would, and reads the clock around it."""
    command = [
        *("-m", "graphcaps", "evaluate", *arguments.datasets, "--preset", "paper"),
        *("--protocol", arguments.protocol, "--device", arguments.device, "--out", str(arguments.records)),
        "--json",
    ]
    if arguments.resume:
        command.append("--resume")
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - began
    ledgers = json.loads(done.stdout)
    shown = f"python {' '.join(command)}"
    whole = set(arguments.datasets) == set(PAPER)
    entries = [
        entry(
            f"HGCN, ten folds, published epochs, {arguments.protocol}: training and evaluation",
            ledger["dataset"],
            arguments.device,
            round(ledger["seconds"], 1),
            "s",
            shown,
        )
        for ledger in ledgers
    ]
    what = f"HGCN row of tables 1 and 2, {arguments.protocol}, start-up and compilation counted"
    name = "all eleven" if whole else ", ".join(arguments.datasets)
    return [*entries, entry(what, name, arguments.device, round(seconds, 1), "s", shown)]


def together(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Ten folds as one training against ten trainings one after another, in one process, turn by turn."""
    import torch

    from graphcaps import load_dataset
    from graphcaps.evaluation import cross_validate
    from graphcaps.paper.presets import load_preset

    store = load_dataset(arguments.dataset)
    config = load_preset("paper", arguments.dataset).with_training(epochs=arguments.epochs)
    command = f"python benchmarks/engine_speed.py together --dataset {arguments.dataset}"
    command += f" --epochs {arguments.epochs} --device {arguments.device}"
    seconds = {}
    for name, group, threads in (
        ("ten folds together", None, arguments.threads),
        ("ten single trainings", 1, arguments.threads),
        ("ten single trainings on one thread", 1, 1),
    ):
        torch.set_num_threads(threads)
        began = time.perf_counter()
        cross_validate(store, config, protocol="paper", device=arguments.device, group=group)
        seconds[name] = time.perf_counter() - began
        print(f"{name}: {seconds[name]:.1f} s", file=sys.stderr)
    torch.set_num_threads(arguments.threads)  # what the entries say of the hardware
    first, *others = seconds
    what = f"{arguments.epochs} epochs of"
    entries = [
        entry(f"{what} {name}", arguments.dataset, arguments.device, round(value, 1), "s", command)
        for name, value in seconds.items()
    ]
    # Against the faster way of running them alone: more threads do not help a single small training.
    ratio = min(seconds[name] for name in others) / seconds[first]
    what = f"{what} ten folds together, times faster than the best of ten single trainings"
    return [*entries, entry(what, arguments.dataset, arguments.device, round(ratio, 2), "times", command)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/performance.json"))
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("row")
    one.add_argument("--device", default="cuda")
    one.add_argument("--protocol", default="paper")
    one.add_argument("--records", type=Path, required=True)
    one.add_argument("--resume", action="store_true")
    one.add_argument("--datasets", nargs="+", default=list(PAPER))
    one.set_defaults(run=row)
    two = parts.add_parser("together")
    two.add_argument("--dataset", default="MUTAG")
    two.add_argument("--epochs", type=int, default=100)
    two.add_argument("--device", default="cpu")
    two.add_argument("--threads", type=int, default=2)
    two.set_defaults(run=together)
    arguments = parser.parse_args()
    merge_entries(arguments.out, arguments.run(arguments))


if __name__ == "__main__":
    main()
