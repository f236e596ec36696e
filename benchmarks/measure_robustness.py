"""Damaged files and killed runs: what readers and resumed runs make of them, for docs/security.md.

    python -m benchmarks.measure_robustness            # writes results/robustness.json

Runs the fuzzing of ``tests/fuzz_readers.py`` and the kills of ``tests/kill_storm.py``. A kill that damages a file or
changes a result ends the program with an error; inputs that fail are counted. ``make pages`` writes the tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.fuzz_readers import FORMATS, run_inputs
from tests.kill_storm import Runs, Storm, storm_on_committee, storm_on_evaluate, storm_on_train

from graphcaps._io.atomic_write import write_atomically
from graphcaps._io.provenance import describe_hardware, versions_and_commit

RESULTS = Path(__file__).resolve().parents[1] / "results" / "robustness.json"
INPUTS = ((1000, 0),)  # number of inputs, seed
KILLS, KILL_SEED = 10, 0
STORMS: dict[str, Callable[[Runs, Path, int, int], Storm]] = {
    "train": storm_on_train,
    "train --ensemble": storm_on_committee,
    "evaluate": storm_on_evaluate,
}


def measure_inputs(count: int, seed: int) -> dict[str, Any]:
    """Outcomes of damaged inputs."""
    counts = Counter(outcome.kind for outcome in run_inputs(count, seed))
    row = {"inputs": count, "seed": seed, **{kind: counts[kind] for kind in ("read", "refused", "failed")}}
    print(json.dumps(row), flush=True)
    return row


def measure_kills(run: str) -> dict[str, Any]:
    """What the kills of one run hit."""
    with Runs() as runs, tempfile.TemporaryDirectory() as folder:
        storm = STORMS[run](runs, Path(folder), KILLS, KILL_SEED)
    row = {"run": run, "seed": KILL_SEED, **asdict(storm)}
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    record = {
        "command": "python -m benchmarks.measure_robustness",
        "hardware": describe_hardware(),
        "versions": versions_and_commit(),
        "formats": len(FORMATS),
        "inputs": [measure_inputs(count, seed) for count, seed in INPUTS],
        "kills": [measure_kills(run) for run in STORMS],
    }
    write_atomically(arguments.out, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
