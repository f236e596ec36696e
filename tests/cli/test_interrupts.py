"""Ctrl-C and SIGTERM before and while a command runs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.training import write_inputs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
COMMAND = ["graphcaps", "evaluate", "planted-parts", "--device", "cpu", "--epochs", "100000", "--folds", "3"]
DURING_IMPORT = """
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.{signal})
sys.meta_path.insert(0, Interrupt())
"""
# Options are annotations, which typer evaluates. KeyboardInterrupt inside eval() has the exit code of the signal.
DURING_EVAL = """
from graphcaps.cli import output
option = output.option
def interrupt(*names, **settings):
    if sys._getframe(1).f_code.co_filename == "<string>":
        os.kill(os.getpid(), signal.SIGINT)
    return option(*names, **settings)
output.option = interrupt
"""
AFTER_THE_COMMAND = """
import atexit
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.argv = ["graphcaps", "--version"]
"""
RUN = """
import runpy
runpy.run_module("graphcaps", run_name="__main__")
"""
# Writes a line as soon as the handler is there: what comes before is the start of Python itself.
WITH_A_LINE = """
from graphcaps.cli import interrupts
install = interrupts.exit_on_interrupt
def announce():
    install()
    os.write(1, b"ready\\n")
interrupts.exit_on_interrupt = announce
"""


def start(setting: str, folder: Path) -> subprocess.Popen[str]:
    """Starts the program by ``python -m``, as users do: ``-c`` has the exit code 130 where this has the signal's."""
    (folder / "program.py").write_text(f"import os, signal, sys\nsys.argv = {COMMAND}\n{setting}{RUN}")
    command = [sys.executable, "-m", "program"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def check_stopped(process: subprocess.Popen[str], output: str, errors: str, code: int = 130) -> None:
    """One line and the exit code; above it, notes of the command if it has begun: during imports signals wait."""
    assert (process.returncode, output) == (code, ""), errors
    *notes, last = errors.splitlines()
    assert last == "Stopped.", errors
    assert not notes or notes[0].startswith("planted-parts: 3 folds"), errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        (DURING_IMPORT.format(module="typer", signal="SIGINT"), 130),
        (DURING_EVAL, 130),
        (DURING_IMPORT.format(module="numpy", signal="SIGINT"), 130),
        (DURING_IMPORT.format(module="typer", signal="SIGTERM"), 143),
        (DURING_IMPORT.format(module="numpy", signal="SIGTERM"), 143),
    ],
    ids=["import of the command line", "eval", "import of a command", "SIGTERM", "SIGTERM in a command"],
)
def test_a_signal_ends_with_its_code_and_one_line(setting: str, code: int, tmp_path: Path) -> None:
    process = start(setting, tmp_path)
    check_stopped(process, *process.communicate(timeout=300), code=code)


# A batch system sends SIGTERM to all processes of a job, here when the second checkpoint is written; `timeout` sends it
# twice to the first one, here while that writes its last checkpoint.
TERMINATED_TWICE = """
import os, runpy, signal, sys, time
replace, checkpoints = os.replace, 0
def terminate(source, target):
    global checkpoints
    checkpoints += str(target).endswith(".checkpoint")
    if checkpoints in (2, 3):
        try:
            os.killpg(0, signal.SIGTERM)
        finally:
            time.sleep(0.5)  # until the workers have ended
    replace(source, target)
os.replace = terminate
runpy.run_module("graphcaps", run_name="__main__")
"""


@pytest.mark.parametrize("restarts", [1, 2])
def test_sigterm_saves_a_training_and_says_how_to_continue(tmp_path: Path, restarts: int) -> None:
    arguments = write_inputs(tmp_path, epochs=8)
    (tmp_path / "program.py").write_text(TERMINATED_TWICE)
    out = tmp_path / "model.safetensors"
    options = ["--out", str(out), "--checkpoint-every", "1", "--no-baseline", "--restarts", str(restarts)]
    command = [sys.executable, "-m", "program", *arguments, *options]
    environment = os.environ | {"OMP_NUM_THREADS": "2"}  # a process per restart
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, start_new_session=True
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (143, ""), ended.stderr
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("Stopped after epoch 2 of 8; continue with: graphcaps train "), ended.stderr
    assert Path(f"{out}.checkpoint").is_file()
    assert not list(tmp_path.glob(".*")), "lock or temporary files are left"


FORKED = """
import os, signal, sys
from graphcaps.cli.interrupts import defer_interrupts, exit_on_interrupt
exit_on_interrupt()
defer_interrupts(trains=True)
child = os.fork()
if child == 0:
    signal.raise_signal(signal.SIGTERM)
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, status
"""


def test_a_forked_worker_ends_at_once_and_silently() -> None:
    ended = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_sigterm_ends_a_verb_that_does_not_train_as_usual(tmp_path: Path) -> None:
    setting = DURING_IMPORT.format(module="numpy", signal="SIGTERM")
    setting += 'sys.argv = ["graphcaps", "data", "info", "planted-parts"]\n'
    process = start(setting, tmp_path)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output, errors) == (-signal.SIGTERM, "", "")


def test_ctrl_c_while_python_ends_changes_nothing(tmp_path: Path) -> None:
    process = start(AFTER_THE_COMMAND, tmp_path)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    assert output.startswith("graphcaps ")


@pytest.mark.slow
@pytest.mark.parametrize("starts", [3, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_ctrl_c_at_random_times_ends_with_130_and_without_a_traceback(tmp_path: Path, starts: int) -> None:
    delays = random.Random(3)
    for _ in range(starts):
        process = start(WITH_A_LINE, tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        delay = delays.uniform(0, 2)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        check_stopped(process, *process.communicate(timeout=300))
