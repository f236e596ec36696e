"""Compares the speed of training with baselines: the padded program and models of torch-geometric.

    python -m benchmarks.measure_baseline_speed                      # planted-parts and GIN
    python -m benchmarks.measure_baseline_speed MUTAG ENZYMES --baselines padded,gin,diffpool,sagpool
    python -m benchmarks.measure_baseline_speed NCI1 --device cuda --precision tf32 --baselines padded

Each data set is first measured as ``graphcaps bench`` does. Every baseline then trains one fold of it in the same run,
with the same graphs, input columns, batch size and device, after a check. It is timed with all threads and with one,
and the faster counts. Baselines multiply in float32, whatever --precision says.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.baselines import Baseline, PaddedTraining, PygKind, PygTraining, padded_bytes
from graphcaps.bench import Speed, measure_speed, merge_measurements
from graphcaps.cli.bench import check_out, show_speed
from graphcaps.cli.output import columns, terminal
from graphcaps.cli.run_options import configure
from graphcaps.config import RunConfig
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.features.encoding import EncodedGraphs
from graphcaps.data.store import GraphStore
from graphcaps.errors import ArgumentError, GraphcapsError
from graphcaps.evaluation import CrossValidation
from graphcaps.evaluation.replica_groups import plan_groups
from graphcaps.models.builder import model_factory
from graphcaps.nn import HGCN
from graphcaps.training.device import choose_device, total_memory
from graphcaps.training.replicas import Replica

BASELINES = ("padded", "gin", "diffpool", "sagpool")
_SECONDS, _EPOCHS = 20.0, 3  # per baseline and number of threads
_MEMORY_SHARE = 0.5  # of the main memory, for padded graphs


@dataclass(frozen=True)
class BaselineTime:
    """Time of a baseline.

    Args:
        name (str): Name of the baseline.
        seconds (float): An epoch of one fold.
        times (float): ``seconds`` divided by ours, an epoch of all folds divided by their number.
    """

    name: str
    seconds: float
    times: float


@dataclass(frozen=True)
class SpeedComparison:
    """Speed of a data set, its baselines, and notes on baselines that were skipped."""

    speed: Speed
    baselines: tuple[BaselineTime, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All values for JSON."""
        rows = [{"name": b.name, "seconds": b.seconds, "times": b.times} for b in self.baselines]
        return self.speed.as_dict() | {"baselines": rows, "notes": list(self.notes)}

    def measurements(self, command: str) -> list[dict[str, Any]]:
        """Measurements for ``results/performance.json``."""
        values: list[tuple[str, float, str]] = []
        for baseline in self.baselines:
            values.append((f"bench: an epoch of one fold, {baseline.name}", baseline.seconds, "s"))
            what = f"bench: a fold's epoch, times faster than {baseline.name}"
            values.append((what, baseline.times, "times"))
        return self.speed.measurements(command) + self.speed.named(values, command)


def compare_speed(
    store: GraphStore,
    config: RunConfig,
    baselines: Sequence[str],
    *,
    device: str = "cpu",
    folds: int = 10,
    epochs: int | None = None,
) -> SpeedComparison:
    """Measures the speed of a data set, and of each baseline on its first fold.

    Args:
        store (GraphStore): Graphs with class labels.
        config (RunConfig): Model (an HGCN), input columns and training.
        baselines (list): Some of :data:`BASELINES`.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "cpu")
        folds (int): Number of folds. (default: 10)
        epochs (int, optional): Timed epochs; see :func:`graphcaps.bench.measure_speed`.

    Raises:
        CheckError: If a baseline fails its check.
    """
    for name in baselines:
        if name not in BASELINES:
            raise ArgumentError(
                "compare_speed", "baselines", f"be some of {', '.join(BASELINES)}", repr(name)
            )
    speed = measure_speed(store, config, device=device, folds=folds, epochs=epochs)
    validation = CrossValidation(store, config, folds=folds, protocol="paper", device=device)
    config = validation.config
    prepared = validation.prepare()
    host = EncodedGraphs(prepared.store.to("cpu"), prepared.x.cpu(), prepared.recipe)
    if validation.device.type == "cuda":
        torch.cuda.synchronize(validation.device)  # copies to the host are asynchronous
    replica = plan_groups(validation.folds, "paper", validation.seeds, validation.group)[0].replicas[0]
    times, notes = [], []
    for name in baselines:
        if name == "padded" and not _fits(host):
            notes.append("padded is skipped: its graphs would take more than half of the memory.")
            continue
        baseline = _make(name, host, replica, config, store.num_classes, validation.device)
        seconds = _seconds(baseline, _EPOCHS if epochs is None else min(epochs, _EPOCHS))
        times.append(BaselineTime(baseline.name, seconds, seconds / (speed.seconds / speed.folds)))
    return SpeedComparison(speed, tuple(times), tuple(notes))


