"""docs/performance.md from made-up measurements: every kind of measurement is shown, missing ones are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.measure_training_speed import PAPER, measurement_names
from benchmarks.pages import performance
from benchmarks.pages.reproduction.hgcn_tables import Results

from graphcaps.profiling import PHASES


def _entry(what: str, dataset: str, device: str, value: float, unit: str = "s") -> dict[str, Any]:
    measured: dict[str, Any] = {
        "what": what,
        "dataset": dataset,
        "device": device,
        "value": value,
        "unit": unit,
    }
    versions = {"torch": "2.11.0", "commit": "0123456789abcdef"}
    return measured | {
        "command": "graphcaps bench X",
        "hardware": "a GPU",
        "versions": versions,
        "date": "today",
    }


def _page(root: Path, measurements: list[Any]) -> str:
    (root / "results").mkdir()
    (root / "results" / "performance.json").write_text(json.dumps(measurements))
    ops = root / "src" / "graphcaps" / "ops"
    ops.mkdir(parents=True)
    (ops / "sums_triton.py").write_text(
        '"""Sums of :func:`rows` in one pass.\n\nMore."""\n@triton.jit\ndef kernel(): ...\n'
    )
    (ops / "sums.py").write_text('"""No kernel."""\n')
    return performance.page(root)


def test_without_measurements_nothing_is_claimed(tmp_path: Path) -> None:
    text = _page(tmp_path, [])
    assert text.count("| not measured |") == 12
    assert text.count("*Not measured.*") == 17
    assert "{{" not in text
    assert "| `sums_triton.py` | Sums of `rows` in one pass. |" in text
    assert "sums.py" not in text


def test_every_kind_of_measurement_is_shown(tmp_path: Path) -> None:
    entries = []
    for seeds in (1, 5):
        for offset, precision in enumerate(("float32", "tf32")):
            one, whole = measurement_names("paper", seeds, precision)
            entries.append(_entry(whole, "all eleven", "cuda", 100.0 * seeds + offset))
            for number, name in enumerate(PAPER):
                entries += [
                    _entry(f"{one}: training and evaluation", name, "cuda", number + 0.5),
                    _entry(f"{one}: peak memory allocated", name, "cuda", 1000.0 + 100 * number, "MB"),
                    _entry(f"{one}: accuracy C", name, "cuda", 80.125, "%"),
                    _entry(f"{one}: accuracy C, deviation over seeds", name, "cuda", 0.5, "%"),
                ]
    entries.append(_entry("bench: training step of 10 folds, tf32", "NCI1", "cuda", 1.25, "ms"))
    entries.append(_entry("bench: share of the roofline, training step, tf32", "NCI1", "cuda", 31.5, "%"))
    for phase in PHASES:
        entries.append(_entry(f"bench: phase of a step, {phase}, tf32", "NCI1", "cuda", 0.125, "ms"))
    entries.append(_entry("bench: an epoch of 10 folds, tf32", "NCI1", "cuda", 0.02))
    entries.append(_entry("bench: an epoch of one fold, padded, tf32", "NCI1", "cuda", 1.3))
    faster = "bench: a fold's epoch, times faster than padded, tf32"
    entries.append(_entry(faster, "NCI1", "cuda", 650.0, "times"))
    for name in ("MUTAG", "NCI1"):
        entries.append(_entry("bench: an epoch of 10 folds", name, "cpu", 5.0))
        for baseline, times in (("padded", 17.75), ("torch-geometric diffpool", 2.0)):
            entries.append(_entry(f"bench: an epoch of one fold, {baseline}", name, "cpu", 0.5 * times))
            entries.append(
                _entry(f"bench: a fold's epoch, times faster than {baseline}", name, "cpu", times, "times")
            )
    for power in range(2, 7):
        name = f"one graph of {10**power} nodes"
        entries.append(
            _entry("bench: forward and backward of one graph", name, "cpu", 0.001 * 11**power, "ms")
        )
        entries.append(_entry("bench: peak memory of one graph", name, "cpu", 10.0**power, "MB"))
    text = _page(tmp_path, entries)
    for expected in (
        "| **100.0 s; 101.0 s in tf32** |",
        "| **500.0 s; 501.0 s in tf32** |",
        "| **2.00 GB (REDDIT-BINARY)** |",
        "| **31.5 % in tf32** |",
        "| **1.3 s, beside graphcaps in tf32** |",
        "| NCI1, tf32 | 0.002 | 1.3 (650.00 ×) | – | – | – |",
        "| **17.75 times** |",
        "| **MUTAG 2.00 ×, NCI1 2.00 ×** |",
        "| **time 1.10 ×, memory 1.00 ×** |",
        "| **row** | 100.0 | – | 101.0 | – | 500.0 | – | 501.0 | – |",
        "| NCI1 | 4.5 | 80.12 ± 0.50 | – | – | 4.5 | 80.12 ± 0.50 | – | – |",
        "| phase | NCI1, tf32: ms | roofline |",
        "| hop | 0.125 | – |",
        "| **whole** | 1.25 | 31.5 % |",
        "| NCI1 | 0.5 | 8.875 (17.75 ×) | – | 1.0 (2.00 ×) | – |",
        "| 1,000 | 1.331 | 1.10 | 1,000.0 | 1.00 |",
        "- `graphcaps bench X` (a GPU, torch 2.11.0, commit 0123456789ab, today)",
    ):
        assert expected in text, expected


def test_c_of_five_seeds_is_compared_with_the_same_seeds_of_the_reproduction() -> None:
    class Stored(Results):
        def seeds(self, dataset: str, variant: str, rule: str) -> np.ndarray:
            return np.array([80.0, 81.0, 80.5, 80.0, 81.0] if dataset == "NCI1" else [80.0])

    base = measurement_names("paper", 5, "tf32")[0]
    entries = [
        _entry(f"{base}: {what}", name, "cuda", value)
        for name in ("NCI1", "DD")
        for what, value in (
            ("training and evaluation", 1.5),
            ("accuracy C", 80.25),
            ("accuracy C, deviation over seeds", 0.5),
        )
    ]
    shown = performance.precision(performance.Measurements(entries), Stored(Path("none")))
    # Means 80.25 and 80.5, variances 0.25 and 0.25: the standard error is sqrt(0.5 / 5).
    assert "| NCI1 | 1.5 | 80.25 ± 0.50 | – | -0.25 ± 0.32 |" in shown
    assert "| DD | 1.5 | 80.25 ± 0.50 | – | – |" in shown


def test_large_sets_have_their_growth_over_a_decade(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    entries = [
        _entry(f"large: {what}", f"{size} molecules", device, value)
        for what, device, values in (
            ("read, CPU time", "cpu", (1.0, 1.2, 1.2, 1.2)),
            ("read, memory", "cpu", (10.0, 100.0, 1000.0, 8000.0)),
            ("train, an epoch", "cuda", (0.5, 5.0)),
        )
        for size, value in zip((1000, 10_000, 100_000, 400_000), values, strict=False)
    ]
    (tmp_path / performance.LARGE_SETS).write_text(json.dumps(entries))
    measured = performance.Measurements(entries)
    read = performance.large_sets(measured, "cpu", performance.READING)
    assert "| molecules | read: ms | per decade | memory to read: MB | per decade |" in read
    assert "| 10,000 | 1.2 | 1.20 | 100.0 | 1.00 |" in read
    assert (
        "| 400,000 | 1.2 | 1.00 | 8,000.0 | 3.16 |" in read
    )  # twice for four times as many, as over a decade
    trained = performance.large_sets(measured, "cuda", performance.TRAINING_CUDA)
    assert "| 10,000 | 5.0 | 1.00 |" in trained
    assert "100,000" not in trained
    assert performance.large_sets(measured, "cpu", performance.TRAINING) == "*Not measured.*"


def test_small_runs_are_shown_with_their_ratio(tmp_path: Path) -> None:
    fit = "small: HGCNClassifier().fit"
    page = _page(
        tmp_path,
        [
            _entry("small: import graphcaps, CPU time", "MUTAG", "cpu", 0.02),
            _entry(f"{fit}, CPU time", "MUTAG", "cpu", 9.5),
            _entry(f"{fit}, times commit 12", "MUTAG", "cpu", 0.5, "times"),
            _entry(f"{fit}, epochs", "MUTAG", "cpu", 200, "epochs"),
        ],
    )
    lines = page.splitlines()
    (fitted,) = (line for line in lines if line.startswith("| `HGCNClassifier().fit`"))
    assert [cell.strip() for cell in fitted.split("|")[2:5]] == ["9.5 s", "200 epochs", "0.5 times"]
    (imported,) = (line for line in lines if line.startswith("| `import graphcaps`"))
    assert "0.02 s" in imported


def test_searches_show_seconds_by_device_and_the_ratio() -> None:
    gpu = {
        "device": "cuda", "trials": 64, "folds": 10, "epochs": 100, "hardware": "a GPU",
        "versions": {"commit": "0123456789abcdef"}, "first": {"seconds": 36.2, "cpu_seconds": 1.0},
        "alone": {"seconds": 52.9, "cpu_seconds": 1.0}, "together": {"seconds": 13.3, "cpu_seconds": 1.0},
    }  # fmt: skip
    cpu = gpu | {"device": "cpu", "search": {"seconds": 1.0, "cpu_seconds": 7.0}}
    shown = performance.searches([gpu, cpu])
    assert "| GPU | 64 × 10 × 100 | 36 | – | 13 | 53 | – | 4.0 |" in shown
    assert "| two CPU cores | 64 × 10 × 100 | 1 | 7 | 1 | 1 | 0.1 | 1.0 |" in shown
    assert shown.startswith(
        "| device | trials × folds × epochs | first search | search | together | alone | alone / search |"
    )
    assert shown.endswith("GPU: a GPU, commit 0123456789ab; two CPU cores: a GPU, commit 0123456789ab.")
    assert performance.searches([]) == performance.NOT_MEASURED


def test_options_are_compared_with_the_plain_step() -> None:
    entries = []
    for name, value in (("two-levels", 30.0), ("plain", 20.0)):
        entries.append(_entry(f"option {name}, tf32: an epoch of 10 folds", "NCI1", "cuda", value, "ms"))
        entries.append(
            _entry(f"option {name}, tf32: times the plain step", "NCI1", "cuda", value / 20, "times")
        )
    entries.append(_entry("option plain, tf32: captured", "NCI1", "cuda", 1, "CUDA graph"))
    lines = performance.options(performance.Measurements(entries)).splitlines()
    assert lines[2:4] == [
        "| `plain` | NCI1, tf32 | 20.0 | 1.00 | yes |",
        "| `two-levels` | NCI1, tf32 | 30.0 | 1.50 | no |",
    ]


def test_start_up_tests_and_clusters_are_shown_with_their_command(tmp_path: Path) -> None:
    setup = {"hardware": "a GPU", "versions": {"torch": "2.11.0", "commit": "0123456789abcdef"}}
    phases = {"imports": {"seconds": 3.5}, "epochs": {"seconds": 4.75}}
    run = {"run": "empty", "total": 21.5, "compilations": {"a": [2, 1.0], "b": [1, 1.0]}, "phases": phases}
    path = tmp_path / "file.json"
    path.write_text(json.dumps(setup | {"command": "evaluate", "runs": [run]}))
    shown = performance.cold_start(path)
    assert "| empty | 21.5 | 3 | 3.5 | – | – | – | 4.8 |" in shown
    assert (
        "`python -m benchmarks.measure_cold_start --runs empty` (a GPU, torch 2.11.0, commit 0123456789ab)"
        in shown
    )
    files = [
        {"file": "tests/a.py", "passed": 4, "failed": 1, "failures": {"test_x": "no"}},
        {"file": "tests/b.py", "passed": 5, "failed": 0, "failures": {}},
        {"file": "tests/skipped.py", "passed": 0, "failed": 0, "failures": {}},
    ]
    path.write_text(json.dumps(setup | {"passed": 9, "failed": 1, "files": files}))
    assert performance.gpu_tests(path).startswith("9 tests in 2 files passed, 1 failed: test_x (tests/a.py).")
    runs = {
        "processes": [{"seconds": 2.0, "cpu_seconds": 4.0}],
        "ray": [{"seconds": 3.0, "cpu_seconds": 4.0}],
    }
    ratios = {"seconds": 1.5, "cpu_seconds": 1.0}
    path.write_text(json.dumps(setup | {"dataset": "X", "epochs": 5, "runs": runs, "ratios": ratios}))
    assert "| Ray | 3.0 | 4.0 |\n| ratio | 1.50 | 1.00 |" in performance.cluster(path)
