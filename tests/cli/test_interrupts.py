"""Ctrl-C while modules are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")
@pytest.mark.parametrize("module", ["typer", "numpy"])
def test_ctrl_c_during_an_import_ends_with_130_and_one_line(module: str) -> None:
    program = f"""
import os, runpy, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["graphcaps", "evaluate", "planted-parts", "--device", "cpu"]
runpy.run_module("graphcaps", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr
