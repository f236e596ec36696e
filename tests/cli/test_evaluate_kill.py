"""An evaluation that is killed and resumed gives the records of an uninterrupted one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphcaps.evaluation import ResultsStore
from tests.cli.test_evaluate import PRESET, write_tu

pytestmark = [
    pytest.mark.exhaustive,  # kills are tested by tests/test_kill_storm.py, too
    pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix"),
]
# A checkpoint after every epoch and slow writes, so that some signals arrive during a write.
PROGRAM = """
import os, time
fsync = os.fsync
os.fsync = lambda number: (time.sleep(0.03), fsync(number))[1]
import graphcaps.training.checkpoint_writer as writer
writer.CHECKPOINT_SECONDS = 0.0
writer.MAX_TIME_SHARE = 1e9
from graphcaps.cli.main import main
main()
"""


def start(root: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-c", PROGRAM, "evaluate", "OWN", "--root", str(root)),
        *("--preset", str(root / "small.toml"), "--folds", "3", "--epochs", "12", "--protocol", "both"),
        *("--seeds", "2", "--device", "cpu", "--no-baseline", "--out", str(out), *more),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "2", "GRAPHCAPS_CACHE": str(root / "cache")}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_killed_and_resumed_evaluation_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    root, out = tmp_path / "sets", tmp_path / "out"
    write_tu(root, "OWN", [1, 2] * 12)
    (root / "small.toml").write_text(PRESET)
    uninterrupted = start(root, tmp_path / "uninterrupted")
    assert uninterrupted.communicate()[0]
    assert uninterrupted.returncode == 0
    delays = random.Random(7)
    for kill in (signal.SIGKILL, signal.SIGINT):
        process = start(root, out, "--resume")
        checkpoints = out / "unfinished"
        before = {path: path.stat().st_mtime_ns for path in checkpoints.glob("*.checkpoint")}
        end = time.monotonic() + 300
        # Waits for at least one new checkpoint, then for a random time.
        while {path: path.stat().st_mtime_ns for path in checkpoints.glob("*.checkpoint")} == before:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end, "no new checkpoint in time"
            time.sleep(0.005)
        time.sleep(delays.uniform(0, 0.4))
        process.send_signal(kill)
        errors = process.communicate()[1]
        assert process.returncode == (130 if kill == signal.SIGINT else -kill), errors
    last = start(root, out, "--resume")
    errors = last.communicate()[1]
    assert last.returncode == 0, errors
    resumed, expected = (ResultsStore(folder).records() for folder in (out, tmp_path / "uninterrupted"))
    assert len(resumed) == 4
    for one, other in zip(resumed, expected, strict=True):
        assert one.key == other.key
        assert one.curves == other.curves, one.key
    assert not [*(out / "unfinished").glob("*.checkpoint")]
