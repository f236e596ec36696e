"""``docs/performance.md``: measurements of ``results`` (``performance.json`` and others), and the kernels."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure_large_sets import SIZES, title
from benchmarks.measure_option_speed import OPTIONS
from benchmarks.measure_search import RESULTS as SEARCH
from benchmarks.measure_search import read_results as read_searches
from benchmarks.measure_server_speed import PREFIX as SERVER
from benchmarks.measure_small_runs import PREFIX
from benchmarks.measure_training_speed import PAPER, measurement_names
from benchmarks.pages.markdown import NOT_MEASURED, fill_template, table
from benchmarks.pages.reproduction.hgcn_tables import Results
from graphcaps.bench import read_measurements
from graphcaps.profiling import PHASES

MEASUREMENTS = "results/performance.json"
LARGE_SETS = "results/large-sets.json"
COLD_START, GPU_TESTS, CLUSTER = "results/cold-start.json", "results/gpu-tests.json", "results/cluster.json"
PRECISIONS = ("float32", "tf32", "bf16")
FOUR = ("MUTAG", "ENZYMES", "PROTEINS", "NCI1")
_PHASES = (*PHASES, "rest")
DEVICES = {"cpu": "two CPU cores", "cuda": "GPU"}
Measurement = dict[str, Any]
Summary = tuple[str, list[Measurement]]


def page(root: Path) -> str:
    """The page; ``root`` is the root of the repository."""
    measured = Measurements(read_measurements(root / MEASUREMENTS))
    large = Measurements(read_measurements(root / LARGE_SETS))
    return fill_template(
        "performance",
        {
            "summary": summary(measured),
            "row": row(measured),
            "precision": precision(measured, Results(root / "results")),
            "phases_cuda": phases(measured, "cuda"),
            "baselines_cuda": baselines(measured, "cuda"),
            "options": options(measured),
            "cold_start": cold_start(root / COLD_START),
            "gpu_tests": gpu_tests(root / GPU_TESTS),
            "baselines_cpu": baselines(measured, "cpu"),
            "together": together(measured),
            "committees": committees(measured),
            "searches": searches(read_searches(root / SEARCH)),
            "small_runs": small_runs(measured),
            "server": server(measured),
            "cluster": cluster(root / CLUSTER),
            "scaling": scaling(measured),
            "large_reading": large_sets(large, "cpu", READING),
            "large_training_cpu": large_sets(large, "cpu", TRAINING),
            "large_training_cuda": large_sets(large, "cuda", TRAINING_CUDA),
            "kernels": kernels(root / "src" / "graphcaps" / "ops"),
        },
    )


class Measurements:
    """Stored measurements, looked up by what, data set and device."""

    def __init__(self, rows: list[Measurement]) -> None:
        self.rows = rows
        self._by_key = {(row["what"], row["dataset"], row["device"]): row for row in rows}

    def get(self, what: str, dataset: str, device: str) -> Measurement | None:
        return self._by_key.get((what, dataset, device))

    def cells(self, device: str, *keys: tuple[str, str]) -> list[Measurement | None]:
        """Measurements of several (what, data set)."""
        return [self.get(what, dataset, device) for what, dataset in keys]


def shown(entry: Measurement | None, digits: int | None = None, unit: bool = False) -> str:
    """A measurement as a cell of a table."""
    if entry is None:
        return "–"
    value = f"{entry['value']:,}" if digits is None else f"{entry['value']:,.{digits}f}"
    return f"{value} {entry['unit']}" if unit else value


def sources(entries: Iterable[Measurement | None]) -> str:
    """The commands that measured, each once, with hardware and versions."""
    lines: dict[str, None] = {}
    for entry in entries:
        if entry is not None:
            versions = entry["versions"]
            when = f", {entry['date']}" if "date" in entry else ""
            commit = f", commit {_short(versions['commit'])}" if "commit" in versions else ""
            setup = f"{entry['hardware']}, torch {versions['torch']}{commit}{when}"
            lines[f"- `{entry['command']}` ({setup})"] = None
    return "\n\nMeasured with:\n" + "\n".join(lines) if lines else ""


def _short(commit: str) -> str:
    """The first digits of a commit, and whether files were changed since."""
    return commit[:12] + ("+changes" if commit.endswith("+changes") else "")


def section(head: Sequence[str], rows: list[Sequence[str]], used: Sequence[Measurement | None]) -> str:
    """A table and its commands, or that nothing is measured."""
    return table(head, rows) + sources(used) if any(used) else f"*{NOT_MEASURED.capitalize()}.*"


def in_precision(what: str, precision: str) -> str:
    """The name of a measurement in a precision."""
    return what if precision == "float32" else f"{what}, {precision}"


def nodes(count: int) -> str:
    """The data set of a scaling measurement."""
    return f"one graph of {count} nodes"


def summary(measured: Measurements) -> str:
    """The most important measurements; their commands stand below the tables of the page."""
    step, padded = "bench: share of the roofline, training step", "bench: an epoch of one fold, padded"
    faster = "bench: a fold's epoch, times faster than"
    one = {p: measurement_names("paper", 1, p) for p in PRECISIONS}
    many = {p: measurement_names("paper", 5, p) for p in PRECISIONS}
    trained = {p: f"{one[p][0]}: training and evaluation" for p in PRECISIONS}
    gpu, cpu = "one H200", "two CPU cores"
    rows = [
        (gpu, "HGCN row of tables 1 and 2, start-up counted",
         _each(measured, "cuda", {p: (one[p][1], "all eleven") for p in PRECISIONS})),
        (gpu, "the same with 5 seeds",
         _each(measured, "cuda", {p: (many[p][1], "all eleven") for p in PRECISIONS})),
        (gpu, "NCI1, 10 folds × 1000 epochs",
         _each(measured, "cuda", {p: (trained[p], "NCI1") for p in PRECISIONS})),
        (gpu, "peak memory in use, one seed, any of the eleven",
         _peak(measured, [one[p][0] for p in PRECISIONS])),
        (gpu, "share of the roofline, NCI1 training step",
         _each(measured, "cuda", {p: (in_precision(step, p), "NCI1") for p in PRECISIONS})),
        (gpu, "the [padded program](#baselines), NCI1, a fold's epoch",
         _each(measured, "cuda", {p: (in_precision(padded, p), "NCI1") for p in PRECISIONS}, ", beside graphcaps")),
        (cpu, "NCI1, a fold's epoch, faster than the padded program",
         _each(measured, "cpu", {"float32": (f"{faster} padded", "NCI1")})),
        (cpu, "a fold's epoch, faster than DiffPool on four sets",
         _sets(measured, f"{faster} torch-geometric diffpool")),
        (cpu, "a fold's epoch, faster than GIN on four sets",
         _sets(measured, f"{faster} torch-geometric gin")),
        (cpu, "a fold's epoch, faster than SAGPool on four sets",
         _sets(measured, f"{faster} torch-geometric sagpool")),
        (cpu, "one graph, 10⁴ to 10⁶ nodes, time and memory per decade",
         _growth(measured, "cpu")),
        (gpu, "the same", _growth(measured, "cuda")),
    ]  # fmt: skip
    lines = []
    for hardware, what, (value, used) in rows:
        lines.append((hardware, what, f"**{value}**" if used else NOT_MEASURED))
    return table(("hardware", "what", "measured"), lines)


def _each(measured: Measurements, device: str, keys: dict[str, tuple[str, str]], note: str = "") -> Summary:
    """One measurement in every precision; ``note`` goes before the name of the precision."""
    entries = {
        p: e for p, (what, name) in keys.items() if (e := measured.get(what, name, device)) is not None
    }
    parts = [
        f"{shown(entry, unit=True)}{'' if p == 'float32' else f'{note} in {p}'}"
        for p, entry in entries.items()
    ]
    return "; ".join(parts), [*entries.values()]


def _peak(measured: Measurements, bases: list[str]) -> Summary:
    """The largest peak of the eleven data sets, in the first precision in which all are measured."""
    for base in bases:
        entries = measured.cells("cuda", *((f"{base}: peak memory allocated", name) for name in PAPER))
        entries = [entry for entry in entries if entry is not None]
        if len(entries) == len(PAPER):
            worst = max(entries, key=lambda entry: float(entry["value"]))
            return f"{worst['value'] / 1000:.2f} GB ({worst['dataset']})", [worst]
    return "", []


def _sets(measured: Measurements, what: str) -> Summary:
    entries = [entry for name in FOUR if (entry := measured.get(what, name, "cpu")) is not None]
    return ", ".join(f"{entry['dataset']} {entry['value']:.2f} ×" for entry in entries), entries


def _growth(measured: Measurements, device: str) -> Summary:
    """The largest growth per decade from 10⁴ nodes on, of time and of memory."""
    parts, used = [], []
    for what, word in (
        ("bench: forward and backward of one graph", "time"),
        ("bench: peak memory of one graph", "memory"),
    ):
        factors = []
        for size in (10**5, 10**6):
            entries = [measured.get(what, nodes(n), device) for n in (size // 10, size)]
            if entries[0] is not None and entries[1] is not None:
                factors.append(entries[1]["value"] / entries[0]["value"] / 10)
                used += [entries[0], entries[1]]
        if factors:
            parts.append(f"{word} {max(factors):.2f} ×")
    return ", ".join(parts), used


_KINDS = {
    "training and evaluation": "s",
    "peak memory allocated": "GB",
    "peak memory reserved": "GB reserved",
}


def row(measured: Measurements) -> str:
    """Eleven data sets: seconds and memory, one and five seeds, every precision that is measured."""
    bases = [(measurement_names("paper", s, p), s, p) for s in (1, 5) for p in PRECISIONS]
    taken = [b for b in bases if any(e["what"].startswith((b[0][0] + ":", b[0][1])) for e in measured.rows)]
    head, used, columns = ["data set"], [], []
    for (base, row_name), seeds, precision in taken:
        label = f"{seeds} seed{'' if seeds == 1 else 's'}, {precision}"
        for kind, unit in _KINDS.items():
            cells = measured.cells("cuda", *((f"{base}: {kind}", name) for name in PAPER))
            if any(cells):
                head.append(f"{label}: {unit}")
                total = measured.get(row_name, "all eleven", "cuda") if unit == "s" else None
                columns.append([*map(shown if unit == "s" else _gigabytes, cells), shown(total)])
                used += [*cells, total]
    rows = [[name, *(column[index] for column in columns)] for index, name in enumerate((*PAPER, "**row**"))]
    text = section(head, rows, used)
    return text if any(seeds == 5 for _, seeds, _ in taken) else f"{text}\n\nWith five seeds: {NOT_MEASURED}."


def _gigabytes(entry: Measurement | None) -> str:
    return "–" if entry is None else f"{entry['value'] / 1000:.2f}"


def precision(measured: Measurements, results: Results) -> str:
    """Seconds and accuracy C of five seeds in each precision, and C minus that of the records of the reproduction."""
    bases = {p: measurement_names("paper", 5, p)[0] for p in PRECISIONS}
    bases = {
        p: base for p, base in bases.items() if any(e["what"].startswith(f"{base}:") for e in measured.rows)
    }
    head, used, rows = ["data set"], [], []
    for p in bases:
        head += [f"{p}: s", f"{p}: C", f"{p}: C\\*", f"{p}: C minus reproduction"]
    for name in PAPER:
        cells = [name]
        for p in bases:
            seconds = measured.get(f"{bases[p]}: training and evaluation", name, "cuda")
            cells.append(shown(seconds))
            used.append(seconds)
            for rule in ("C", "C*"):
                mean = measured.get(f"{bases[p]}: accuracy {rule}", name, "cuda")
                spread = measured.get(f"{bases[p]}: accuracy {rule}, deviation over seeds", name, "cuda")
                cells.append(shown(mean, 2) + ("" if spread is None else f" ± {shown(spread, 2)}"))
                used += [mean, spread]
            c, spread = used[-4], used[-3]
            cells.append(_difference(c, spread, results.seeds(name, "hgcn", "C")))
        if set(cells[1:]) != {"–"}:
            rows.append(cells)
    return section(head, rows, used)


def _difference(mean: Measurement | None, spread: Measurement | None, seeds: np.ndarray) -> str:
    """Five seeds minus the same seeds of the reproduction, ± its standard error; a dash without one of them."""
    if mean is None or spread is None or len(seeds) != 5:
        return "–"
    error = math.sqrt((spread["value"] ** 2 + seeds.var(ddof=1)) / 5)
    return f"{mean['value'] - seeds.mean():+.2f} ± {error:.2f}"


def phases(measured: Measurements, device: str) -> str:
    """Milliseconds and share of the roofline of each phase, for every data set measured on a device."""
    step = re.compile(r"bench: training step of (\d+) folds(?:, (tf32|bf16))?$")
    totals = [
        (e, match[2] or "float32")
        for e in measured.rows
        if e["device"] == device and (match := step.match(e["what"]))
    ]
    head, used, columns = ["phase"], [], []
    for total, p in totals:
        name = total["dataset"]
        head += [f"{name}, {p}: ms", "roofline"]
        took = [(in_precision(f"bench: phase of a step, {each}", p), name) for each in _PHASES]
        parts = (*_PHASES, "training step")
        part = [(in_precision(f"bench: share of the roofline, {each}", p), name) for each in parts]
        times, shares = [*measured.cells(device, *took), total], measured.cells(device, *part)
        columns += [
            [shown(cell) for cell in times],
            ["–" if e is None else f"{e['value']} %" for e in shares],
        ]
        used += [*times, *shares]
    labels = (*_PHASES, "**whole**")
    return section(head, [[label, *(c[k] for c in columns)] for k, label in enumerate(labels)], used)


def baselines(measured: Measurements, device: str) -> str:
    """Seconds of a fold's epoch, of graphcaps and of the baselines."""
    kinds = ("padded", "torch-geometric gin", "torch-geometric diffpool", "torch-geometric sagpool")
    head = ["data set", "graphcaps: s", *(f"{kind}: s (times graphcaps)" for kind in kinds)]
    rows, used = [], []
    for entry in measured.rows:
        match = re.match(r"bench: an epoch of (\d+) folds(?:, (tf32|bf16))?$", entry["what"])
        if match is None or entry["device"] != device:
            continue
        name, p = entry["dataset"], match[2] or "float32"
        label = name if p == "float32" else f"{name}, {p}"
        cells = [label, f"{entry['value'] / int(match[1]):.4g}"]
        used.append(entry)
        for kind in kinds:
            took = measured.get(in_precision(f"bench: an epoch of one fold, {kind}", p), name, device)
            times = measured.get(
                in_precision(f"bench: a fold's epoch, times faster than {kind}", p), name, device
            )
            cells.append("–" if took is None or times is None else f"{shown(took)} ({times['value']:.2f} ×)")
            used.append(took)
        rows.append(cells)
    return section(head, rows, used)


