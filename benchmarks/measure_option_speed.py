"""Times the training step of HGCN with each of its options, beside the plain step.

    python -m benchmarks.measure_option_speed --root FOLDER --dataset NCI1 --device cuda
    python -m benchmarks.measure_option_speed --options plain context-gated --device cpu --out speed.json

Ten folds of the paper's preset are trained with one option changed at a time (:data:`OPTIONS`), and the median of
epochs after a warm-up is compared with that of the plain model. On a GPU the measurements say whether the step was
captured as a CUDA graph. They are merged into results/performance.json or the file of --out, one option after another.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphcaps.bench import make_measurement, merge_measurements
from graphcaps.bench.speed import time_epochs
from graphcaps.config import RunConfig
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.store import GraphStore
from graphcaps.evaluation import CrossValidation
from graphcaps.evaluation.replica_groups import plan_groups
from graphcaps.presets import load_preset
from graphcaps.training.device import choose_device
from graphcaps.training.multiprocess import TrainerFactory, make_trainer
from graphcaps.training.replica_trainer import ReplicaTrainer
from graphcaps.training.trainer import Trainer

OUT = Path("results/performance.json")
PLAIN = "plain"
OPTIONS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "context-residual": {"context": "residual"},
    "context-gated": {"context": "gated"},
    "context-gin": {"context": "gin"},
    "parts-blocks": {"parts": "blocks"},
    "trunk-gin": {"trunk": "gin"},
    "trunk-sage": {"trunk": "sage"},
    "trunk-gat": {"trunk": "gat"},
    "sampled-reconstruction": {"reconstruct_up_to": 8},
    "edge-weights": {},
    "formulation-paper": {"formulation": "paper"},
    "two-levels": {"num_capsules": (10, 5)},
    "capsules-64": {"num_capsules": (64,)},
    "capsules-128": {"num_capsules": (128,)},
}
"""Options of the model that differ from the preset. ``edge-weights`` changes the graphs: each edge has a weight."""


def option_store(store: GraphStore, option: str) -> GraphStore:
    """The graphs of an option: those of ``edge-weights`` have a weight for each edge, equal in both directions."""
    if option != "edge-weights":
        return store
    node = torch.arange(store.num_nodes).repeat_interleave(store.degree)
    local = node - store.node_ptr[:-1].repeat_interleave(store.sizes)[node]
    return replace(store, edge_weight=1 + 0.1 * ((local + store.neighbours) % 5).float())


def fold_trainer(store: GraphStore, config: RunConfig, device: str, seeds: int = 1) -> ReplicaTrainer:
    """A trainer of ten folds, of all seeds, together."""
    validation = CrossValidation(store, config, protocol="paper", device=device, seeds=seeds)
    inputs = validation.prepare()
    (plan,) = plan_groups(validation.folds, "paper", validation.seeds, validation.group)
    training = validation.config.training
    build = TrainerFactory(inputs.factory, inputs.store, inputs.x, training, inputs.device)
    return make_trainer(build, list(plan.replicas))


def measure(
    store: GraphStore, config: RunConfig, *, device: str, warm_up: int, timed: int
) -> tuple[float, bool | None]:
    """Median seconds of an epoch of ten folds, and on a GPU whether its steps are captured."""
    trainer = fold_trainer(store, config, device)
    _, seconds = time_epochs(trainer, warm_up, timed)
    captured = trainer.captured if isinstance(trainer, Trainer) and device == "cuda" else None
    return median(seconds), captured


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="NCI1")
    parser.add_argument("--options", nargs="+", choices=list(OPTIONS), default=list(OPTIONS), metavar="NAME")
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", help="on a GPU: float32, tf32 or bf16")
    parser.add_argument("--warm-up", type=int, default=4, help="epochs before the median; default: 4")
    parser.add_argument("--timed", type=int, default=5, help="epochs of the median; default: 5")
    parser.add_argument("--out", type=Path, default=OUT, help="JSON file to merge into")
    options = parser.parse_args(words)
    device = choose_device(options.device).type
    precision = options.precision if device == "cuda" else "float32"
    command = f"python -m benchmarks.measure_option_speed --dataset {options.dataset} --device {device}"
    command += f" --precision {precision}" if device == "cuda" else ""
    store = open_dataset(options.dataset, options.root).store
    preset = load_preset("paper", options.dataset).with_training(precision=precision)
    plain: float | None = None
    for name in options.options:
        config = preset.with_model(**OPTIONS[name])
        try:
            seconds, captured = measure(
                option_store(store, name), config, device=device, warm_up=options.warm_up, timed=options.timed
            )
        except Exception as error:  # the other options are still to be measured
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        plain = seconds if name == PLAIN else plain
        suffix = "" if precision == "float32" else f", {precision}"
        values = [(f"option {name}{suffix}: an epoch of 10 folds", 1e3 * seconds, "ms")]
        if plain is not None:
            values.append((f"option {name}{suffix}: times the plain step", seconds / plain, "times"))
        if captured:
            values.append((f"option {name}{suffix}: captured", 1, "CUDA graph"))
        rows = [
            make_measurement(what, store.name, device, float(f"{value:.4g}"), unit, command)
            for what, value, unit in values
        ]
        merge_measurements(options.out, rows)
        ratio = "" if plain is None else f", {seconds / plain:.2f} times plain"
        print(f"{name}: {1e3 * seconds:.2f} ms an epoch{ratio}, captured: {captured}", flush=True)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
