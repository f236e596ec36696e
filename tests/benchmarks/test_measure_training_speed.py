"""Timing of whole trainings: interrupted and resumed rows, and the total of the paper's row."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import measure_training_speed as program
from graphcaps.bench import read_measurements
from graphcaps.config import RunConfig
from graphcaps.data.datasets.planted_parts import planted_parts


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

    def one_set(arguments: Any, name: str, files: Any) -> dict[str, tuple[float, str]]:
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


def test_the_next_data_set_is_read_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def open_dataset(name: str, root: Any) -> str:
        read.append(name)
        return name.lower()

    monkeypatch.setattr("graphcaps.data.datasets.loading.open_dataset", open_dataset)
    files = program.ReadAhead(["A", "B", "C"], None)
    assert files.open("A") == "a"
    files._pool.submit(lambda: None).result()  # after what is read now
    assert read == ["A", "B"]
    assert [files.open("B"), files.open("C")] == ["b", "c"]
    assert read == ["A", "B", "C"]


def test_the_row_of_the_paper_adds_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "_one_set", lambda arguments, name, files: {})
    # A clock that stands still, since start-up is counted from the import of the program.
    monkeypatch.setattr(program, "time", SimpleNamespace(perf_counter=lambda: program.START + 5.0))
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


def test_committees_and_single_models_are_fitted_in_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fits: list[tuple[int, int]] = []
    clock = iter([0.0, 2.0, 2.0, 7.0, 7.0, 11.0, 11.0, 23.0])  # one round of 2 s and 5 s, one of 4 s and 12 s

    def fit(store: Any, config: Any, *, device: str, members: int) -> None:
        fits.append((members, config.training.epochs))

    monkeypatch.setattr("graphcaps.training.final_training.train_final", fit)
    monkeypatch.setattr(program.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(program, "_cpu_seconds", lambda: 1.5 * len(fits) ** 2)
    monkeypatch.setattr(program, "_process_ratio", lambda store, config, members, epochs: 100.0 + members)
    threads = torch.get_num_threads()
    try:
        options: dict[str, Any] = {"members": 3, "epochs": 7, "rounds": 2, "device": "cpu", "threads": 2}
        program.committee(
            argparse.Namespace(**options, datasets=["planted-parts"], root=None, out=tmp_path / "c.json")
        )
    finally:
        torch.set_num_threads(threads)
    assert fits == [(1, 1), (3, 1), (1, 7), (3, 7), (1, 7), (3, 7)]
    values = {one["what"]: one["value"] for one in read_measurements(tmp_path / "c.json")}
    assert values["7 epochs of a single model"] == 3.0
    assert values["7 epochs of a committee of 3"] == 8.5
    assert values["7 epochs of a committee of 3, times a single model"] == 2.75
    cpu = [1.5 * (n**2 - (n - 1) ** 2) for n in (3, 4, 5, 6)]
    ratio = (cpu[1] / cpu[0] + cpu[3] / cpu[2]) / 2
    assert values["7 epochs of a committee of 3, CPU time, times a single model"] == round(ratio, 2)
    what = "7 epochs of a committee of 3, CPU time of the process with most members (2), times a single model"
    assert values[what] == 102.0


def test_members_of_a_process_are_compared_with_one() -> None:
    config = RunConfig(model="gin", model_arguments={"hidden": 4, "num_layers": 1})
    threads = torch.get_num_threads()
    assert program._process_ratio(planted_parts(num_graphs=21), config, 2, 1) > 0.5
    assert torch.get_num_threads() == threads
