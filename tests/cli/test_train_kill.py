"""A training that is killed and resumed gives the weights of an uninterrupted one.

The tests start processes and send signals. A process takes seconds to start, so one training is killed three times.
"""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graphcaps._io.checked_safetensors import read_checked
from graphcaps.training.checkpoint import _KIND, FORMAT
from tests.cli.training import invoke, same_weights, write_inputs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
EPOCHS = 60
# Writes are slowed down, so that a signal can arrive during one.
PROGRAM = """
import os, time
fsync = os.fsync
os.fsync = lambda number: (time.sleep(0.05), fsync(number))[1]
from graphcaps.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_inputs(tmp_path_factory.mktemp("data"), EPOCHS)


@pytest.fixture(scope="module")
def uninterrupted(inputs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("uninterrupted") / "m.safetensors"
    done = invoke(*inputs, "--out", out)
    assert done.exit_code == 0, done.output
    return out


def start(inputs: list[str], out: Path, *more: str) -> subprocess.Popen[str]:
    """Starts ``graphcaps train`` in a new process, with a checkpoint after every epoch."""
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        *inputs,
        "--out",
        str(out),
        "--checkpoint-every",
        "1",
        *more,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GRAPHCAPS_CACHE": str(out.parent / "cache")}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait(process: subprocess.Popen[str], ready: Callable[[], bool]) -> None:
    """Polls without a pause, since temporary files exist only for milliseconds."""
    end = time.monotonic() + 60
    while not ready():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "the condition was not met within a minute"


def epochs_in(checkpoint: Path) -> int:
    """Epochs of a checkpoint; an incomplete file raises an error."""
    return int(read_checked(checkpoint, _KIND, FORMAT).tensors["state.epoch"])


def test_killed_and_resumed_training_equals_an_uninterrupted_one(
    inputs: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m.safetensors"
    checkpoint = tmp_path / "m.safetensors.checkpoint"
    delays = random.Random(5)
    done, during_write = 0, 0
    for moment in ("start", "write", "between"):
        process = start(inputs, out, "--resume")
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        before_write = {path.name for path in tmp_path.glob(".*.part")}
        if moment == "start":
            assert process.stderr is not None
            process.stderr.readline()  # the data are read
        else:
            wait(process, lambda: checkpoint.exists() and checkpoint.stat().st_mtime_ns > before)  # noqa: B023
            time.sleep(delays.uniform(0, 0.2))
        if moment == "write":
            pattern = ".m.*.checkpoint.*.part"
            wait(process, lambda: any(p.name not in before_write for p in tmp_path.glob(pattern)))  # noqa: B023
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        during_write += len({path.name for path in tmp_path.glob(".*.part")} - before_write)
        if checkpoint.exists():
            assert done < epochs_in(checkpoint) < EPOCHS
            done = epochs_in(checkpoint)
        assert not out.exists()
    assert during_write, "no signal arrived during a write, so incomplete files were not tested"

    last = invoke(*inputs, "--out", out, "--resume")
    assert last.exit_code == 0, last.output
    assert f"Continuing after epoch {done}." in last.stderr
    assert same_weights(out, uninterrupted)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "m.safetensors",
        "m.safetensors.config.json",
        "m.safetensors.history.json",
    ]


def test_ctrl_c_saves_and_prints_the_command_to_resume(
    inputs: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "my model.safetensors"
    process = start(inputs, out)
    wait(process, (tmp_path / "my model.safetensors.checkpoint").exists)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert (process.returncode, output) == (130, "")
    assert "Traceback" not in errors
    sentence = errors.splitlines()[-1]
    done = epochs_in(tmp_path / "my model.safetensors.checkpoint")
    assert sentence.startswith(f"Stopped after epoch {done} of {EPOCHS}; continue with: graphcaps train ")
    command = shlex.split(sentence.partition("continue with: ")[2])
    assert command[-1] == "--resume"
    last = invoke(*command[1:])
    assert last.exit_code == 0, last.output
    assert same_weights(out, uninterrupted)
