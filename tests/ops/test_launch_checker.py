"""Launches that would go wrong on a GPU are found in the interpreter, and others are not."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")
from triton.runtime.interpreter import InterpreterError

from tests.ops.launch_kernels import first_kernel, neighbour_kernel, reversed_kernel, shift_kernel


@pytest.fixture(autouse=True)
def _interpreter(kernel_device: str) -> None:
    if kernel_device != "cpu":
        pytest.skip("a GPU runs kernels itself")


def test_programs_with_blocks_of_their_own_pass() -> None:
    x, out = torch.arange(10.0), torch.empty(10)
    shift_kernel[(3,)](x, out, 10, BEYOND=0, BLOCK=4)
    assert torch.equal(out, x)
    half, other = x[:5], x[5:]  # views of one memory
    shift_kernel[(2,)](half, other, 5, BEYOND=0, BLOCK=4)
    assert torch.equal(other, torch.arange(5.0))


def test_what_is_outside_of_the_tensors_is_found() -> None:
    with pytest.raises(
        InterpreterError, match="shift_kernel, line 14: program 2 loads outside of its tensors"
    ):
        shift_kernel[(3,)](torch.ones(10), torch.empty(12), 10, BEYOND=1, BLOCK=4)
    with pytest.raises(InterpreterError, match="program 2 stores outside of its tensors"):
        shift_kernel[(3,)](torch.ones(12), torch.empty(10), 10, BEYOND=1, BLOCK=4)


def test_programs_that_depend_on_each_other_are_found() -> None:
    x, y = torch.arange(8.0), torch.arange(12.0)
    neighbour_kernel[(2,)](x, torch.empty(8), 8, BLOCK=4)
    with pytest.raises(InterpreterError, match="program 1 loads what another program stores"):
        neighbour_kernel[(2,)](x, x, 8, BLOCK=4)
    with pytest.raises(InterpreterError, match="program 1 stores where another program loads"):
        shift_kernel[(2,)](y[4:], y, 8, BEYOND=0, BLOCK=4)
    with pytest.raises(InterpreterError, match="program 1 stores where another program stores"):
        first_kernel[(2,)](torch.empty(4), BLOCK=4)


def test_a_missing_barrier_is_found() -> None:
    x, out = torch.arange(4.0), torch.empty(4)
    reversed_kernel[(1,)](x, out, BARRIER=True, BLOCK=4)
    assert x.tolist() == [3, 2, 1, 0]
    with pytest.raises(InterpreterError, match="loads what it has stored without a barrier between"):
        reversed_kernel[(1,)](x, out, BARRIER=False, BLOCK=4)
