"""A storm of kills: a run of ``graphcaps train`` or ``evaluate`` is killed again and again, and resumed.

    python -m tests.kill_storm --kills 10 --seed 0

Each run is killed by SIGKILL at random times, with a seed: while it starts, within 0.4 s of its first checkpoint, or
during the next write. After each kill every file of the run is complete; what is not has the name of a temporary
file. The resumed run must end with the same bits as one that was not disturbed, and leave no other file.

Processes are forked from one that has imported graphcaps, which saves seconds per start. Half-way through each file
they wait for 0.09 s, so that kills hit writes, and no run ends before its last kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from graphcaps._io.checked_safetensors import read_checked
from graphcaps.evaluation import ResultsStore
from graphcaps.training.checkpoint import _KIND, FORMAT
from tests.cli.training import same_weights, write_inputs

EPOCHS = 60
WRITE_SECONDS = 0.09
START_SECONDS, RUN_SECONDS = 0.3, 0.4
WAIT_SECONDS = 60.0
# Forks a process per line of its input, a list of arguments; answers with the process number, then the exit status.
FORKING = """
import io, json, os, sys, time
import graphcaps.cli.main, graphcaps.cli.progress, graphcaps.cli.training_files, graphcaps.evaluation
import graphcaps.inference.fitted_model, graphcaps.training.baseline, graphcaps.training.final_training
from graphcaps._io import atomic_write
seconds = float(sys.argv[1])
class SlowFile(io.BufferedRandom):
    def write(self, content):
        half = len(content) // 2
        super().write(content[:half])
        self.flush()
        time.sleep(seconds)
        return half + super().write(content[half:])
for line in sys.stdin:
    arguments, is_slow, log = json.loads(line)
    child = os.fork()
    if child == 0:
        errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 1), os.dup2(errors, 2)
        if is_slow:
            atomic_write.open = lambda path, mode: SlowFile(io.FileIO(path, mode))
        sys.argv = ["graphcaps", *arguments]
        graphcaps.cli.main.main()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True)
class Storm:
    """What the kills hit.

    Args:
        kills (int): Number of kills.
        starting (int): Of these, before the first checkpoint of a start.
        writing (int): Of these, during a write: a temporary file was left.
    """

    kills: int
    starting: int
    writing: int


