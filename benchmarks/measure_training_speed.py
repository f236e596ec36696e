"""Times whole trainings: the paper's HGCN row, ten folds together against ten single trainings, committees.

    python -m benchmarks.measure_training_speed --out row.json row --records records --seeds 5 --precision tf32
    python -m benchmarks.measure_training_speed --out row.json row --records records --seeds 5 --precision tf32 --resume
    python -m benchmarks.measure_training_speed together --dataset MUTAG --epochs 100
    python -m benchmarks.measure_training_speed committee --datasets MUTAG PROTEINS --epochs 30 --rounds 3
    python -m benchmarks.measure_training_speed --out row.json committee --device cuda --epochs 300 --rounds 3
    python -m benchmarks.measure_training_speed merge row.json

Measurements are merged into results/performance.json or the file of --out: one per what, data set and device. "row"
writes the measurements, records and summary of a data set as soon as it is finished; the next one is read while one is
trained. An interrupted row continues with
--resume, which skips the data sets in the file and adds their seconds. "committee" fits the preset "default" with one
member and with several, in turn, and compares the seconds and, on a CPU, the CPU seconds of both: these depend less
on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphcaps.config import RunConfig
    from graphcaps.data.datasets.loading import LoadedDataset
    from graphcaps.data.store import GraphStore
    from graphcaps.evaluation import Ledger

START = time.perf_counter()  # before large imports: start-up counts
PAPER = (
    *("MUTAG", "PTC_MR", "ENZYMES", "PROTEINS", "NCI1", "NCI109", "DD"),
    *("COLLAB", "IMDB-BINARY", "IMDB-MULTI", "REDDIT-BINARY"),
)
BY_DURATION = (
    *("REDDIT-BINARY", "COLLAB", "NCI1", "NCI109", "DD", "ENZYMES", "PROTEINS"),
    *("MUTAG", "PTC_MR", "IMDB-MULTI", "IMDB-BINARY"),
)
WALL = "start-up and compilation counted"


def measurement_names(
    protocol: str, seeds: int = 1, precision: str = "float32", epochs: int | None = None
) -> tuple[str, str]:
    """The beginning of the names of a data set's measurements, and the name of the whole row."""
    folds = "ten folds" if seeds == 1 else f"ten folds × {seeds} seeds"
    num_epochs = "published epochs" if epochs is None else f"{epochs} epochs"
    suffix = "" if precision == "float32" else f", {precision}"
    one = f"HGCN, {folds}, {num_epochs}, {protocol}{suffix}"
    many = "" if seeds == 1 else f", {seeds} seeds"
    return one, f"HGCN row of tables 1 and 2, {protocol}{many}{suffix}, {WALL}"


def row(arguments: argparse.Namespace) -> None:
    """Evaluates the data sets as ``graphcaps evaluate`` does, and times them."""
    import torch

    from graphcaps.bench import make_measurement, merge_measurements, read_measurements
    from graphcaps.evaluation.concurrent_trainings import run_concurrently

    device, lock = arguments.device, Lock()
    precision = arguments.precision or _preset_precision(arguments)
    one, whole = measurement_names(arguments.protocol, arguments.seeds, precision, arguments.epochs)
    stored = {(e["what"], e["dataset"], e["device"]): e["value"] for e in read_measurements(arguments.out)}
    done = {name: stored.get((f"{one}, {WALL}", name, device)) for name in arguments.datasets}
    command = _command(arguments, precision)
    if arguments.resume and arguments.records.is_dir():
        # An interrupted data set starts again: half a training has no time of its own.
        shutil.rmtree(arguments.records / "unfinished", ignore_errors=True)
    left = [name for name in arguments.datasets if not arguments.resume or done[name] is None]
    if arguments.jobs > 1:  # the longest first, so that none runs alone at the end
        left.sort(key=lambda name: BY_DURATION.index(name) if name in BY_DURATION else -1)
    starts = {left[0]: START} if left else {}  # start-up counts for the first

    files = ReadAhead(left, arguments.root)

    def evaluate(name: str) -> None:
        start = starts.get(name, time.perf_counter())
        values = _one_set(arguments, name, files)
        done[name] = time.perf_counter() - start
        values[f", {WALL}"] = (done[name], "s")
        measurements = [
            make_measurement(one + what, name, device, float(f"{value:.4g}"), unit, command)
            for what, (value, unit) in values.items()
        ]
        with lock:
            merge_measurements(arguments.out, measurements)
        print(f"{name}: {done[name]:.1f} s", file=sys.stderr, flush=True)

    list(run_concurrently([partial(evaluate, name) for name in left], arguments.jobs, torch.device(device)))
    if arguments.epochs is not None or set(arguments.datasets) != set(PAPER):
        return
    seconds = sum(float(value) for value in done.values() if value is not None)
    if arguments.jobs > 1:
        if len(left) < len(PAPER):
            print("Resumed with several jobs: the time of the whole row is unknown.", file=sys.stderr)
            return
        seconds = time.perf_counter() - START
    merge_measurements(
        arguments.out, [make_measurement(whole, "all eleven", device, round(seconds, 1), "s", command)]
    )


