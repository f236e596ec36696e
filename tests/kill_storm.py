"""A storm of kills: a run of ``graphcaps train`` or ``evaluate`` is killed again and again, and resumed.

    python -m tests.kill_storm --kills 10 --seed 0

Each run is killed at random times, with a seed: while it starts, within 0.4 s of its first checkpoint, or half-way
through one of the next writes. After each kill every file of the run is complete; what is not has the name of a
temporary file. The resumed run must end with the same bits as one that was not disturbed, and leave no other file.

Processes are forked from one that has imported all they need, which saves seconds per start. A run has its own end: a
timer of the kernel, or a write that never returns. Half-way through each file it waits for 0.09 s. On a slow or busy
machine it therefore comes less far, never farther, and has enough epochs for all kills.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphcaps._io.checked_safetensors import read_checked
from graphcaps.evaluation import ResultsStore
from graphcaps.training.checkpoint import _KIND, FORMAT
from tests.cli.training import same_weights, write_inputs

MOMENTS = ("start", "run", "write")
WRITE_SECONDS = 0.09
START_SECONDS, RUN_SECONDS, WRITES = 0.3, 0.4, 3
# Most checkpoints of a run until it is killed: the first, and one per write in the time after it.
EPOCHS_PER_KILL = 2 + int(RUN_SECONDS / WRITE_SECONDS)
# Forks a process per line of its input: arguments, number of threads, the moment and the number of a kill or two nulls,
# and a folder for its log and its cache. It answers with the exit status. SIGALRM, which nothing handles, ends a
# process as SIGKILL does.
FORKING = """
import io, json, os, signal, sys, time
import scipy.optimize, torch, torch.fx.experimental.symbolic_shapes  # the first backward pass imports this
import graphcaps.cli.main, graphcaps.cli.progress, graphcaps.cli.training_files, graphcaps.evaluation
import graphcaps.inference.fitted_model, graphcaps.training.baseline, graphcaps.training.final_training
from graphcaps._io import atomic_write
seconds = float(sys.argv[1])
replace = os.replace
class Kill:
    def __init__(self, moment, number):
        self.moment, self.number = moment, number
        self.checkpoints = self.writes = 0
        atomic_write.open = lambda path, mode: SlowFile(self, io.FileIO(path, mode))
        os.replace = self.replace
        if moment == "start":
            signal.setitimer(signal.ITIMER_REAL, number)
    def replace(self, source, target):
        replace(source, target)
        if str(target).endswith(".checkpoint"):
            self.checkpoints += 1
            if self.moment == "run" and self.checkpoints == 1:
                signal.setitimer(signal.ITIMER_REAL, self.number)
    def half_written(self):
        self.writes += self.checkpoints > 0
        if self.moment == "write" and self.writes == self.number:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(seconds)
class SlowFile(io.BufferedRandom):
    def __init__(self, kill, raw):
        super().__init__(raw)
        self.kill = kill
    def write(self, content):
        half = len(content) // 2
        super().write(content[:half])
        self.flush()
        self.kill.half_written()
        return half + super().write(content[half:])
