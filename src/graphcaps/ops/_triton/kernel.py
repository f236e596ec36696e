"""Kernels that start while the kernel before them ends.

The kernels of a training step depend on each other and take a few microseconds each, as long as it takes to start one.
A GPU of compute capability 9 can start the programs of a kernel while the last ones of the kernel before still run
(programmatic dependent launch); they wait where they first need its results. :func:`kernel` launches a kernel like
that, and :func:`await_inputs`, its first statement, waits::

    @kernel(do_not_specialize=["n"])
    def _double_kernel(x, out, n, BLOCK: tl.constexpr):
        await_inputs()
        ...

A program that waits has done nothing yet, so results do not depend on it. Other kernels, such as those of torch, and
other GPUs start when the kernel before has ended. ``GRAPHCAPS_OVERLAP=1`` switches it on; it is off by default, because
it was not yet run on a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq
from triton.runtime import driver
from triton.runtime.jit import JITFunction

__all__ = ["OVERLAPS", "await_inputs", "kernel"]

OVERLAPS = os.environ.get("GRAPHCAPS_OVERLAP", "0") == "1"
"""Whether kernels start before the one before them has ended, on GPUs that can do so."""


@triton.jit
def await_inputs():  # type: ignore[no-untyped-def]
    """Lets the next kernel start, and waits for the results of the one before."""
    # The next kernel waits for all of this one, so it may start at once.
    if cuda_capability_geq(9, 0):
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


class _Kernel(JITFunction[Any]):
    def run(self, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        early = OVERLAPS and _starts_early(driver.active.get_current_device())
        return super().run(*args, grid=grid, warmup=warmup, launch_pdl=early, **options)


@cache
def _starts_early(device: int) -> bool:
    """Whether a GPU can start a kernel before the one before has ended."""
    target = driver.active.get_current_target()
    return bool(target.backend == "cuda" and target.arch >= 90)


def kernel(function: Callable[..., None] | None = None, **options: Any) -> Any:
    """As ``triton.jit``, for a function that is launched. Its first statement must be ``await_inputs()``, as a test
    checks: a kernel without it could read what is not yet written.

    Args:
        function (callable, optional): The kernel; without it a decorator is returned.
        options: Those of ``triton.jit``.
    """
    if function is None:
        return lambda each: kernel(each, **options)
    if triton.knobs.runtime.interpret:
        return triton.jit(function, **options)
    return _Kernel(function, **options)
