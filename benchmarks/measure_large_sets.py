"""Time and memory to read, split, train and predict sets of molecules of growing size.

    python -m benchmarks.large_molecules big.csv --molecules 400000
    python -m benchmarks.measure_large_sets read big.csv --sizes 1000 10000 100000 400000
    python -m benchmarks.measure_large_sets train big.csv --sizes 1000 10000
    python -m benchmarks.measure_large_sets arrays big.csv big.npz --molecules 100000
    python -m benchmarks.measure_large_sets train big.npz --sizes 1000 10000 100000 400000 --device cuda --out OUT
    python -m benchmarks.measure_large_sets merge OUT

``read`` takes the first rows of the table: reading with RDKit and again from the cache, a split by scaffold, the size
of the store, and the largest memory of the process beyond what it has at the start. ``train`` times epochs of one
model of the preset ``molecules`` with a random split, selected by ROC-AUC, with weights of classes, and predictions
from graphs to a complete CSV file. On a GPU the share of the roofline and epochs of a streamed training (the same set
above an artificial limit of the GPU's memory, up to :data:`MOST_STREAMED`) come with it.

A machine without RDKit reads ``arrays``. A size above theirs is made of them: molecules are repeated with their atoms
in another, seeded order, since time and memory depend on the sizes of graphs and not on which molecules they are.

Every size is measured in a new process. CPU seconds are those of the process and of all that it started, so that they
do not depend on the load of the machine as the clock does. OUT (default: results/large-sets.json) has one entry per
measurement; a new one of the same name, size and device replaces the old one. ``merge`` adds those of another file.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.molecule_arrays import store_arrays, store_from_arrays
from graphcaps._io.allocator import enable_huge_pages
from graphcaps.bench.measurements import CheckError, make_measurement, merge_measurements, read_measurements
from graphcaps.bench.phases import time_phases
from graphcaps.bench.roofline import measure_ceilings
from graphcaps.bench.speed import time_epochs
from graphcaps.chemistry.rdkit_pool import close_rdkit
from graphcaps.config import RunConfig
from graphcaps.data.datasets.loading import LoadedDataset, open_dataset
from graphcaps.data.features.encoding import compact_features
from graphcaps.data.splits.scaffolds import scaffold_groups, scaffold_split
from graphcaps.data.splits.seeded_splits import random_split
from graphcaps.data.store import GraphStore, offsets
from graphcaps.inference.applicability import TrainingProfile
from graphcaps.inference.fitted_model import FittedModel
from graphcaps.inference.prediction_file import write_predictions
from graphcaps.inference.predictions import predict_in_parts
from graphcaps.nn import HGCN
from graphcaps.presets import load_preset
from graphcaps.training import streaming
from graphcaps.training.auto_config import resolve_config
from graphcaps.training.class_weights import balanced_class_weights
from graphcaps.training.device import choose_device, matmul_precision
from graphcaps.training.multiprocess import TrainerFactory, make_trainer
from graphcaps.training.peak_memory import PeakMemory
from graphcaps.training.replicas import Replica, stack_replicas
from graphcaps.training.training_inputs import TrainingInputs, prepare_inputs

OUT = Path("results/large-sets.json")
SIZES = (1_000, 10_000, 100_000, 400_000)
LABEL = "active"
MOST_STREAMED = 100_000  # molecules of the largest streamed training, whose epochs take seconds


def title(molecules: int) -> str:
    """Name of a set in the measurements."""
    return f"{molecules} molecules"


@dataclass
class Results:
    """Measurements of one size, as (what, value, unit)."""

    values: list[tuple[str, float, str]] = field(default_factory=list)

    def add(self, what: str, value: float, unit: str) -> None:
        self.values.append((what, float(f"{value:.4g}"), unit))
        print(f"  {what}: {value:.4g} {unit}", flush=True)

    @contextmanager
    def measure(self, what: str, molecules: int, *, memory: str = "") -> Iterator[None]:
        """CPU and clock time of a block for one molecule; with ``memory`` also the growth of the process."""
        before = resident()
        with PeakMemory(torch.device("cpu")) as peak:
            cpu, clock = cpu_seconds(), time.perf_counter()
            yield
            close_rdkit()  # only processes that have ended are counted
            self.add(f"{what}, CPU time", 1e3 * (cpu_seconds() - cpu) / molecules, "ms/molecule")
            self.add(f"{what}, clock", time.perf_counter() - clock, "s")
        if memory and peak.bytes is not None:
            self.add(memory, (peak.bytes - before) / 1e6, "MB")


def cpu_seconds() -> float:
    """CPU time of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def store_bytes(store: GraphStore) -> int:
    """Bytes of all arrays and texts of a store."""
    values = [getattr(store, entry.name) for entry in fields(GraphStore)]
    tensors = [value for value in (*values, *store.truth.values()) if isinstance(value, Tensor)]
    texts = store.smiles or ()
    return sum(each.numel() * each.element_size() for each in tensors) + sum(
        sys.getsizeof(text) + 8 for text in texts
    )


