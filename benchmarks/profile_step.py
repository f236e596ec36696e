"""Where the time of a captured training step goes: every kernel, with its launches and its microseconds.

    python -m benchmarks.profile_step NCI1 --root FOLDER [--precision tf32] [--options plain parts-blocks] [--out FILE]

Ten folds of the paper's preset are trained on a GPU; an epoch after the warm-up is recorded by torch's profiler. The
sum over kernels is less than the step, because each kernel waits for the one before: the difference is printed too.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure_option_speed import OPTIONS, PLAIN, fold_trainer, option_store
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.presets import load_preset
from graphcaps.training.trainer import ReplicaTrainer

WARM_UP, TIMED = 3, 20


def profile_epoch(trainer: ReplicaTrainer) -> dict[str, Any]:
    """Median milliseconds of an epoch, and launches and microseconds of each kernel of one epoch."""
    try:
        seconds = [trainer.run_epoch().seconds for _ in range(WARM_UP + TIMED)][WARM_UP:]
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as recorded:
            trainer.run_epoch()
            torch.cuda.synchronize()
    finally:
        trainer.close()
    kernels: dict[str, list[float]] = defaultdict(list)
    for event in recorded.events() or ():
        if event.device_time:
            kernels[event.name].append(event.device_time)
    rows = [
        {"kernel": name, "launches": len(times), "us": round(sum(times), 1)}
        for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))
    ]
    return {"epoch_ms": round(1000 * median(seconds), 3), "kernels": rows}


def show(found: dict[str, Any], steps: int) -> str:
    """A table of the kernels of a step."""
    lines = [f"{'kernel':60} {'a step':>7} {'us each':>9} {'us a step':>10}"]
    for row in found["kernels"]:
        each, total = row["us"] / row["launches"], row["us"] / steps
        lines.append(f"{row['kernel'][:60]:60} {row['launches'] / steps:7.1f} {each:9.2f} {total:10.2f}")
    busy = sum(row["us"] for row in found["kernels"]) / 1000
    lines.append(f"epoch {found['epoch_ms']:.2f} ms, {busy:.2f} ms of it in kernels; {steps} steps")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--options", nargs="+", choices=list(OPTIONS), default=[PLAIN])
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    for dataset in options.datasets:
        for option in options.options:
            store = option_store(open_dataset(dataset, options.root).store, option)
            config = load_preset("paper", dataset).with_training(precision=options.precision)
            config = config.with_model(**OPTIONS[option])
            trainer = fold_trainer(store, config, "cuda")
            steps = -(-max(each.train.numel() for each in trainer.replicas) // config.training.batch_size)
            row = {"dataset": dataset, "option": option, "precision": options.precision}
            row |= profile_epoch(trainer)
            print(f"\n{dataset}, {option}, {options.precision}\n{show(row, steps)}", flush=True)
            del trainer
            rows.append(row)
            gc.collect()
            torch.cuda.empty_cache()
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
