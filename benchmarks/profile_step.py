"""Where the time of a captured training step goes: every kernel, with its launches and its microseconds.

    python -m benchmarks.profile_step NCI1 --root FOLDER [--precision tf32] [--seeds 5] [--out FILE]
    python -m benchmarks.profile_step NCI1 --root FOLDER --options plain parts-blocks --sequence

Ten folds of the paper's preset are trained on a GPU; an epoch after the warm-up is recorded by torch's profiler. The
sum over kernels is less than the step, because each kernel waits for the one before: the difference is printed too.
``--sequence`` lists the kernels of a step in the order of their starts, with the median over the steps; those of
branches run at the same time as others.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure_option_speed import OPTIONS, PLAIN, fold_trainer, option_store
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.presets import load_preset
from graphcaps.training.replica_trainer import ReplicaTrainer

WARM_UP, TIMED = 3, 20
FIRST = "_layout_kernel"


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
    events = [event for event in recorded.events() or () if event.device_time]
    for event in events:
        kernels[event.name].append(event.device_time)
    rows = [
        {"kernel": name, "launches": len(times), "us": round(sum(times), 1)}
        for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))
    ]
    ordered = sorted(events, key=lambda event: event.time_range.start)
    sequence = step_sequence([(event.name, event.device_time) for event in ordered])
    return {"epoch_ms": round(1000 * median(seconds), 3), "kernels": rows, "sequence": sequence}


def step_sequence(events: Sequence[tuple[str, float]]) -> list[dict[str, Any]]:
    """The kernels of a step in their order, with median microseconds, from all kernels of an epoch in theirs.

    A step begins with the layout of its batch. Of several sequences, as of steps and evaluations, the one that occurs
    most often is that of a step.
    """
    steps: list[list[tuple[str, float]]] = []
    for name, microseconds in events:
        if name == FIRST or not steps:
            steps.append([])
        steps[-1].append((name, microseconds))
    names = Counter(tuple(name for name, _ in step) for step in steps if step[0][0] == FIRST)
    if not names:
        return []
    ((common, _),) = names.most_common(1)
    times = [[each for _, each in step] for step in steps if tuple(name for name, _ in step) == common]
    return [
        {"kernel": name, "us": round(median(column), 2)}
        for name, column in zip(common, zip(*times, strict=True), strict=True)
    ]


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
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the ten folds, trained together")
    parser.add_argument("--options", nargs="+", choices=list(OPTIONS), default=[PLAIN])
    parser.add_argument("--sequence", action="store_true", help="list the kernels of a step in their order")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(words)
    rows: list[dict[str, Any]] = []
    for dataset in options.datasets:
        for option in options.options:
            store = option_store(open_dataset(dataset, options.root).store, option)
            config = load_preset("paper", dataset).with_training(precision=options.precision)
            config = config.with_model(**OPTIONS[option])
            trainer = fold_trainer(store, config, "cuda", options.seeds)
            steps = -(-max(each.train.numel() for each in trainer.replicas) // config.training.batch_size)
            row = {"dataset": dataset, "option": option, "precision": options.precision}
            row["seeds"] = options.seeds
            row |= profile_epoch(trainer)
            print(
                f"\n{dataset}, {option}, {options.precision}, seeds {options.seeds}\n{show(row, steps)}",
                flush=True,
            )
            if options.sequence:
                print("\n".join(f"{each['us']:8.2f}  {each['kernel'][:70]}" for each in row["sequence"]))
            del trainer
            rows.append(row)
            gc.collect()
            torch.cuda.empty_cache()
    if options.out is not None:
        options.out.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
