"""Where the time of a captured training step goes: every kernel, with its launches and its microseconds.

    python -m benchmarks.profile_step NCI1 --root FOLDER [--precision tf32] [--options plain parts-groups] [--out FILE]
    python -m benchmarks.profile_step NCI1 MUTAG --root FOLDER --overlap

Ten folds of the paper's preset are trained on a GPU; an epoch after the warm-up is recorded by torch's profiler. The
sum over kernels is less than the step, because each kernel waits for the one before: the difference is printed too.
``--overlap`` times epochs with and without kernels that start before the one before them has ended
(:mod:`graphcaps.ops._triton.kernel`), alternately, and records nothing.
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
from graphcaps.bench.speed import time_epochs
from graphcaps.config import RunConfig
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.store import GraphStore
from graphcaps.presets import load_preset
from graphcaps.training.trainer import ReplicaTrainer

WARM_UP, TIMED = 3, 20


def profile_epoch(trainer: ReplicaTrainer) -> dict[str, Any]:
    """Median milliseconds of an epoch, and launches and microseconds of each kernel of one epoch."""
    _, seconds = time_epochs(trainer, WARM_UP, TIMED)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        trainer.run_epoch()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = defaultdict(list)
    for event in recorded.events() or ():
        if event.device_time:
            kernels[event.name].append(event.device_time)
    rows = [
        {"kernel": name, "launches": len(times), "us": round(sum(times), 1)}
        for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))
    ]
    return {"epoch_ms": round(1000 * median(seconds), 3), "kernels": rows}


def time_overlap(store: GraphStore, config: RunConfig, rounds: int = 3) -> dict[str, Any]:
    """Median milliseconds of an epoch without and with overlapping kernels, in turn."""
    from graphcaps.ops._triton import kernel

    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds):
        for overlaps in (False, True):
            kernel.OVERLAPS = overlaps
            trainer = fold_trainer(store, config, "cuda")
            found[overlaps].append(1000 * median(time_epochs(trainer, WARM_UP, TIMED)[1]))
            del trainer
            gc.collect()
            torch.cuda.empty_cache()
    before, after = median(found[False]), median(found[True])
    return {
        "after_end_ms": round(before, 3),
        "overlapping_ms": round(after, 3),
        "ratio": round(after / before, 3),
    }


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
    parser.add_argument("--overlap", action="store_true", help="time epochs with and without overlap")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    for dataset in options.datasets:
        for option in options.options:
            store = option_store(open_dataset(dataset, options.root).store, option)
            config = load_preset("paper", dataset).with_training(precision=options.precision)
            config = config.with_model(**OPTIONS[option])
            row: dict[str, Any] = {"dataset": dataset, "option": option, "precision": options.precision}
            if options.overlap:
                row |= time_overlap(store, config)
                print(row, flush=True)
            else:
                trainer = fold_trainer(store, config, "cuda")
                row |= profile_epoch(trainer)
                steps = -(-max(each.train.numel() for each in trainer.replicas) // config.training.batch_size)
                print(f"\n{dataset}, {option}, {options.precision}\n{show(row, steps)}", flush=True)
                del trainer
            rows.append(row)
            gc.collect()
            torch.cuda.empty_cache()
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
