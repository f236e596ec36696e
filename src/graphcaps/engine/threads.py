"""How many threads a step is worth: small ones are computed by one core, which waits for nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["SMALL_STEP", "threads_for"]

SMALL_STEP = 1000
"""Rows of nodes, of all replicas, up to which a second thread gains nothing to speak of (docs/training.md)."""


@contextmanager
def threads_for(rows: int, device: torch.device) -> Iterator[None]:
    """One thread on a CPU for steps of at most :data:`SMALL_STEP` rows; else as many as torch has.

    Threads that wait for each other spin. Where another program has one of the cores, a training of small steps
    then takes many times as long, and where all cores are free it hardly gains.
    """
    before = torch.get_num_threads()
    if device.type != "cpu" or before == 1 or rows > SMALL_STEP:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
