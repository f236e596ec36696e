"""The page of speed, made from figures: every kind of them has its place, and what is missing is said."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphcaps.bench import PHASES, read_measurements

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The programs in benchmarks/, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import engine_speed  # type: ignore[import-not-found]
    import performance_page  # type: ignore[import-not-found]
    import performance_tables  # type: ignore[import-not-found]

    yield argparse.Namespace(speed=engine_speed, page=performance_page, tables=performance_tables)
    for name in ("performance_page", "performance_tables", "engine_speed"):
        sys.modules.pop(name, None)


def _entry(what: str, dataset: str, device: str, value: float, unit: str = "s") -> dict[str, Any]:
    found: dict[str, Any] = {"what": what, "dataset": dataset, "device": device, "value": value, "unit": unit}
    versions = {"torch": "2.11.0", "commit": "0123456789abcdef"}
    return found | {
        "command": "graphcaps bench X",
        "hardware": "a GPU",
        "versions": versions,
        "date": "today",
    }


def _page(programs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entries: list[Any]) -> str:
    path = tmp_path / "performance.json"
    path.write_text(json.dumps(entries))
    monkeypatch.setattr(programs.page, "FIGURES", path)
    return str(programs.page.page())


def test_without_figures_nothing_is_claimed(
    programs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = _page(programs, monkeypatch, tmp_path, [])
    assert text.count("| not measured yet | – |") == 11
    assert text.count("*Not measured yet.*") == 7
    assert "{{" not in text
    assert "`pair_loss_triton.py`" in text


def test_every_kind_of_figure_has_its_place(
    programs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entries = []
    for seeds in (1, 5):
        for place, precision in enumerate(("float32", "tf32")):
            one, whole = programs.speed.names("paper", seeds, precision)
            entries.append(_entry(whole, "all eleven", "cuda", 100.0 * seeds + place))
            for number, name in enumerate(programs.speed.PAPER):
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
        for rival, times in (("padded", 17.75), ("torch-geometric diffpool", 2.0)):
            entries.append(_entry(f"bench: an epoch of one fold, {rival}", name, "cpu", 0.5 * times))
            entries.append(
                _entry(f"bench: a fold's epoch, times faster than {rival}", name, "cpu", times, "times")
            )
    for power in range(2, 7):
        name = f"one graph of {10**power} nodes"
        entries.append(
            _entry("bench: forward and backward of one graph", name, "cpu", 0.001 * 11**power, "ms")
        )
        entries.append(_entry("bench: peak memory of one graph", name, "cpu", 10.0**power, "MB"))
    text = _page(programs, monkeypatch, tmp_path, entries)
    for expected in (
        "| **100.0 s; 101.0 s in tf32** | `graphcaps bench X` |",
        "| **500.0 s; 501.0 s in tf32** |",
        "| **2.00 GB (REDDIT-BINARY)** |",
        "| **31.5 % in tf32** |",
        "| **1.3 s beside ours in tf32** |",
        "| NCI1, tf32 | 0.002 | 1.3 (650.00 ×) | – | – | – |",
        "| **17.75 times** |",
        "| **MUTAG 2.00 ×, NCI1 2.00 ×** |",
        "| **time 1.10 ×, memory 1.00 ×** |",
        "| **row** | 100.0 | – | 101.0 | – | 500.0 | – | 501.0 | – |",
        "| NCI1 | 4.5 | 80.12 ± 0.50 | – | 4.5 | 80.12 ± 0.50 | – | – | – | – |",
        "| phase | NCI1, tf32: ms | roofline |",
        "| hop | 0.125 | – |",
        "| **whole** | 1.25 | 31.5 % |",
        "| NCI1 | 0.5 | 8.875 (17.75 ×) | – | 1.0 (2.00 ×) | – |",
        "| 1,000 | 1.331 | 1.10 | 1,000.0 | 1.00 |",
        "- `graphcaps bench X` (a GPU, torch 2.11.0, commit 0123456789ab, today)",
    ):
        assert expected in text, expected


def _row(tmp_path: Path, **changes: Any) -> argparse.Namespace:
    given: dict[str, Any] = {
        "device": "cpu", "protocol": "paper", "seeds": 2, "precision": None, "records": tmp_path / "records",
        "resume": False, "datasets": ["planted-parts-easy", "planted-parts-hard"], "epochs": 3, "root": None,
        "out": tmp_path / "row.json", "jobs": 1,
    }  # fmt: skip
    return argparse.Namespace(**(given | changes))


def test_a_row_that_is_cut_off_goes_on(
    programs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is finished stays, with its seconds; what was cut off starts over."""
    asked: list[str] = []

    def one_set(arguments: Any, name: str) -> dict[str, tuple[float, str]]:
        asked.append(name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return {": training and evaluation": (4.0, "s")}

    monkeypatch.setattr(programs.speed, "_one_set", one_set)
    (tmp_path / "records" / "unfinished").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        programs.speed.row(_row(tmp_path))
    first = read_measurements(tmp_path / "row.json")
    assert [one["dataset"] for one in first] == ["planted-parts-easy"] * 2
    programs.speed.row(_row(tmp_path, resume=True))
    assert asked == ["planted-parts-easy", "planted-parts-hard", "planted-parts-hard"]
    assert not (tmp_path / "records" / "unfinished").exists()
    entries = read_measurements(tmp_path / "row.json")
    assert entries[:2] == first
    base = "HGCN, ten folds × 2 seeds, 3 epochs, paper"
    assert [one["what"] for one in entries[2:]] == [
        f"{base}: training and evaluation",
        f"{base}, start-up and compilation counted",
    ]
    assert entries[2]["command"] == (
        "python benchmarks/engine_speed.py row --protocol paper --seeds 2 --precision float32 --device cpu "
        "--records records --datasets planted-parts-easy planted-parts-hard --epochs 3"
    )


def test_the_row_of_the_paper_adds_up(programs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs.speed, "_one_set", lambda arguments, name: {})
    datasets = list(programs.speed.PAPER)
    wanted = _row(tmp_path, datasets=datasets, epochs=None, seeds=5, precision="tf32")
    programs.speed.row(wanted)
    *each, total = read_measurements(tmp_path / "row.json")
    assert (
        total["what"] == "HGCN row of tables 1 and 2, paper, 5 seeds, tf32, start-up and compilation counted"
    )
    assert total["dataset"] == "all eleven"
    assert total["value"] == pytest.approx(sum(one["value"] for one in each), abs=0.1)
    wanted.resume = True
    programs.speed.row(wanted)
    assert read_measurements(tmp_path / "row.json")[-1]["value"] == pytest.approx(total["value"], abs=0.1)
