"""Timing of whole trainings: interrupted and resumed rows, and the total of the paper's row."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks import measure_training_speed as program
from graphcaps.bench import read_measurements


def _row(tmp_path: Path, **changes: Any) -> argparse.Namespace:
    defaults: dict[str, Any] = {
        "device": "cpu", "protocol": "paper", "seeds": 2, "precision": None, "records": tmp_path / "records",
        "resume": False, "datasets": ["planted-parts-easy", "planted-parts-hard"], "epochs": 3, "root": None,
        "out": tmp_path / "row.json", "jobs": 1,
    }  # fmt: skip
    return argparse.Namespace(**(defaults | changes))


def test_an_interrupted_row_is_resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Finished data sets keep their times; the interrupted one starts again."""
    trained: list[str] = []

    def one_set(arguments: Any, name: str) -> dict[str, tuple[float, str]]:
        trained.append(name)
        if len(trained) == 2:
            raise KeyboardInterrupt
        return {": training and evaluation": (4.0, "s")}

    monkeypatch.setattr(program, "_one_set", one_set)
    (tmp_path / "records" / "unfinished").mkdir(parents=True)
    with pytest.raises(KeyboardInterrupt):
        program.row(_row(tmp_path))
    first = read_measurements(tmp_path / "row.json")
    assert [one["dataset"] for one in first] == ["planted-parts-easy"] * 2
    program.row(_row(tmp_path, resume=True))
    assert trained == ["planted-parts-easy", "planted-parts-hard", "planted-parts-hard"]
    assert not (tmp_path / "records" / "unfinished").exists()
    entries = read_measurements(tmp_path / "row.json")
    assert entries[:2] == first
    base = "HGCN, ten folds × 2 seeds, 3 epochs, paper"
    assert [one["what"] for one in entries[2:]] == [
        f"{base}: training and evaluation",
        f"{base}, start-up and compilation counted",
    ]
    assert entries[2]["command"] == (
        "python -m benchmarks.measure_training_speed row --protocol paper --seeds 2 --precision float32 --device cpu "
        "--records records --datasets planted-parts-easy planted-parts-hard --epochs 3"
    )


def test_the_row_of_the_paper_adds_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "_one_set", lambda arguments, name: {})
    datasets = list(program.PAPER)
    arguments = _row(tmp_path, datasets=datasets, epochs=None, seeds=5, precision="tf32")
    program.row(arguments)
    *each, total = read_measurements(tmp_path / "row.json")
    assert (
        total["what"] == "HGCN row of tables 1 and 2, paper, 5 seeds, tf32, start-up and compilation counted"
    )
    assert total["dataset"] == "all eleven"
    assert total["value"] == pytest.approx(sum(one["value"] for one in each), abs=0.1)
    arguments.resume = True
    program.row(arguments)
    assert read_measurements(tmp_path / "row.json")[-1]["value"] == pytest.approx(total["value"], abs=0.1)