class ReadAhead:
    """Reads data sets; when one is opened, the next one is read in a thread.

    Args:
        names (list): Data sets in the order in which they are opened.
        root (Path, optional): Folder to look in first.
    """

    def __init__(self, names: Sequence[str], root: Path | None) -> None:
        self._names, self._root = list(names), root
        self._pool, self._lock = ThreadPoolExecutor(1), Lock()
        self._opened: dict[str, Future[LoadedDataset]] = {}

    def open(self, name: str) -> LoadedDataset:
        """A data set; it is not kept."""
        from graphcaps.data.datasets.loading import open_dataset

        first = self._names.index(name)
        with self._lock:
            for each in self._names[first : first + 2]:
                if each not in self._opened:
                    self._opened[each] = self._pool.submit(open_dataset, each, self._root)
            future = self._opened.pop(name)
        return future.result()


def _preset_precision(arguments: argparse.Namespace) -> str:
    """Precision in the preset of the first data set."""
    from graphcaps.cli.run_options import configure
    from graphcaps.data.datasets.loading import open_dataset

    return configure(open_dataset(arguments.datasets[0], arguments.root).store).training.precision


def _command(arguments: argparse.Namespace, precision: str) -> str:
    words = ["row", "--protocol", arguments.protocol, "--seeds", arguments.seeds, "--precision", precision]
    words += ["--device", arguments.device, "--records", arguments.records.name]
    if arguments.jobs > 1:
        words += ["--jobs", arguments.jobs]
    if tuple(arguments.datasets) != PAPER:
        words += ["--datasets", *arguments.datasets]
    if arguments.epochs is not None:
        words += ["--epochs", arguments.epochs]
    return f"python -m benchmarks.measure_training_speed {' '.join(map(str, words))}"


def _one_set(arguments: argparse.Namespace, name: str, files: ReadAhead) -> dict[str, tuple[float, str]]:
    """Seconds, peak memory and accuracies of one data set; writes its records and summary."""
    import torch

    from graphcaps.cli.output_files import write_json
    from graphcaps.cli.run_options import configure
    from graphcaps.evaluation import CrossValidation, ResultsStore
    from graphcaps.evaluation.results_store import file_name

    gpu = arguments.device == "cuda"
    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    loaded = files.open(name)
    config = configure(loaded.store, epochs=arguments.epochs, precision=arguments.precision)
    ledger: Ledger = CrossValidation(
        loaded.store, config, seeds=arguments.seeds, protocol=arguments.protocol, device=arguments.device,
        results=ResultsStore(arguments.records),
    ).run()  # fmt: skip
    path = arguments.records / f"{file_name(ledger.dataset, ledger.variant)}.summary.json"
    write_json(path, ledger.summary())  # without the path of the graphs: it goes into results/
    values: dict[str, tuple[float, str]] = {": training and evaluation": (ledger.seconds, "s")}
    if gpu and arguments.jobs == 1:  # concurrent jobs share the memory
        values[": peak memory allocated"] = (torch.cuda.max_memory_allocated() / 1e6, "MB")
        values[": peak memory reserved"] = (torch.cuda.max_memory_reserved() / 1e6, "MB")
    for rule, estimate in ledger.estimates.items():
        values[f": accuracy {rule}"] = (estimate.mean, "%")
        if estimate.std_seeds is not None:
            values[f": accuracy {rule}, deviation over seeds"] = (estimate.std_seeds, "%")
    return values


