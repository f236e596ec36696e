"""A comparison that is killed and resumed gives the results of an uninterrupted one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from graphcaps.evaluation import ResultsStore
from tests.cli.test_evaluate import write_tu
from tests.cli.test_evaluate_kill import PROGRAM

pytestmark = [
    pytest.mark.exhaustive,  # kills are tested by tests/test_kill_storm.py, too
    pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix"),
]
MODELS = ("majority", "mlp", "gfn")


def start(root: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-c", PROGRAM, "compare", "OWN", "--root", str(root), "--models", ",".join(MODELS)),
        *(
            "--folds",
            "3",
            "--epochs",
            "12",
            "--protocol",
            "both",
            "--device",
            "cpu",
            "--out",
            str(out),
            *more,
        ),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "2", "GRAPHCAPS_CACHE": str(root / "cache")}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def results(out: Path) -> list[dict[str, Any]]:
    """What ``comparison.json`` says of each model, without time and memory."""
    rows = json.loads((out / "comparison.json").read_text("utf-8"))["results"]
    names = ("model", "figures", "metrics", "twin_free", "test")
    return [{name: row.get(name) for name in names} for row in rows]


def test_killed_and_resumed_comparison_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    root, out, whole = tmp_path / "sets", tmp_path / "out", tmp_path / "whole"
    write_tu(root, "OWN", [1, 2] * 12)
    uninterrupted = start(root, whole)
    errors = uninterrupted.communicate()[1]
    assert uninterrupted.returncode == 0, errors
    for kill, model in ((signal.SIGKILL, "mlp"), (signal.SIGINT, "gfn")):
        process = start(root, out, "--resume")
        pattern, end = f"unfinished/*{model}*.checkpoint", time.monotonic() + 200
        before = {path: path.stat().st_mtime_ns for path in out.glob(pattern)}
        # Waits until the model is being trained and has written a checkpoint.
        while {path: path.stat().st_mtime_ns for path in out.glob(pattern)} in (before, {}):
            time.sleep(0.01)
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < end, "no new checkpoint in time"
        process.send_signal(kill)
        errors = process.communicate()[1]
        assert process.returncode == (130 if kill == signal.SIGINT else -kill), errors
        assert not (out / "comparison.json").exists()
        if kill == signal.SIGINT:
            assert errors.splitlines()[-1] == "Stopped. Continue with the same command and --resume."
            assert "Traceback" not in errors
    last = start(root, out, "--resume")
    errors = last.communicate()[1]
    assert last.returncode == 0, errors
    resumed, expected = (ResultsStore(folder).records() for folder in (out, whole))
    assert [each.key for each in resumed] == [each.key for each in expected]
    assert len(resumed) == 2 * len(MODELS)
    for one, other in zip(resumed, expected, strict=True):
        assert one.curves == other.curves, one.key
    assert results(out) == results(whole)
    assert not [*(out / "unfinished").glob("*.checkpoint")]
