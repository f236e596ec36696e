"""CPU time of small runs: processes of both versions alternate, and medians and ratios are stored."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import measure_small_runs as program


def test_versions_alternate_and_the_median_ratio_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[Path] = []
    seconds = iter([2.0, 4.0, 3.0, 4.0, 9.0, 10.0])  # fits of three seeds, this version and the other

    def run(words: Sequence[str | Path], source: Path) -> tuple[float, str]:
        sources.append(source)
        if "HGCNClassifier(random_state" in str(words[1]):
            return 0.0, json.dumps({"seconds": next(seconds), "epochs": 10})
        return (1.0 if source == program.HERE else 4.0), ""

    monkeypatch.setattr(program, "_run", run)
    other = Path("other/src")
    arguments = argparse.Namespace(seeds=[0, 1, 2], epochs=300, rounds=2, against=other, against_name="0.1")
    values = program.measure(arguments)
    # The first run makes the models, and a run of each command leaves bytecode.
    assert sources[1:] == [program.HERE, other] * (6 + 2 * 6 + 3)
    fit = "small: HGCNClassifier().fit"
    assert values[f"{fit}, CPU time"] == (3.0, "s")
    assert values[f"{fit}, times 0.1"] == (0.75, "times")
    assert values[f"{fit}, an epoch, CPU time"] == (300.0, "ms")
    assert values[f"{fit}, epochs"] == (10, "epochs")
    assert values["small: graphcaps data info MUTAG, times 0.1"] == (0.25, "times")


def test_processes_write_bytecode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    words = ["-c", "import sys; sys.exit(sys.dont_write_bytecode)"]
    program.cpu_seconds(words, program.HERE)  # an error if the process must not write it


def test_cpu_time_of_a_process_and_its_failure() -> None:
    spent = program.cpu_seconds(["-c", "sum(range(3_000_000))"], program.HERE)
    assert 0 < spent < 5
    with pytest.raises(SystemExit, match=r"(?s)failed: .*ZeroDivisionError"):
        program.cpu_seconds(["-c", "1 / 0"], program.HERE)