def together(arguments: argparse.Namespace) -> None:
    """Times ten folds as one training, and as ten trainings in sequence."""
    import torch

    from graphcaps import load_dataset
    from graphcaps.bench import make_measurement, merge_measurements
    from graphcaps.evaluation import cross_validate
    from graphcaps.presets import load_preset

    store = load_dataset(arguments.dataset)
    config = load_preset("paper", arguments.dataset).with_training(epochs=arguments.epochs)
    command = f"python -m benchmarks.measure_training_speed together --dataset {arguments.dataset}"
    command += f" --epochs {arguments.epochs} --device {arguments.device}"
    seconds = {}
    for name, group, threads in (
        ("ten folds together", None, arguments.threads),
        ("ten single trainings", 1, arguments.threads),
        ("ten single trainings on one thread", 1, 1),
    ):
        torch.set_num_threads(threads)
        start = time.perf_counter()
        cross_validate(store, config, protocol="paper", device=arguments.device, group=group)
        seconds[name] = time.perf_counter() - start
        print(f"{name}: {seconds[name]:.1f} s", file=sys.stderr)
    torch.set_num_threads(arguments.threads)  # recorded with the hardware
    first, *others = seconds
    what = f"{arguments.epochs} epochs of"
    entries = [
        make_measurement(f"{what} {name}", arguments.dataset, arguments.device, round(value, 1), "s", command)
        for name, value in seconds.items()
    ]
    # Compared with the faster of the two: more threads do not help a single small training.
    ratio = min(seconds[name] for name in others) / seconds[first]
    what = f"{what} ten folds together, times faster than the best of ten single trainings"
    entries.append(
        make_measurement(what, arguments.dataset, arguments.device, round(ratio, 2), "times", command)
    )
    merge_measurements(arguments.out, entries)


