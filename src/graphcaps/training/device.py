"""Memory of large tensors on a CPU: large pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

from graphcaps.errors import ArgumentError
from graphcaps.ops._triton.precision import Precision, products_in

__all__ = ["SINGLE_THREAD_ROWS", "choose_device", "limit_threads", "matmul_precision", "total_memory"]


def choose_device(name: str, owner: str = "device") -> torch.device:
    """``"cpu"``, ``"cuda"``, or ``"auto"``: a GPU where there is one.

    Args:
        name (str): What was asked for.
        owner (str): Who asks, for messages.
    """
    if name not in ("cpu", "cuda", "auto"):
        raise ArgumentError(owner, "device", "be cpu, cuda or auto", repr(name))
    if name == "cuda" and not torch.cuda.is_available():
        raise ArgumentError(owner, "device", "be one that is here", "cuda without a GPU", "Take cpu or auto.")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def total_memory(device: torch.device) -> int | None:
    """Bytes of memory of a GPU, or of this computer where the system tells it."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # systems without these names
        return None


_lock = Lock()
# What was set when each of the blocks now open was entered, the first one's at the bottom.
_before: list[str] = []


@contextmanager
def matmul_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Inside the block products on a GPU are taken in this precision; a CPU takes float32 always.

    torch's own products know no bf16 of float32 numbers: below float32 they are taken in TF32. That setting
    is one for the whole process, so trainings in several threads have to agree on it; it is taken back when the
    last of them leaves its block.
    """
    if device.type != "cuda":
        yield
        return
    with _lock:
        _before.append(torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    try:
        with products_in(precision):
            yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                torch.set_float32_matmul_precision(before)


SINGLE_THREAD_ROWS = 1000
"""Rows of nodes, of all replicas, up to which a second thread gains nothing to speak of (docs/training.md)."""


@contextmanager
def limit_threads(rows: int, device: torch.device) -> Iterator[None]:
    """One thread on a CPU for steps of at most :data:`SINGLE_THREAD_ROWS` rows; else as many as torch has.

    Threads that wait for each other spin. Where another program has one of the cores, a training of small steps
    then takes many times as long, and where all cores are free it hardly gains.
    """
    before = torch.get_num_threads()
    if device.type != "cpu" or before == 1 or rows > SINGLE_THREAD_ROWS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
