"""Ctrl-C in a training, sent to a process: it saves, says how to continue, and then ends with the same weights.

Kills are the subject of tests/test_kill_storm.py.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from graphcaps._io.checked_safetensors import read_checked
from graphcaps.training.checkpoint import _KIND, FORMAT
from tests.cli.training import invoke, same_weights, write_inputs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
EPOCHS = 8
# The signal arrives right after the second checkpoint is there.
PROGRAM = """
import os, signal
replace, checkpoints = os.replace, 0
def interrupt(source, target):
    global checkpoints
    replace(source, target)
    checkpoints += str(target).endswith(".checkpoint")
    if checkpoints == 2:
        os.replace = replace
        os.kill(os.getpid(), signal.SIGINT)
os.replace = interrupt
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


def epochs_in(checkpoint: Path) -> int:
    """Epochs of a checkpoint; an incomplete file raises an error."""
    return int(read_checked(checkpoint, _KIND, FORMAT).tensors["state.epoch"])


@pytest.mark.slow
def test_ctrl_c_saves_and_prints_the_command_to_resume(
    inputs: list[str], uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "my model.safetensors"
    process = start(inputs, out)
    output, errors = process.communicate(timeout=300)
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
