"""Times the ten-fold training of every network, alone on its device, with its peak memory.

    python -m benchmarks.measure_model_speed --root FOLDER --device cuda
    python -m benchmarks.measure_model_speed --models gin asap --dataset MUTAG --device cpu --out speed.json

Each network has the settings of the comparison (``graphcaps compare``) with the same number of epochs, 300 by default,
and trains all folds of the paper's protocol, with an evaluation after every epoch. The first epochs are timed, those in
which steps are captured and kernels are compiled among them; every further epoch counts as the median of the last ones.
What is computed before the first epoch, such as input columns and coarser graphs, is a measurement of its own.

Measurements are merged into results/performance.json or the file of --out as soon as a network is finished. Networks
that have one in the file are left out, unless --again is set; none starts when the budget is over.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measure_comparison import expand_models
from graphcaps.bench import make_measurement, merge_measurements, read_measurements
from graphcaps.bench.speed import time_epochs
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.store import GraphStore
from graphcaps.evaluation import CrossValidation
from graphcaps.evaluation.replica_groups import plan_groups
from graphcaps.presets.model_presets import comparison_config
from graphcaps.training.device import choose_device
from graphcaps.training.multiprocess import TrainerFactory, make_trainer
from graphcaps.training.peak_memory import PeakMemory

OUT = Path("results/performance.json")
EPOCHS = 300
_WARM_UP, _TIMED = 10, 5


@dataclass(frozen=True)
class ModelSpeed:
    """Times of a network.

    Args:
        seconds (float): All epochs of all folds, extrapolated.
        preparation (float): Seconds before the first epoch.
        memory (int, optional): Peak memory in bytes, if it could be measured.
    """

    seconds: float
    preparation: float
    memory: int | None


def measurement_name(model: str, epochs: int, precision: str) -> str:
    """The beginning of the names of a network's measurements."""
    suffix = "" if precision == "float32" else f", {precision}"
    return f"network {model}, ten folds, {epochs} epochs{suffix}"


def measure(
    store: GraphStore,
    model: str,
    *,
    device: str,
    precision: str | None = None,
    epochs: int = EPOCHS,
    warm_up: int = _WARM_UP,
    timed: int = _TIMED,
) -> ModelSpeed:
    """Trains the first epochs of a network on all folds.

    Args:
        store (GraphStore): Graphs with class labels.
        model (str): Name of the network.
        device (str): ``"cpu"`` or ``"cuda"``.
        precision (str, optional): Precision of matrix products. (default: that of the settings)
        epochs (int): Number of epochs to extrapolate to. (default: 300)
        warm_up, timed (int): Numbers of epochs that are trained: the first ones, and those whose median stands for all
            further ones. (default: 10 and 5)
    """
    config = comparison_config(store, model).with_training(epochs=epochs, precision=precision)
    target, began = choose_device(device), time.perf_counter()
    with PeakMemory(target) as peak:
        validation = CrossValidation(store, config, protocol="paper", device=device)
        prepared = validation.prepare()
        preparation, seconds = time.perf_counter() - began, 0.0
        for plan in plan_groups(validation.folds, "paper", validation.seeds, validation.group):
            training = validation.config.training
            build = TrainerFactory(prepared.factory, prepared.store, prepared.x, training, target)
            first, further = time_epochs(make_trainer(build, list(plan.replicas)), warm_up, timed)
            seconds += sum(first) + (epochs - warm_up) * median(further)
    return ModelSpeed(seconds, preparation, peak.bytes)


def measurements(
    speed: ModelSpeed, dataset: str, device: str, name: str, command: str
) -> list[dict[str, Any]]:
    """The measurements of a network, to four digits."""
    values = [(f"{name}: training and evaluation", speed.seconds, "s")]
    values.append((f"{name}: before the first epoch", speed.preparation, "s"))
    if speed.memory is not None:
        values.append((f"{name}: peak memory", speed.memory / 1e6, "MB"))
    return [
        make_measurement(what, dataset, device, float(f"{value:.4g}"), unit, command)
        for what, value, unit in values
    ]


def main(words: Sequence[str] | None = None) -> None:
    began = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="NCI1")
    parser.add_argument("--models", nargs="+", default=["networks"], help="names, or paper, all, networks")
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", help="on a GPU: float32, tf32 or bf16")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="to extrapolate to; default: 300")
    parser.add_argument("--warm-up", type=int, default=_WARM_UP, help="epochs before the median; default: 10")
    parser.add_argument("--timed", type=int, default=_TIMED, help="epochs of the median; default: 5")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--again", action="store_true", help="measure also what the file has")
    parser.add_argument("--out", type=Path, default=OUT, help="JSON file to merge into")
    options = parser.parse_args(words)
    device = choose_device(options.device).type
    precision = options.precision if device == "cuda" else "float32"
    command = "python -m benchmarks.measure_model_speed" + (
        f" --dataset {options.dataset} --device {device} --epochs {options.epochs}"
        + (f" --precision {precision}" if device == "cuda" else "")
    )
    stored = {(row["what"], row["dataset"], row["device"]) for row in read_measurements(options.out)}
    store = open_dataset(options.dataset, options.root).store
    for model in expand_models(options.models):
        name = measurement_name(model, options.epochs, precision)
        known = (f"{name}: training and evaluation", store.name, device) in stored
        if (known and not options.again) or time.monotonic() - began > options.budget:
            print(f"{model}: {'in the file' if known else 'not started'}", flush=True)
            continue
        speed = measure(
            store,
            model,
            device=device,
            precision=precision if device == "cuda" else None,
            epochs=options.epochs,
            warm_up=options.warm_up,
            timed=options.timed,
        )
        merge_measurements(options.out, measurements(speed, store.name, device, name, command))
        memory = "" if speed.memory is None else f", {speed.memory / 1e9:.2f} GB"
        print(f"{model}: {speed.seconds:.1f} s, before {speed.preparation:.1f} s{memory}", flush=True)
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
