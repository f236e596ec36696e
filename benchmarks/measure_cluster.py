"""Time of a cross-validation on a Ray cluster of this machine, beside that of its own processes.

    python -m benchmarks.measure_cluster --root DATA --dataset MUTAG --epochs 100 --repeat 3 --out OUT.json

Both train ten folds in two processes of one thread: five folds each, which gives the same bits (checked first). They
run in turn, so that other load of the machine falls on both. ``cpu_seconds`` are those of all training processes, with
the main process; ``start_seconds`` is the time until the cluster has answered. The first run on it is not counted,
since it imports graphcaps in the processes of the cluster. Compare CPU seconds where other programs run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import graphcaps
from graphcaps._io.provenance import describe_hardware, versions_and_commit
from graphcaps.evaluation import Ledger
from graphcaps.execution import RayExecutor
from graphcaps.presets import load_preset

_TICKS = os.sysconf("SC_CLK_TCK")


def worker_seconds() -> float:
    """CPU seconds of all Ray workers of this machine that have trained a cell."""
    total = 0.0
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if (process / "cmdline").read_bytes().startswith(b"ray::"):
                    fields = (process / "stat").read_text().rpartition(")")[2].split()
                    total += (int(fields[11]) + int(fields[12])) / _TICKS
            except OSError:  # it has just ended
                continue
    return total


def cpu_seconds() -> float:
    """CPU seconds of this process, of its ended children and of Ray's workers."""
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    return own + worker_seconds()


def measure(function: Callable[[], Ledger]) -> tuple[Ledger, dict[str, float]]:
    """A ledger, with wall-clock and CPU seconds."""
    began, cpu = time.perf_counter(), cpu_seconds()
    ledger = function()
    return ledger, {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds() - cpu}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="MUTAG")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--address", default="auto", help="Of a cluster; default: one of this machine.")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.workers)
    store = graphcaps.load_dataset(given.dataset, given.root)
    config = load_preset("default", given.dataset).with_training(epochs=given.epochs)
    group = 10 // given.workers
    began = time.perf_counter()
    with RayExecutor(given.address) as executor:
        started = time.perf_counter() - began

        def on_cluster() -> Ledger:
            return graphcaps.cross_validate(store, config, group=group, executor=executor)

        def in_processes() -> Ledger:
            return graphcaps.cross_validate(store, config)

        warm, local = on_cluster(), in_processes()
        assert all(a.curves == b.curves for a, b in zip(warm.records, local.records, strict=True)), (
            "bits differ"
        )
        runs: dict[str, list[dict[str, float]]] = {"processes": [], "ray": []}
        for _ in range(given.repeat):
            runs["processes"].append(measure(in_processes)[1])
            runs["ray"].append(measure(on_cluster)[1])
    ratios = {
        name: statistics.median(run[name] for run in runs["ray"])
        / statistics.median(run[name] for run in runs["processes"])
        for name in ("seconds", "cpu_seconds")
    }
    record: dict[str, Any] = {
        "dataset": given.dataset,
        "epochs": given.epochs,
        "workers": given.workers,
        "start_seconds": started,
        "runs": runs,
        "ratios": ratios,
        "load": os.getloadavg(),
        "hardware": describe_hardware(),
        "versions": versions_and_commit(),
    }
    text = json.dumps(record, indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
