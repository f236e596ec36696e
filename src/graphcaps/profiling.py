"""Named ranges of a training step, for profilers and for timing.

The training step and the forward pass of the model mark their phases::

    with profiled("routing"):
        routing = route(...)

A range costs less than a microsecond unless one of these reads it:

* a profiler of torch (``torch.profiler.profile``, or ``torch.autograd.profiler.emit_nvtx`` under Nsight Systems), in
  whose trace the range appears under its name;
* a :class:`RangeClock`, inside :func:`time_ranges`.

The replay of a captured CUDA graph runs no Python, so a profiler sees no ranges in it. CUDA events that a clock records
are part of the graph if it was captured inside :func:`time_ranges`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal, Protocol, get_args

import torch

__all__ = ["PHASES", "STEP", "Phase", "RangeClock", "profiled", "time_ranges"]

Phase = Literal[
    "batch",
    "primary",
    "hop",
    "routing",
    "coarsening",
    "class level",
    "reconstruction",
    "backward",
    "update",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""Phases of a training step, in the order in which they begin. On a GPU, launches of a phase that the next one does not
wait for may run beside it (:mod:`graphcaps.ops._triton.branches`)."""

STEP: Literal["step"] = "step"
"""The range of a whole training step, which encloses its phases."""


class RangeClock(Protocol):
    """Times ranges."""

    def time(self, name: str) -> AbstractContextManager[None]:
        """Times the block of a ``with`` statement."""


_NO_RANGE = nullcontext()
_clock: ContextVar[RangeClock | None] = ContextVar("range_clock", default=None)


def profiled(name: Phase | Literal["step"]) -> AbstractContextManager[object]:
    """A context manager that marks its block as a range for the clock or the profiler that runs, if any."""
    if torch.compiler.is_dynamo_compiling():
        return _NO_RANGE  # the names would break the graph into pieces
    clock = _clock.get()
    if clock is not None:
        return clock.time(name)
    if torch.autograd._profiler_enabled():
        return torch.profiler.record_function(name)
    return _NO_RANGE


@contextmanager
def time_ranges(clock: RangeClock) -> Iterator[None]:
    """Has ``clock`` time all ranges inside the block."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        _clock.reset(token)
