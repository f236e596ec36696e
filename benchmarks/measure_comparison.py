"""Measures the cells of ``docs/comparison.md``: all models on the paper's data sets, most telling cells first.

    python -m benchmarks.measure_comparison --sets MUTAG PTC_MR --models gin gfn --root FOLDER --device cuda \
        --budget 540 --done results/comparison --out OUT
    python -m benchmarks.measure_comparison --models classical --root FOLDER --device cpu --out OUT
    python -m benchmarks.measure_comparison --models networks --seeds 3 --list
    python -m benchmarks.measure_comparison --merge OUT [OUT2 …]
    python -m benchmarks.measure_comparison --models hgcn --seeds 3 --adopt results/reproduction --root FOLDER

A cell is one model on one data set under one protocol. Cells that have a record in OUT or in the folder of ``--done``
are left out. Order: data sets of :data:`SETS` in three tiers; within a tier data set by data set, the models of
:data:`FIRST` first, each held-out before paper; then the next seeds of the models of :data:`MORE_SEEDS`. No cell starts
that is expected to take longer than what is left of the budget, by the seconds of the same model on other data sets,
and a cell that is still running at its end is given up.

OUT gets ``records.zip``, ``summary.csv`` and ``failures.json`` (reasons of failed cells), and for a short time one file
per new record. ``--merge`` adds them to ``results/comparison`` of this repository. Of two records of one cell the one
that was finished first counts. Records do not depend on ``--jobs``, but peak memory is measured for one job only.

``--adopt`` measures nothing: cells without a record get that of another study, if all settings, folds and graphs are
those of the comparison. Such records keep their hardware, date, time and commit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock

from graphcaps._io.atomic_write import write_atomically
from graphcaps.comparison.comparison import ComparisonCell
from graphcaps.comparison.runner import CellProgress, ComparedData, ComparisonRun, choose_models
from graphcaps.data.datasets.loading import open_dataset
from graphcaps.data.store import GraphStore
from graphcaps.evaluation import CrossValidation, Ledger, RecordKey, ResultsStore
from graphcaps.evaluation.concurrent_trainings import run_concurrently
from graphcaps.evaluation.record import PROTOCOLS, Protocol
from graphcaps.evaluation.results_store import check_settings
from graphcaps.models.lookup import find_classical_model, is_classical
from graphcaps.presets.model_presets import comparison_config
from graphcaps.reproduction.published import paper_datasets, statistics
from graphcaps.training.device import choose_device

RESULTS = Path("results/comparison")
FAILURES = "failures.json"
SETS = (
    ("MUTAG", "PTC_MR", "ENZYMES", "PROTEINS", "IMDB-BINARY", "IMDB-MULTI"),
    ("NCI1", "NCI109", "DD"),
    ("COLLAB", "REDDIT-BINARY"),
)
"""Tiers of data sets, the first to be measured first."""
FIRST = ("hgcn", "gin", "gfn", "gcn", "wl-forest", "wl-oa", "wl")
"""Models that are measured before the others of a data set."""
MORE_SEEDS = ("hgcn", "gin", "gfn", "gcn", "wl-forest", "wl-oa")
"""Models that are measured with all seeds; the others have one."""
_PACK_SHARE = 0.1  # of the time since the last packing that packing may take
_MAX_LOOSE = 4  # record files outside the archive


@dataclass(frozen=True)
class Cell:
    """One training: a model on a data set under a protocol and the first ``seeds`` seeds."""

    dataset: str
    model: str
    protocol: Protocol
    seeds: int

    @property
    def key(self) -> RecordKey:
        """Key of the record of its last seed."""
        return RecordKey(self.dataset, self.model, self.protocol, self.seeds - 1)

    @property
    def title(self) -> str:
        return f"{self.dataset} {self.model} {self.protocol} seed {self.seeds - 1}"


def plan_cells(
    sets: Sequence[str], models: Sequence[str], seeds: int, protocols: Sequence[Protocol]
) -> list[Cell]:
    """The cells, most telling first."""
    order = sorted(models, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    tiers = [[name for name in tier if name in sets] for tier in SETS]
    tiers.append([name for name in sets if not any(name in tier for tier in SETS)])
    cells = []
    for seed in range(1, seeds + 1):
        for tier in tiers:
            for dataset in tier:
                cells += [
                    Cell(dataset, model, protocol, seed)
                    for model in order
                    if seed == 1 or model in MORE_SEEDS
                    for protocol in protocols
                    if seed == 1 or depends_on_seed(model, protocol)
                ]
    return cells


def depends_on_seed(model: str, protocol: Protocol) -> bool:
    """Whether another seed gives another record: a kernel draws graphs to select on only without a validation fold."""
    if not is_classical(model):
        return True
    kind = find_classical_model(model)
    return kind.uses_seed or (protocol == "paper" and bool(kind.selected_options))


class BudgetOver(Exception):
    """The time is over while a cell is being trained."""


@dataclass
class Measurement:
    """Runs cells within a time budget and keeps their records.

    Args:
        out (Path): Folder for the results.
        root (Path, optional): Folder to search first for data sets.
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``.
        precision (str, optional): Precision of matrix products on a GPU.
        epochs (int, optional): Number of epochs in place of each model's own.
        deadline (float): Time of ``time.monotonic`` at which the budget is over.
    """

    out: Path
    root: Path | None
    device: str
    precision: str | None
    epochs: int | None
    deadline: float
    failures: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)  # of models, by data set
    stores: dict[str, GraphStore] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    packed_at: float = field(default_factory=time.monotonic)
    pack_seconds: float = 1.0

    def __post_init__(self) -> None:
        self.results = ResultsStore(self.out)
        self.failures |= read_failures(self.out)

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return self.deadline - time.monotonic()

    def expected_seconds(self, cell: Cell) -> float:
        """Seconds by those of the same model on other data sets, in proportion to the nodes; 0 if unknown."""
        known = self.seconds.get(cell.model, {})
        if cell.dataset in known:
            return known[cell.dataset]
        size = _nodes(cell.dataset)
        rates = [seconds / _nodes(name) for name, seconds in known.items() if _nodes(name)]
        return size * min(rates, default=0.0)

    def run(self, cell: Cell) -> bool:
        """Trains a cell; returns whether it was started."""
        if self.left <= 0 or self.expected_seconds(cell) > self.left:
            print(f"{cell.title}: not started", flush=True)
            return False
        began = time.monotonic()
        found = self.train(cell, self._store(cell.dataset))
        seconds = time.monotonic() - began
        with self.lock:
            self._finish(cell, found, seconds)
        return True

    def train(self, cell: Cell, store: GraphStore) -> ComparisonCell:
        """Trains the model of a cell; an exception becomes the failure of the cell."""
        data = ComparedData(store)
        run = ComparisonRun(
            [data],
            [cell.model],
            seeds=cell.seeds,
            protocol=cell.protocol,
            epochs=self.epochs,
            precision=self.chosen_precision,
            device=self.device,
            results=self.results,
            resume=True,
        )
        return run.run_cell(data, cell.model, self._stop_in_time)

    @property
    def chosen_precision(self) -> str | None:
        """Precision of matrix products; ``None`` on a CPU, which has float32 only."""
        return None if choose_device(self.device).type == "cpu" else self.precision

    def describe(self, ledger: Ledger) -> str:
        """The result of a cell in its line of the output."""
        return str(ledger.held_out or ledger.C)

    def _stop_in_time(self, progress: CellProgress) -> None:
        if progress.epoch is not None:
            self.check_budget()

    def check_budget(self) -> None:
        """Raises an exception if no time is left."""
        if self.left <= 0:
            raise BudgetOver("the time budget is over")

    def _finish(self, cell: Cell, found: ComparisonCell, seconds: float) -> None:
        name = f"{cell.dataset}, {cell.model}, {cell.protocol}"
        if found.ledger is not None:
            self.seconds.setdefault(cell.model, {})[cell.dataset] = seconds
            self.failures.pop(name, None)
            shown = self.describe(found.ledger)
            memory = found.ledger.peak_memory
            size = "" if memory is None else f", {memory / 1e9:.2f} GB"
            print(f"{cell.title}: {shown} ({seconds:.1f} s{size}, {self.left:.0f} s left)", flush=True)
        elif "BudgetOver" in found.failure:
            print(f"{cell.title}: given up after {seconds:.1f} s", flush=True)
        else:
            self.failures[name] = found.failure
            print(f"{cell.title}: failed: {found.failure}", flush=True)
        self.pack()

    def adopt_seeds(self, cells: Sequence[Cell], stores: Sequence[ResultsStore]) -> None:
        """Copies the records of earlier seeds from other folders, so that only later seeds are trained."""
        for cell in cells:
            for seed in range(cell.seeds - 1):
                key = RecordKey(cell.dataset, cell.model, cell.protocol, seed)
                record = next((found for store in stores if (found := store.get(key)) is not None), None)
                if record is not None and key not in self.results:
                    self.results.add(record)

    def adopt_records(self, cells: Sequence[Cell], stores: Sequence[ResultsStore]) -> int:
        """Copies records of other studies with the settings of the comparison; returns how many.

        Raises:
            DataError: If the settings of a record differ; those of earlier cells are kept.
        """
        adopted = 0
        for cell in cells:
            record = next((found for store in stores if (found := store.get(cell.key)) is not None), None)
            if record is not None and cell.key not in self.results:
                expected = self._validation(cell).settings()
                check_settings(expected, record.settings, cell.key, self.results.path(cell.key))
                self.results.add(record)
                adopted += 1
        return adopted

    def _validation(self, cell: Cell) -> CrossValidation:
        """The cross-validation of a cell, untrained."""
        store = self._store(cell.dataset)
        precision = None if is_classical(cell.model) else self.precision
        config = comparison_config(store, cell.model).with_training(epochs=self.epochs, precision=precision)
        return CrossValidation(store, config, protocol=cell.protocol, variant=cell.model)

    def _store(self, dataset: str) -> GraphStore:
        """A data set; it is read once."""
        with self.lock:
            if dataset not in self.stores:
                self.stores[dataset] = open_dataset(dataset, self.root).store
            return self.stores[dataset]

    def pack(self, *, always: bool = False) -> None:
        """Moves new records into the archive, unless that would take a large share of the time."""
        loose = len(list(self.out.glob("*.record.json")))
        since = time.monotonic() - self.packed_at
        if not always and loose < _MAX_LOOSE and self.pack_seconds > _PACK_SHARE * since:
            return
        began = time.monotonic()
        self.out.mkdir(parents=True, exist_ok=True)
        self.results.pack()
        write_failures(self.out, self.failures)
        self.pack_seconds, self.packed_at = time.monotonic() - began, time.monotonic()


def _nodes(dataset: str) -> float:
    """Nodes of all graphs of a data set of the paper; 0 for others."""
    counts = statistics(dataset) if dataset in paper_datasets() else None
    return 0.0 if counts is None else counts.graphs * counts.avg_nodes


# ---------------------------------------------------------------------- files
def read_failures(folder: Path) -> dict[str, str]:
    """Reasons of failed cells, by data set, model and protocol; none if there is no file."""
    path = folder / FAILURES
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def write_failures(folder: Path, failures: dict[str, str]) -> None:
    """Writes the reasons, sorted; removes the file if there is none."""
    path = folder / FAILURES
    if failures:
        text = json.dumps(dict(sorted(failures.items())), indent=1, ensure_ascii=False)
        write_atomically(path, text + "\n")
    else:
        path.unlink(missing_ok=True)


def merge(folders: Sequence[Path], target: Path) -> None:
    """Adds the records and failures of folders to those of ``target``; a cell with a record has no failure."""
    results = ResultsStore(target)
    report = results.merge(*folders)
    failures = read_failures(target)
    for folder in folders:
        failures |= read_failures(folder)
    done = {f"{r.key.dataset}, {r.key.variant}, {r.key.protocol}" for r in results.records()}
    results.pack()
    write_failures(target, {name: reason for name, reason in failures.items() if name not in done})
    print(
        f"{target}: {len(report.added)} added, {len(report.replaced)} replaced, {len(report.kept)} unchanged."
    )


# ---------------------------------------------------------------------- command
def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = [name for tier in SETS for name in tier]
    parser.add_argument("--sets", nargs="+", default=every, help="data sets; default: all eleven")
    parser.add_argument(
        "--models",
        nargs="+",
        default=["all"],
        help="names, or paper, all, networks, classical; default: all",
    )
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=[*PROTOCOLS])
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the models of MORE_SEEDS")
    parser.add_argument("--root", type=Path, help="folder with the zips of the data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="tf32", help="on a GPU: float32, tf32 or bf16")
    parser.add_argument("--epochs", type=int, help="in place of each model's own")
    parser.add_argument("--jobs", type=int, default=1, help="concurrent cells on a GPU")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds")
    parser.add_argument(
        "--list", action="store_true", help="print the cells without a record; measure nothing"
    )
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="folders of cells to leave out")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--merge", type=Path, nargs="+", help="add these folders to --out; measure nothing")
    parser.add_argument(
        "--adopt",
        type=Path,
        nargs="+",
        help="copy records with the same settings from these; measure nothing",
    )
    return parser.parse_args(words)


def expand_models(names: Sequence[str]) -> tuple[str, ...]:
    """Names of models; ``networks`` and ``classical`` are those of all models for graphs without SMILES."""
    every = choose_models(["all"], [])
    kinds = {
        "networks": [name for name in every if not is_classical(name)],
        "classical": [name for name in every if is_classical(name)],
    }
    listed = [each for name in names for each in kinds.get(name, [name])]
    return choose_models(listed, [])


def main(words: Sequence[str] | None = None) -> None:
    began = time.monotonic()
    options = parse(words)
    if options.merge:
        merge(options.merge, options.out)
        return
    measurement = Measurement(
        options.out, options.root, options.device, options.precision, options.epochs, began + options.budget
    )
    cells = plan_cells(options.sets, expand_models(options.models), options.seeds, options.protocols)
    if options.adopt:
        adopted = measurement.adopt_records(cells, [ResultsStore(folder) for folder in options.adopt])
        measurement.pack(always=True)
        print(f"{options.out}: {adopted} records adopted.", flush=True)
        return
    if options.list:
        print("\n".join(cell.title for cell in missing_cells(measurement, cells, options.done)))
        return
    measure(measurement, cells, options.done, options.jobs)


def missing_cells(measurement: Measurement, cells: Sequence[Cell], done: Sequence[Path]) -> list[Cell]:
    """The cells that have no record, neither in the folder of the measurement nor in those of ``done``."""
    stores = [measurement.results, *(ResultsStore(folder) for folder in done)]
    return [cell for cell in cells if not any(cell.key in store for store in stores)]


def measure(measurement: Measurement, cells: Sequence[Cell], done: Sequence[Path], jobs: int) -> None:
    """Trains the cells of :func:`missing_cells`."""
    missing = missing_cells(measurement, cells, done)
    print(f"{len(missing)} of {len(cells)} cells to measure.", flush=True)
    measurement.adopt_seeds(missing, [ResultsStore(folder) for folder in done])
    tasks = [partial(measurement.run, cell) for cell in missing]
    try:
        started = list(run_concurrently(tasks, jobs, choose_device(measurement.device)))
    finally:
        measurement.pack(always=True)
        # Checkpoints of given-up cells: they stay on the machine that wrote them, and are of no use here.
        shutil.rmtree(measurement.out / "unfinished", ignore_errors=True)
    print(f"{sum(started)} started, {len(started) - sum(started)} not started.", flush=True)


if __name__ == "__main__":
    main()