def options(measured: Measurements) -> str:
    """An epoch with each option of HGCN on a GPU, relative to the plain step."""
    found = [row for row in measured.rows if row["what"].startswith("option ") and row["device"] == "cuda"]
    titles = dict.fromkeys((row["what"].split(":")[0], row["dataset"]) for row in found)
    rows, used = [], []
    for what, dataset in sorted(titles, key=lambda key: (key[1], _option_order(key[0]))):
        keys = ("an epoch of 10 folds", "times the plain step", "captured")
        entries = measured.cells("cuda", *((f"{what}: {key}", dataset) for key in keys))
        captured = "no" if entries[2] is None else "yes"
        name, *precision = what.removeprefix("option ").split(", ")
        where = ", ".join((dataset, *precision))
        rows.append((f"`{name}`", where, shown(entries[0]), shown(entries[1], 2), captured))
        used += entries
    return section(("option", "data set", "an epoch: ms", "times plain", "captured"), rows, used)


def _option_order(title: str) -> int:
    """Position of an option in the program that times it."""
    return list(OPTIONS).index(title.removeprefix("option ").split(",")[0])


def cold_start(path: Path) -> str:
    """Seconds of a first training with an empty and with a filled cache of kernels, and of its longest phases."""
    if not path.exists():
        return f"*{NOT_MEASURED.capitalize()}.*"
    found = json.loads(path.read_text("utf-8"))
    phases = ("imports", "encode and estimate memory", "compile before", "record", "epochs")
    rows = [
        (
            run["run"],
            f"{run['total']:.1f}",
            f"{sum(int(number) for number, _ in run['compilations'].values())}",
            *(f"{run['phases'][name]['seconds']:.1f}" if name in run["phases"] else "–" for name in phases),
        )
        for run in found["runs"]
    ]
    command = (
        f"python -m benchmarks.measure_cold_start --runs {' '.join(run['run'] for run in found['runs'])}"
    )
    return table(("run", "total: s", "compiled kernels", *phases), rows) + sources(
        [found | {"command": command}]
    )