def _make(
    name: str,
    host: EncodedGraphs,
    replica: Replica,
    config: RunConfig,
    num_classes: int,
    device: torch.device,
) -> Baseline:
    training = config.training
    rates: dict[str, Any] = {"learning_rate": training.learning_rate, "weight_decay": training.weight_decay}
    fold = (replica.train, replica.test, training.batch_size)
    if name != "padded":
        return PygTraining(cast(PygKind, name), host.store, host.x, *fold, device, **rates)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(replica.stream_seed)
        model = cast(HGCN, model_factory(config, host.x.size(-1), num_classes)(()))
    return PaddedTraining(
        model, host.store, host.x, *fold, device=device,
        halve_every=training.halve_every, reconstruction_weight=training.reconstruction_weight, **rates,
    )  # fmt: skip


def _fits(host: EncodedGraphs) -> bool:
    total = total_memory(torch.device("cpu"))
    return total is None or padded_bytes(host.store, host.x) <= _MEMORY_SHARE * total


def _seconds(baseline: Baseline, epochs: int) -> float:
    """Mean seconds of an epoch, with all threads or with one, whichever is faster: on small graphs one often is."""
    baseline.check()
    threads = torch.get_num_threads()
    try:
        return min(_mean_seconds(baseline, epochs, count) for count in {threads, 1})
    finally:
        torch.set_num_threads(threads)


def _mean_seconds(baseline: Baseline, epochs: int, threads: int) -> float:
    """Mean over epochs after one that is not timed; fewer epochs of a slow baseline."""
    torch.set_num_threads(threads)
    baseline.epoch()
    seconds: list[float] = []
    while len(seconds) < epochs and sum(seconds) < _SECONDS:
        start = time.perf_counter()
        baseline.epoch()
        seconds.append(time.perf_counter() - start)
    return sum(seconds) / len(seconds)


def parse_baselines(text: str) -> list[str]:
    """The names in a comma-separated list, each known and listed once."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in BASELINES or names.count(name) > 1:
            expected = f"list some of {', '.join(BASELINES)}, each once"
            raise ArgumentError("baseline_speed", "--baselines", expected, repr(text))
    return names


def show(comparisons: Sequence[SpeedComparison], out: Path | None) -> None:
    """Prints the speed of each data set, and a table of all baselines."""
    console = terminal()
    for comparison in comparisons:
        show_speed(console, comparison.speed)
    numbers = ("s/epoch", "ours is faster")
    table = columns("data set", "one fold", *numbers, right=numbers)
    for comparison in comparisons:
        speed = comparison.speed
        table.add_row(speed.dataset, "graphcaps, mean of all folds", f"{speed.seconds / speed.folds:.4f}", "")
        for baseline in comparison.baselines:
            table.add_row("", baseline.name, f"{baseline.seconds:.4f}", f"{baseline.times:.2f} ×")
    console.print(table)
    for comparison in comparisons:
        for text in comparison.notes:
            console.print(f"{comparison.speed.dataset}: {text}", soft_wrap=True)
    if out is not None:
        console.print(f"Measurements: {out}", soft_wrap=True)


def run(arguments: argparse.Namespace) -> None:
    """Compares the data sets one after another, and writes each as soon as it is finished."""
    baselines = parse_baselines(arguments.baselines)
    if arguments.out is not None:
        check_out(arguments.out)
    device = choose_device(arguments.device, "baseline_speed").type
    stores = [open_dataset(name, arguments.root).store for name in arguments.names]
    comparisons = []
    for store in stores:
        config = configure(store, precision=arguments.precision)
        print(f"{store.name}: timing ten folds, {', '.join(baselines)} on {device}.", file=sys.stderr)
        comparison = compare_speed(store, config, baselines, device=device)
        comparisons.append(comparison)
        if arguments.out is not None:
            command = f"python -m benchmarks.measure_baseline_speed {store.name} --device {device}"
            command += f" --baselines {','.join(baselines)}"
            command += f" --precision {comparison.speed.precision}" if arguments.precision else ""
            merge_measurements(arguments.out, comparison.measurements(command))
    if arguments.json:
        print(json.dumps([comparison.as_dict() for comparison in comparisons], indent=2))
    else:
        show(comparisons, arguments.out)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.measure_baseline_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", default=["planted-parts"], help="data sets")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--baselines", default="gin", metavar="LIST", help=f"some of {','.join(BASELINES)}")
    parser.add_argument("--precision", choices=("float32", "tf32", "bf16"), help="of graphcaps, on a GPU")
    parser.add_argument("--root", type=Path, help="folder to look in first for the data sets")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--out", type=Path, help="JSON file to merge the measurements into")
    try:
        run(parser.parse_args(argv))
    except GraphcapsError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