# ---------------------------------------------------------------------- reading and splitting
def measure_reading(table: Path, molecules: int, results: Results) -> None:
    """Reads the first rows of a table twice, and splits the molecules by scaffold."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GRAPHCAPS_CACHE"] = str(Path(folder) / "cache")
        part = Path(folder) / "part.csv"
        with table.open(encoding="utf-8") as source, part.open("w", encoding="utf-8") as target:
            target.writelines(islice(source, molecules + 1))
        open_dataset(_few_rows(part), label=LABEL)  # imports, and the first start of RDKit's processes
        close_rdkit()
        with results.measure("read", molecules, memory="read, memory"):
            first = open_dataset(part, label=LABEL)
        if len(first.store) != molecules:
            raise CheckError(f"{table.name} has {len(first.store):,} molecules, fewer than {molecules:,}.")
        results.add("store", store_bytes(first.store) / molecules, "bytes/molecule")
        with results.measure("read from the cache", molecules, memory="read from the cache, memory"):
            again = open_dataset(part, label=LABEL)
        _check_cached(first, again, molecules)
        store = again.store
        assert store.smiles is not None
        assert store.y is not None
        del first, again
        with results.measure("scaffold groups", molecules):
            groups = scaffold_groups(store.smiles)
        with results.measure("scaffold split", molecules):
            split = scaffold_split(store.smiles, store.y, groups=groups, class_names=store.class_names)
        parts = [
            groups[each.numpy()] for each in (split.train, split.validation, split.test) if each is not None
        ]
        if len(np.unique(groups)) != sum(len(np.unique(each)) for each in parts):
            raise CheckError("A scaffold is in two parts of the split.")
        results.add("scaffolds", len(np.unique(groups)), "groups")


def _few_rows(part: Path) -> Path:
    """The first rows of a table in a file of their own, with both classes."""
    few = part.with_name("few.csv")
    with part.open(newline="", encoding="utf-8") as source:
        rows = list(islice(csv.reader(source), 20))
    rows[1][1], rows[2][1] = "0", "1"
    with few.open("w", newline="", encoding="utf-8") as target:
        csv.writer(target).writerows(rows)
    return few


def _check_cached(first: LoadedDataset, again: LoadedDataset, molecules: int) -> None:
    """The second reading must give the arrays of the first, from the cache if there are enough rows for it."""
    for entry in fields(GraphStore):
        one, two = getattr(first.store, entry.name), getattr(again.store, entry.name)
        if isinstance(one, Tensor) and not torch.equal(one, two):
            raise CheckError(f"'{entry.name}' from the cache differs from that of the first reading.")
    if molecules >= 1000 and not again.from_cache:
        raise CheckError("The second reading did not use the cache.")


# ---------------------------------------------------------------------- arrays
def save_arrays(table: Path, path: Path, molecules: int) -> None:
    """Writes the first molecules of a table as arrays, without SMILES."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.csv"
        with table.open(encoding="utf-8") as source, part.open("w", encoding="utf-8") as target:
            target.writelines(islice(source, molecules + 1))
        store = open_dataset(part, label=LABEL).store
    np.savez_compressed(path, **store_arrays(store))


def load_store(source: Path, molecules: int, seed: int = 0) -> GraphStore:
    """The first molecules of a table or of arrays; more than the arrays have are made of them."""
    if source.suffix == ".npz":
        with np.load(source) as saved:
            store = store_from_arrays(saved)
    else:
        store = open_dataset(source, label=LABEL).store
    if molecules <= len(store):
        return store[:molecules]
    return permute_nodes(store[torch.arange(molecules) % len(store)], seed)