for line in sys.stdin:
    arguments, threads, moment, number, folder = json.loads(line)
    child = os.fork()
    if child == 0:
        errors = os.open(f"{folder}/log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(errors, 1), os.dup2(errors, 2)
        os.environ["GRAPHCAPS_CACHE"] = f"{folder}/cache"
        torch.set_num_threads(threads)
        if moment is not None:
            Kill(moment, number)
        sys.argv = ["graphcaps", *arguments]
        graphcaps.cli.main.main()
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


@dataclass(frozen=True)
class Run:
    """A command.

    Args:
        folder (Path): For its log and its cache.
        arguments (list of str): Arguments of the command line.
        threads (int): Number of threads. (default: 1)
    """

    folder: Path
    arguments: list[str]
    threads: int = 1

    def log(self) -> str:
        """What its last process has printed."""
        return (self.folder / "log.txt").read_text()


class Runs:
    """Runs the command line in processes that are forked from one that has imported it; a context manager."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", FORKING, str(WRITE_SECONDS)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.__exit__(*error)

    def run(self, run: Run, moment: str | None = None, number: float | None = None) -> int:
        """Runs a command, which is killed at ``moment`` if one is given.

        Args:
            run (Run): The command.
            moment (str, optional): One of :data:`MOMENTS`. (default: it runs to its end)
            number (float, optional): Seconds after the start or after the first checkpoint, or which write after this.

        Returns:
            Exit status; the negative number of the signal that has ended the process.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = [run.arguments, run.threads, moment, number, str(run.folder)]
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def complete(self, run: Run) -> None:
        status = self.run(run)
        assert status == 0, run.log()


def storm_on_train(runs: Runs, folder: Path, kills: int = 10, seed: int = 0, members: int = 1) -> Storm:
    """Kills a training; raises ``AssertionError`` if a promise does not hold.

    With several ``members`` it is that of a committee, which two processes of the run train.
    """
    arguments = [*write_inputs(folder, EPOCHS_PER_KILL * kills), "--no-baseline", "--checkpoint-every", "1"]
    arguments += ["--ensemble", f"{members}"]
    threads = min(members, 2)
    calm, out = folder / "calm" / "m.safetensors", folder / "out" / "m.safetensors"
    calm.parent.mkdir()
    out.parent.mkdir()
    runs.complete(Run(folder, [*arguments, "--out", str(calm)], threads))
    resumed = Run(folder, [*arguments, "--out", str(out), "--resume"], threads)
    storm = _storm(runs, resumed, out.parent, kills, seed, lambda: _check_training(out))
    runs.complete(resumed)
    assert same_weights(out, calm)
    assert _history(out) == _history(calm)
    assert _files(out.parent) == _files(calm.parent)
    return storm


def storm_on_committee(runs: Runs, folder: Path, kills: int = 10, seed: int = 0) -> Storm:
    """Kills the training of a committee of three members."""
    return storm_on_train(runs, folder, kills, seed, members=3)


def storm_on_evaluate(runs: Runs, folder: Path, kills: int = 10, seed: int = 0) -> Storm:
    """Kills a cross-validation of two seeds, one after the other; raises ``AssertionError`` as above."""
    data, preset = write_inputs(folder, EPOCHS_PER_KILL * kills // 2)[1:4:2]
    arguments = ["evaluate", data, "--preset", preset, "--folds", "3", "--seeds", "2", "--group", "3"]
    arguments += ["--device", "cpu", "--no-baseline", "--checkpoint-every", "1"]
    calm, out = folder / "calm", folder / "out"
    runs.complete(Run(folder, [*arguments, "--out", str(calm)]))
    resumed = Run(folder, [*arguments, "--out", str(out), "--resume"])
    storm = _storm(runs, resumed, out, kills, seed, lambda: _check_evaluation(out))
    runs.complete(resumed)
    expected, records = ResultsStore(calm).records(), ResultsStore(out).records()
    assert [record.key for record in records] == [record.key for record in expected]
    assert [record.curves for record in records] == [record.curves for record in expected]
    assert _files(out) == _files(calm)
    return storm


def _storm(runs: Runs, run: Run, out: Path, kills: int, seed: int, check: Callable[[], None]) -> Storm:
    """Starts the run and kills it, again and again; each kill must find it running."""
    source, moments = random.Random(seed), list[str]()
    starting = writing = 0
    for _ in range(kills):
        before, left = _checkpoints(out), _temporary(out)
        moments = moments or source.sample(MOMENTS, len(MOMENTS))  # each of them in three kills
        moment = moments.pop()
        if moment == "write":
            number: float = source.randint(1, WRITES)
        else:
            number = source.uniform(1e-3, START_SECONDS if moment == "start" else RUN_SECONDS)
        status = runs.run(run, moment, number)
        expected = signal.SIGKILL if moment == "write" else signal.SIGALRM
        assert status == -expected, f"it ended before it was killed: {run.log()}"
        starting += _checkpoints(out) == before
        writing += bool(_temporary(out) - left)
        check()
    return Storm(kills, starting, writing)


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
        with Runs() as runs, tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"{storm.__name__}: {storm(runs, Path(folder), options.kills, options.seed)}\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