def committee(arguments: argparse.Namespace) -> None:
    """Fits one model and a committee in turn, and writes the medians and the median ratio of a round."""
    import torch

    from graphcaps.bench import make_measurement, merge_measurements
    from graphcaps.data.datasets.loading import open_dataset
    from graphcaps.presets import load_preset
    from graphcaps.training.final_training import train_final

    torch.set_num_threads(arguments.threads)
    members, device = arguments.members, arguments.device
    names = " ".join(arguments.datasets)
    command = f"python -m benchmarks.measure_training_speed committee --datasets {names} --members {members}"
    command += f" --epochs {arguments.epochs} --rounds {arguments.rounds} --device {device}"
    for dataset in arguments.datasets:
        store = open_dataset(dataset, arguments.root).store
        config = load_preset("default").with_training(precision=None if device == "cpu" else "tf32")
        for count in (1, members):  # kernels are compiled, and libraries loaded
            train_final(store, config.with_training(epochs=1), device=device, members=count)
        config = config.with_training(epochs=arguments.epochs)
        seconds: dict[str, list[list[float]]] = {"s": [], "CPU s": []}
        for _ in range(arguments.rounds):
            spent = []
            for count in (1, members):
                began, cpu = time.perf_counter(), _cpu_seconds()
                train_final(store, config, device=device, members=count)
                spent.append((time.perf_counter() - began, _cpu_seconds() - cpu))
            for unit, pair in zip(seconds, zip(*spent, strict=True), strict=True):
                seconds[unit].append(list(pair))
            print(f"{dataset}: {spent}", file=sys.stderr, flush=True)
        entries = []
        for unit, rounds in seconds.items() if device == "cpu" else [("s", seconds["s"])]:
            kind = "" if unit == "s" else ", CPU time"
            one, many = (statistics.median(each) for each in zip(*rounds, strict=True))
            ratio = statistics.median(large / small for small, large in rounds)
            what = f"{arguments.epochs} epochs of"
            values = {
                f"{what} a single model{kind}": (float(f"{one:.3g}"), "s"),
                f"{what} a committee of {members}{kind}": (float(f"{many:.3g}"), "s"),
                f"{what} a committee of {members}{kind}, times a single model": (round(ratio, 2), "times"),
            }
            entries += [
                make_measurement(name, dataset, device, value, shown, command)
                for name, (value, shown) in values.items()
            ]
        if device == "cpu":
            largest = -(-members // arguments.threads)
            ratio = _process_ratio(store, config, largest, arguments.epochs)
            what = f"{arguments.epochs} epochs of a committee of {members}, CPU time of the process with most members"
            entries.append(
                make_measurement(
                    f"{what} ({largest}), times a single model", dataset, device, ratio, "times", command
                )
            )
        merge_measurements(arguments.out, entries)


def _process_ratio(store: GraphStore, config: RunConfig, members: int, epochs: int) -> float:
    """CPU time of an epoch of some members in one process, divided by that of one; both alternate.

    On idle cores this is how much longer a committee takes: its slowest process determines the time.
    """
    import torch

    from graphcaps.training.final_training import FinalTraining

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runs = [
            FinalTraining(store, config.with_training(epochs=epochs + 1), device="cpu", members=count).run()
            for count in (1, members)
        ]
        seconds: list[list[float]] = [[], []]
        for _ in range(epochs + 1):
            for spent, run in zip(seconds, runs, strict=True):
                began = time.process_time()
                next(run)
                spent.append(time.process_time() - began)
    finally:
        torch.set_num_threads(threads)
    one, many = (statistics.median(spent[1:]) for spent in seconds)  # the first epoch loads libraries
    return round(many / one, 2)


def _cpu_seconds() -> float:
    """CPU time of this process and of its workers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def merge(arguments: argparse.Namespace) -> None:
    """Merges the measurements of other files."""
    from graphcaps.bench import merge_measurements, read_measurements

    for path in arguments.files:
        merge_measurements(arguments.out, read_measurements(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/performance.json"))
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("row")
    one.add_argument("--device", default="cuda")
    one.add_argument("--protocol", default="paper")
    one.add_argument("--seeds", type=int, default=1)
    one.add_argument("--precision", choices=("float32", "tf32", "bf16"), help="default: that of the presets")
    one.add_argument(
        "--records", type=Path, required=True, help="folder for records, without any of these data sets"
    )
    one.add_argument("--resume", action="store_true")
    one.add_argument("--jobs", type=int, default=1, help="data sets trained at the same time")
    one.add_argument("--datasets", nargs="+", default=list(PAPER))
    one.add_argument("--epochs", type=int, help="default: the published number")
    one.add_argument("--root", type=Path, help="folder to look in first for the data sets")
    one.set_defaults(run=row)
    two = commands.add_parser("together")
    two.add_argument("--dataset", default="MUTAG")
    two.add_argument("--epochs", type=int, default=100)
    two.add_argument("--device", default="cpu")
    two.add_argument("--threads", type=int, default=2)
    two.set_defaults(run=together)
    three = commands.add_parser("committee")
    three.add_argument("--datasets", nargs="+", default=["MUTAG", "PROTEINS"])
    three.add_argument("--members", type=int, default=5)
    three.add_argument("--epochs", type=int, default=30)
    three.add_argument("--rounds", type=int, default=3, help="fits of both, in turn")
    three.add_argument("--device", default="cpu")
    three.add_argument("--threads", type=int, default=2)
    three.add_argument("--root", type=Path, help="folder to look in first for the data sets")
    three.set_defaults(run=committee)
    four = commands.add_parser("merge")
    four.add_argument("files", nargs="+", type=Path)
    four.set_defaults(run=merge)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