def gpu_tests(path: Path) -> str:
    """How many tests of kernels and of GPU trainings passed, and which did not."""
    if not path.exists():
        return f"*{NOT_MEASURED.capitalize()}.*"
    found = json.loads(path.read_text("utf-8"))
    failures = [f"{name} ({each['file']})" for each in found["files"] for name in each["failures"]]
    files = sum(each["passed"] + each["failed"] > 0 for each in found["files"])
    text = f"{found['passed']} tests in {files} files passed, {found['failed']} failed"
    text += f": {'; '.join(failures)}." if failures else "."
    commits: dict[str, int] = {}
    for each in found["files"]:
        commit = each.get("commit", found["versions"].get("commit", ""))
        commits[commit] = commits.get(commit, 0) + 1
    text += " CI runs the same tests of kernels on a CPU, in Triton's interpreter, on every commit."
    rows = [
        found
        | {"versions": found["versions"] | {"commit": commit}}
        | {
            "command": "python -m benchmarks.run_gpu_tests"
            + (f", {number} files" if len(commits) > 1 else "")
        }
        for commit, number in commits.items()
    ]
    return text + sources(rows)


def cluster(path: Path) -> str:
    """Seconds of a cross-validation in processes of graphcaps and as tasks of Ray, on the same cores."""
    if not path.exists():
        return f"*{NOT_MEASURED.capitalize()}.*"
    found = json.loads(path.read_text("utf-8"))
    names = {"processes": "processes of graphcaps", "ray": "Ray"}
    rows = [
        (
            title,
            *(
                f"{median(run[unit] for run in found['runs'][name]):.1f}"
                for unit in ("seconds", "cpu_seconds")
            ),
        )
        for name, title in names.items()
    ]
    rows.append(("ratio", *(f"{found['ratios'][unit]:.2f}" for unit in ("seconds", "cpu_seconds"))))
    command = f"python -m benchmarks.measure_cluster --dataset {found['dataset']} --epochs {found['epochs']}"
    return table(("trained by", "clock: s", "CPU: s"), rows) + sources([found | {"command": command}])


