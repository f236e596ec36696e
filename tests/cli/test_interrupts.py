"""Ctrl-C before and while a command runs."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
COMMAND = ["graphcaps", "evaluate", "planted-parts", "--device", "cpu", "--epochs", "100000", "--folds", "3"]
DURING_IMPORT = """
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
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


def check_stopped(process: subprocess.Popen[str], output: str, errors: str) -> None:
    """One line and exit code 130; above it, notes of the command if it has begun: during imports Ctrl-C waits."""
    assert (process.returncode, output) == (130, ""), errors
    *notes, last = errors.splitlines()
    assert last == "Stopped.", errors
    assert not notes or notes[0].startswith("planted-parts: 3 folds"), errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "setting",
    [DURING_IMPORT.format(module="typer"), DURING_EVAL, DURING_IMPORT.format(module="numpy")],
    ids=["import of the command line", "eval", "import of a command"],
)
def test_ctrl_c_ends_with_130_and_one_line(setting: str, tmp_path: Path) -> None:
    process = start(setting, tmp_path)
    check_stopped(process, *process.communicate(timeout=300))


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