def permute_nodes(store: GraphStore, seed: int) -> GraphStore:
    """The same graphs with the nodes of each in a seeded random order. Without SMILES, whose atoms have an order."""
    draw = torch.rand(store.num_nodes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    order = (store.node_graph + draw).argsort()  # row that comes to each place
    place = torch.empty_like(order)
    place[order] = torch.arange(store.num_nodes)
    first = store.node_ptr[:-1].repeat_interleave(store.sizes)
    degree = store.degree
    entry_node = torch.arange(store.num_nodes).repeat_interleave(degree)
    neighbour = place[store.neighbours + first[entry_node]]
    # Entries by their node, then by neighbour, as in every store.
    entries = (place[entry_node] * store.num_nodes + neighbour).argsort()
    return replace(
        store,
        edge_ptr=offsets(degree[order]),
        neighbours=(neighbour - first[place[entry_node]])[entries].int(),
        node_labels=None if store.node_labels is None else store.node_labels[order],
        edge_labels=None if store.edge_labels is None else store.edge_labels[entries],
        truth={key: values[order] for key, values in store.truth.items()},
        smiles=None,
    )


# ---------------------------------------------------------------------- training and predicting
def measure_training(source: Path, molecules: int, device: str, precision: str, results: Results) -> None:
    """Times epochs of one model, and predictions of all molecules."""
    target = choose_device(device, "measure_large_sets", "hgcn")
    store = load_store(source, molecules)
    assert store.y is not None
    config = load_preset("molecules").with_training(precision=precision if target.type == "cuda" else None)
    config = resolve_config(replace(config, dataset=title(molecules)), store)
    split = random_split(store.y, class_names=store.class_names)
    assert split.validation is not None
    replica = Replica(split.train, split.validation, split.test[:0], seed=0)
    with results.measure("encode", molecules, memory="train, memory of graphs and features"):
        inputs = prepare_inputs(store, config, target, owner="measure_large_sets")
    clock = epoch_seconds(inputs, config, replica, target, results, "train")
    results.add("train, molecules a second", replica.train.numel() / clock, "molecules/s")
    if target.type == "cuda":
        _measure_roofline(inputs, config, replica, results)
        torch.cuda.empty_cache()
    if target.type == "cuda" and molecules <= MOST_STREAMED:
        limit, streaming.MAX_RESIDENT_FRACTION = streaming.MAX_RESIDENT_FRACTION, 0.0
        try:
            streamed = prepare_inputs(store, config, target, owner="measure_large_sets", recipe=inputs.recipe)
            if streamed.store.device.type == "cuda":
                raise CheckError("The store is on the GPU in spite of the limit.")
            epoch_seconds(streamed, config, replica, target, results, "train, streamed")
        finally:
            streaming.MAX_RESIDENT_FRACTION = limit
    measure_predictions(store, inputs, config, target, results)


def epoch_seconds(
    inputs: TrainingInputs,
    config: RunConfig,
    replica: Replica,
    device: torch.device,
    results: Results,
    what: str,
) -> float:
    """Median seconds of an epoch after the first, with losses and ROC-AUC of the validation set."""
    assert inputs.store.y is not None
    weight = balanced_class_weights(inputs.store.y.cpu()[replica.train], inputs.store.num_classes)
    is_resident = inputs.store.device.type == "cuda"
    warm_up, epochs = (3, 5) if is_resident else (1, 2)
    cpu = 0.0
    with PeakMemory(device) as peak:
        build = TrainerFactory(
            *(inputs.factory, inputs.store, inputs.x, config.training, device),
            class_weight=weight,
            metric="roc-auc",
        )
        trainer = make_trainer(build, [replica])
        cpu = cpu_seconds()
        _, seconds = time_epochs(trainer, warm_up, epochs)
        cpu = (cpu_seconds() - cpu) / (warm_up + epochs)
    results.add(f"{what}, an epoch", median(seconds), "s")
    if device.type == "cpu":
        results.add(f"{what}, CPU time", 1e3 * cpu / replica.train.numel(), "ms/molecule")
    if peak.bytes is not None:
        of = "memory of the GPU" if device.type == "cuda" else "memory of the process"
        results.add(f"{what}, {of}", peak.bytes / 1e6, "MB")
    return median(seconds)


def _measure_roofline(inputs: TrainingInputs, config: RunConfig, replica: Replica, results: Results) -> None:
    """Share of the roofline of a training step, all phases together."""
    with matmul_precision(config.training.precision, inputs.device):
        ceilings = measure_ceilings(inputs.device)
        model = stack_replicas(inputs.factory, [replica]).to(inputs.device)
        assert isinstance(model, HGCN)
        features = compact_features(inputs.x, inputs.store)
        step = time_phases(model, inputs.store, features, [replica], config.training, ceilings)
    results.add("train, a step", 1e3 * step.whole.seconds, "ms")
    if step.whole.share is not None:
        results.add("train, share of the roofline", 100 * step.whole.share, "%")


def measure_predictions(
    store: GraphStore,
    inputs: TrainingInputs,
    config: RunConfig,
    device: torch.device,
    results: Results,
) -> None:
    """Molecules a second from graphs to a complete CSV file; weights are new: the time does not depend on them."""
    graphs = replace(store, y=None, class_names=())
    fitted = FittedModel(inputs.factory(()).cpu(), config, inputs.recipe, store.class_names)
    fitted = replace(fitted, profile=TrainingProfile.from_store(store[: min(len(store), 10_000)])).to(device)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "predictions.csv"
        write_predictions(out, predict_in_parts(fitted, graphs[:200]))  # compiles kernels
        cpu, clock = cpu_seconds(), time.perf_counter()
        with PeakMemory(device) as peak:
            write_predictions(out, predict_in_parts(fitted, graphs))
        clock, cpu = time.perf_counter() - clock, cpu_seconds() - cpu
        with out.open("rb") as file:
            lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    if lines != len(store) + 1:
        raise CheckError(f"The file has {lines:,} lines for {len(store):,} molecules.")
    results.add("predict, molecules a second", len(store) / clock, "molecules/s")
    results.add("predict, CPU time", 1e3 * cpu / len(store), "ms/molecule")
    if peak.bytes is not None:
        results.add("predict, memory", peak.bytes / 1e6, "MB")


# ---------------------------------------------------------------------- command
def _in_new_process(function: Callable[..., None], *arguments: Any) -> Results:
    """The results of a function in a new process, where nothing else has been allocated."""
    with multiprocessing.get_context("spawn").Pool(1, enable_huge_pages) as pool:
        return pool.apply(_collect, (function, arguments))


def _collect(function: Callable[..., None], arguments: tuple[Any, ...]) -> Results:
    results = Results()
    function(*arguments, results)
    return results


def measure(options: argparse.Namespace) -> None:
    """Measures the sizes one after the other, and adds each to the file."""
    words = ["python -m benchmarks.measure_large_sets", options.mode, options.source.name]
    for molecules in options.sizes:
        print(f"{molecules:,} molecules", flush=True)
        command = [*words, "--sizes", *map(str, options.sizes)]
        device = "cpu"
        if options.mode == "read":
            results = _in_new_process(measure_reading, options.source, molecules)
        else:
            device = choose_device(options.device, "measure_large_sets", "hgcn").type
            command += ["--device", device] + (["--precision", options.precision] if device == "cuda" else [])
            results = _in_new_process(
                measure_training, options.source, molecules, options.device, options.precision
            )
        rows = [
            make_measurement(f"large: {what}", title(molecules), device, value, unit, " ".join(command))
            for what, value, unit in results.values
        ]
        merge_measurements(options.out, rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = parser.add_subparsers(dest="mode", required=True)
    for name, text in (("read", "read and split a table"), ("train", "train and predict")):
        mode = modes.add_parser(name, help=text)
        mode.add_argument("source", type=Path, help="the table; for train also arrays (.npz)")
        mode.add_argument("--sizes", type=int, nargs="+", default=[*SIZES], help="numbers of molecules")
        mode.add_argument("--out", type=Path, default=OUT, help=f"file of measurements; default: {OUT}")
        if name == "train":
            mode.add_argument("--device", default="auto")
            mode.add_argument("--precision", default="tf32", help="on a GPU: float32, tf32 or bf16")
    arrays = modes.add_parser("arrays", help="write molecules as arrays, for a machine without RDKit")
    arrays.add_argument("source", type=Path, help="the table")
    arrays.add_argument("path", type=Path, help="the arrays (.npz)")
    arrays.add_argument("--molecules", type=int, default=100_000)
    merge = modes.add_parser("merge", help="add the measurements of another file")
    merge.add_argument("source", type=Path, help="the other file")
    merge.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(words)
    if options.mode == "arrays":
        save_arrays(options.source, options.path, options.molecules)
    elif options.mode == "merge":
        merge_measurements(options.out, read_measurements(options.source))
    else:
        measure(options)


if __name__ == "__main__":
    main()