def together(measured: Measurements) -> str:
    """Ten folds in one training, compared with ten single trainings."""
    entries = [entry for entry in measured.rows if re.match(r"\d+ epochs of ten", entry["what"])]
    rows = [(entry["what"], entry["dataset"], shown(entry, unit=True)) for entry in entries]
    return section(("what", "data set", "value"), rows, entries)


def committees(measured: Measurements) -> str:
    """Fits of a single model and of a committee, on each device."""
    entries = [
        entry
        for entry in measured.rows
        if re.match(r"\d+ epochs of a (single model|committee)", entry["what"])
    ]
    rows = [
        (entry["what"], entry["dataset"], DEVICES[entry["device"]], shown(entry, unit=True))
        for entry in entries
    ]
    return section(("what", "data set", "device", "value"), rows, entries)


def searches(measured: Sequence[Measurement]) -> str:
    """Seconds of a search, of all its trials together and of one trial after another, on each device."""
    kinds = ("first", "search", "together", "alone")
    rows, sources = [], []
    for each in measured:
        unit = "seconds" if each["device"] == "cuda" else "cpu_seconds"
        seconds = [f"{each[kind][unit]:.0f}" if kind in each else "–" for kind in kinds]
        ratios = [
            f"{each['alone'][unit] / each[kind][unit]:.1f}" if kind in each else "–"
            for kind in ("search", "together")
        ]
        size = f"{each['trials']} × {each['folds']} × {each['epochs']}"
        rows.append((DEVICES[each["device"]], size, *seconds, *ratios))
        sources.append(
            f"{DEVICES[each['device']]}: {each['hardware']}, commit {each['versions']['commit'][:12]}"
        )
    head = (
        "device",
        "trials × folds × epochs",
        "first search",
        "search",
        "together",
        "alone",
        "alone / search",
        "alone / together",
    )
    return f"{table(head, rows)}\n\n{'; '.join(sources)}." if rows else NOT_MEASURED