class _Runs:
    """Starts and ends runs of the command line."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self.log = process, folder / "log.txt"

    def start(self, arguments: list[str], *, is_slow: bool) -> int:
        """Number of the new process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([arguments, is_slow, str(self.log)]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def status(self) -> int:
        """Exit status of the last process, when it has ended; the negative signal if one has ended it."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def complete(self, arguments: list[str]) -> None:
        self.start(arguments, is_slow=False)
        status = self.status()
        assert status == 0, self.log.read_text()


@contextmanager
def _runs(folder: Path, threads: int = 1) -> Iterator[_Runs]:
    environment = os.environ | {"OMP_NUM_THREADS": f"{threads}", "GRAPHCAPS_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", FORKING, str(WRITE_SECONDS)]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield _Runs(process, folder)


def storm_on_train(folder: Path, kills: int = 10, seed: int = 0, members: int = 1) -> Storm:
    """Kills a training; raises ``AssertionError`` if a promise does not hold.

    With several ``members`` it is that of a committee, which two processes of the run train.
    """
    arguments = [*write_inputs(folder, EPOCHS), "--no-baseline", "--checkpoint-every", "1"]
    arguments += ["--ensemble", f"{members}"]
    calm, out = folder / "calm" / "m.safetensors", folder / "out" / "m.safetensors"
    calm.parent.mkdir()
    out.parent.mkdir()
    with _runs(folder, threads=min(members, 2)) as runs:
        runs.complete([*arguments, "--out", str(calm)])
        resumed = [*arguments, "--out", str(out), "--resume"]
        storm = _storm(runs, resumed, out.parent, kills, seed, lambda: _check_training(out))
        runs.complete(resumed)
    assert same_weights(out, calm)
    assert _history(out) == _history(calm)
    assert _files(out.parent) == _files(calm.parent)
    return storm


def storm_on_committee(folder: Path, kills: int = 10, seed: int = 0) -> Storm:
    """Kills the training of a committee of three members."""
    return storm_on_train(folder, kills, seed, members=3)


def storm_on_evaluate(folder: Path, kills: int = 10, seed: int = 0) -> Storm:
    """Kills a cross-validation of two seeds, one after the other; raises ``AssertionError`` as above."""
    data, preset = write_inputs(folder, EPOCHS // 2)[1:4:2]
    arguments = ["evaluate", data, "--preset", preset, "--folds", "3", "--seeds", "2", "--group", "3"]
    arguments += ["--device", "cpu", "--no-baseline", "--checkpoint-every", "1"]
    calm, out = folder / "calm", folder / "out"
    with _runs(folder) as runs:
        runs.complete([*arguments, "--out", str(calm)])
        resumed = [*arguments, "--out", str(out), "--resume"]
        storm = _storm(runs, resumed, out, kills, seed, lambda: _check_evaluation(out))
        runs.complete(resumed)
    expected, records = ResultsStore(calm).records(), ResultsStore(out).records()
    assert [record.key for record in records] == [record.key for record in expected]
    assert [record.curves for record in records] == [record.curves for record in expected]
    assert _files(out) == _files(calm)
    return storm


def _storm(
    runs: _Runs, arguments: list[str], out: Path, kills: int, seed: int, check: Callable[[], None]
) -> Storm:
    """Starts the run and kills it, again and again; each kill must find it running."""
    source = random.Random(seed)
    starting = writing = 0
    for _ in range(kills):
        before, left = _checkpoints(out), _temporary(out)
        process = runs.start(arguments, is_slow=True)
        moment = source.choice(("start", "run", "write"))
        if moment == "start":
            time.sleep(source.uniform(0, START_SECONDS))
        else:
            _wait(runs, lambda: _checkpoints(out) != before)  # noqa: B023
            time.sleep(source.uniform(0, RUN_SECONDS))
        if moment == "write":
            _wait(runs, lambda: _temporary(out) - left)  # noqa: B023
            time.sleep(source.uniform(0, WRITE_SECONDS / 2))
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        status = runs.status()
        assert status == -signal.SIGKILL, f"it ended before it was killed: {runs.log.read_text()}"
        starting += _checkpoints(out) == before
        writing += bool(_temporary(out) - left)
        check()
    return Storm(kills, starting, writing)


def _wait(runs: _Runs, is_ready: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not is_ready():
        assert time.monotonic() < end, f"nothing was written: {runs.log.read_text()}"
        time.sleep(0.005)


def _checkpoints(out: Path) -> dict[Path, int]:
    found = {}
    for path in out.rglob("*.checkpoint"):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # it was just removed
            continue
    return found


def _temporary(out: Path) -> set[str]:
    return {path.name for path in out.rglob(".*.part")}


def _files(out: Path) -> list[str]:
    """Names of all files and folders, hidden ones too."""
    return sorted(str(path.relative_to(out)) for path in out.rglob("*"))


def _check_training(out: Path) -> None:
    """Every file that is there is complete: a checkpoint, and no model before the end."""
    for path in _checkpoints(out.parent):
        read_checked(path, _KIND, FORMAT)
    assert not out.exists()


def _check_evaluation(out: Path) -> None:
    for path in _checkpoints(out):
        read_checked(path, _KIND, FORMAT)
    ResultsStore(out).records()  # raises if a record is not complete


def _history(model: Path) -> list[dict[str, float]]:
    rows = json.loads(model.with_name(f"{model.name}.history.json").read_text())
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def _main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Kills and resumes a training and an evaluation.")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    for storm in (storm_on_train, storm_on_committee, storm_on_evaluate):
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"{storm.__name__}: {storm(Path(folder), options.kills, options.seed)}\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
