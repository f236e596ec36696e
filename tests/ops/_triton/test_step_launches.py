"""What a training step on a GPU launches: kernels of graphcaps, with few operations of torch between them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

PROGRAM = Path(__file__).with_name("step_launches_program.py")


@pytest.mark.slow  # imports torch in a process where kernels are not interpreted
def test_a_step_launches_few_operations_of_torch() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    launched = done.stdout.split()
    step = launched[launched.index("_moments_kernel") :]  # after the layout of the batch
    of_torch = [name for name in step if name.startswith("torch.")]
    # Each takes two to three microseconds on a GPU, of the 300 that a step of small graphs takes.
    assert len(of_torch) <= 22, of_torch
    assert "torch.zeros" not in of_torch  # autograd's, for outputs without a gradient
    assert 40 < len(step) - len(of_torch) <= 52