def small_runs(measured: Measurements) -> str:
    """CPU time of start-up, a prediction and a fit, and its ratio to another version."""
    entries = [entry for entry in measured.rows if entry["what"].startswith(PREFIX)]
    by_name: dict[str, dict[str, Measurement]] = {}
    versions: list[str] = []
    for entry in entries:
        name, _, kind = entry["what"].removeprefix(PREFIX).rpartition(", ")
        by_name.setdefault(name, {})[kind] = entry
        if kind.startswith("times ") and kind not in versions:
            versions.append(kind)
    rows = [
        (f"`{name}`" if ", " not in name else name, *(shown(each.get(kind), unit=True) for kind in kinds))
        for kinds in [("CPU time", "epochs", *versions)]
        for name, each in by_name.items()
        if "CPU time" in each or "epochs" in each
    ]
    return section(("what", "CPU time", "epochs", *versions), rows, entries)


def server(measured: Measurements) -> str:
    """Response time, rate and CPU time of requests of one molecule."""
    entries = [entry for entry in measured.rows if entry["what"].startswith(SERVER)]
    kinds = ("median response", "rate", "CPU time of a request")
    by_name: dict[tuple[str, str], dict[str, Measurement]] = {}
    for entry in entries:
        name, _, kind = entry["what"].removeprefix(SERVER).rpartition(", ")
        by_name.setdefault((name, entry["dataset"]), {})[kind] = entry
    rows = [(*name, *(shown(each.get(kind), unit=True) for kind in kinds)) for name, each in by_name.items()]
    return section(("requests", "molecules", *kinds), rows, entries)


def scaling(measured: Measurements) -> str:
    """Seconds and memory of one graph, by its size."""
    sizes = [10**k for k in range(2, 7)]
    head, used, columns = ["nodes"], [], []
    for device, word in (("cpu", "CPU"), ("cuda", "GPU")):
        for what, unit in (
            ("bench: forward and backward of one graph", "ms"),
            ("bench: peak memory of one graph", "MB"),
        ):
            cells = measured.cells(device, *((what, nodes(size)) for size in sizes))
            if any(cells):
                head += [f"{word}: {unit}", "per decade"]
                factors = ["–"]
                for a, b in pairwise(cells):
                    factors.append("–" if a is None or b is None else f"{b['value'] / a['value'] / 10:.2f}")
                columns += [[shown(cell) for cell in cells], factors]
                used += cells
    rows = [[f"{size:,}", *(column[index] for column in columns)] for index, size in enumerate(sizes)]
    return section(head, rows, used)


_Column = tuple[str, str, bool | None]
"""Heading, name of the measurement, and whether its growth is shown: of a value per molecule (``False``), of a total
(``True``), or not (``None``)."""
READING: tuple[_Column, ...] = (
    ("read: ms", "read, CPU time", False),
    ("from the cache: ms", "read from the cache, CPU time", None),
    ("memory to read: MB", "read, memory", True),
    ("store: bytes a molecule", "store", None),
    ("scaffolds: ms", "scaffold groups, CPU time", False),
    ("split: ms", "scaffold split, CPU time", False),
)
TRAINING: tuple[_Column, ...] = (
    ("train: ms", "train, CPU time", False),
    ("process: MB", "train, memory of the process", None),
    ("predict: ms", "predict, CPU time", False),
)
TRAINING_CUDA: tuple[_Column, ...] = (
    ("an epoch: s", "train, an epoch", True),
    ("roofline: %", "train, share of the roofline", None),
    ("GPU: MB", "train, memory of the GPU", True),
    ("streamed: s", "train, streamed, an epoch", True),
    ("predict: molecules a second", "predict, molecules a second", None),
)


def large_sets(measured: Measurements, device: str, wanted: Sequence[_Column]) -> str:
    """Measurements of sets of molecules by size, with the growth of those that should be linear."""
    head, columns, used = ["molecules"], [], []
    for heading, what, is_total in wanted:
        cells = measured.cells(device, *((f"large: {what}", title(size)) for size in SIZES))
        if not any(cells):
            continue
        head.append(heading)
        columns.append([shown(cell) for cell in cells])
        used += cells
        if is_total is not None:
            head.append("per decade")
            columns.append(
                ["–", *(_decade(*pair, is_total) for pair in pairwise(zip(SIZES, cells, strict=True)))]
            )
    rows = [[f"{size:,}", *(column[index] for column in columns)] for index, size in enumerate(SIZES)]
    return section(head, [row for row in rows if set(row[1:]) != {"–"}], used)


def _decade(
    before: tuple[int, Measurement | None], after: tuple[int, Measurement | None], is_total: bool
) -> str:
    """Growth of a value for a molecule from one size to the next, as that over a tenfold size."""
    (few, one), (many, two) = before, after
    if one is None or two is None or not one["value"]:
        return "–"
    growth = two["value"] / one["value"] / (many / few if is_total else 1)
    return f"{growth ** (1 / math.log10(many / few)):.2f}"


def kernels(folder: Path) -> str:
    """The first sentence of every file that holds a Triton kernel."""
    rows = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8")
        if "@triton.jit" in text:
            summary = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("\n", " ")
            plain = re.sub(r":\w+:`([^`]*)`", r"`\1`", summary).replace("``", "`")
            rows.append((f"`{path.name}`", plain.replace("|", "\\|")))
    return table(("file", "what it does"), rows)
