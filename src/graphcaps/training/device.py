"""The device of a training and its settings: choice of device, matrix precision, CPU threads, memory size."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

import torch

from graphcaps.errors import ArgumentError, UsageError
from graphcaps.models.lookup import is_classical
from graphcaps.ops._triton.precision import Precision, use_precision

if TYPE_CHECKING:
    from graphcaps.inference.fitted_model import FittedModel

__all__ = [
    "SINGLE_THREAD_ROWS",
    "available_cores",
    "choose_device",
    "limit_threads",
    "matmul_precision",
    "on_device",
    "total_memory",
    "use_threads",
]

SINGLE_THREAD_ROWS = 1000
"""Number of node rows, over all replicas, up to which a second CPU thread has no benefit (docs/training.md)."""

_precision_lock = Lock()
# Precision at the entry of each open block of matmul_precision, the outermost first.
_saved_precisions: list[str] = []


def choose_device(
    name: str, owner: str = "device", model: str | None = None, *, has_gpu: bool | None = None
) -> torch.device:
    """The device of a name; ``"auto"`` is a GPU if there is one and the model can use it.

    Args:
        name (str): ``"cpu"``, ``"cuda"`` or ``"auto"``.
        owner (str): Name of the caller, for messages. (default: "device")
        model (str, optional): Name of the model; classical models run on the CPU. (default: one that runs on a GPU)
        has_gpu (bool, optional): Whether there is a GPU where the training runs. (default: whether torch finds one)

    Raises:
        ArgumentError: If the name is unknown.
        UsageError: If ``"cuda"`` is requested and there is no GPU, or the model cannot use it.
    """
    if name not in ("cpu", "cuda", "auto"):
        raise ArgumentError(owner, "device", "be cpu, cuda or auto", repr(name))
    if model is not None and is_classical(model):
        if name == "cuda":
            raise UsageError(f"The model '{model}' runs on the CPU; use device='cpu' or 'auto'.")
        return torch.device("cpu")
    has_gpu = torch.cuda.is_available() if has_gpu is None else has_gpu
    if name == "cuda" and not has_gpu:
        raise UsageError("No CUDA device is available; use device='cpu' or 'auto'.")
    return torch.device("cuda" if name != "cpu" and has_gpu else "cpu")


@contextmanager
def on_device(fitted: FittedModel, device: torch.device) -> Iterator[None]:
    """Moves a model to a device inside the block, and back to its own afterwards."""
    own = fitted.device
    try:
        fitted.to(device)
        yield
    finally:
        fitted.to(own)


def total_memory(device: torch.device) -> int | None:
    """Bytes of memory of a GPU or of this computer; ``None`` if the operating system does not report it."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not available on every system
        return None


@contextmanager
def matmul_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Sets the precision of matrix products on a GPU inside the block. A CPU always uses float32.

    torch has no bf16 products of float32 matrices: below float32 its products use TF32. This setting is global to the
    process, so concurrent trainings must use the same one. It is restored when the last block ends.
    """
    if device.type != "cuda":
        yield
        return
    with _precision_lock:
        _saved_precisions.append(torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    try:
        with use_precision(precision):
            yield
    finally:
        with _precision_lock:
            saved = _saved_precisions.pop()
            if not _saved_precisions:
                torch.set_float32_matmul_precision(saved)


def available_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def use_threads(jobs: int | None) -> Iterator[None]:
    """Sets the number of CPU threads of torch inside the block, counted as scikit-learn's ``n_jobs``.

    Args:
        jobs (int, optional): Number of threads; −1 is all cores that this process may use, −2 all but one, and so on.
            ``None`` changes nothing.
    """
    if jobs is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(jobs if jobs > 0 else max(1, available_cores() + 1 + jobs))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def limit_threads(rows: int, device: torch.device) -> Iterator[None]:
    """Uses one CPU thread inside the block for steps of at most :data:`SINGLE_THREAD_ROWS` rows.

    Threads that wait for each other spin. If another program uses one of the cores, a training with small steps and
    several threads is many times slower; with free cores the threads hardly make it faster.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or rows > SINGLE_THREAD_ROWS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
