"""Runs several trainings on one GPU at a time.

A training leaves the GPU idle between two kernel launches; concurrent trainings use that time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from graphcaps.training.cuda_streams import use_own_stream

__all__ = ["run_concurrently"]

Result = TypeVar("Result")
_SWITCH_INTERVAL = 5e-4  # seconds after which a thread hands over the interpreter lock


def run_concurrently(
    tasks: Sequence[Callable[[], Result]], jobs: int, device: torch.device
) -> Iterator[Result]:
    """Runs tasks, at most ``jobs`` at a time, and yields their results in the order of the tasks.

    Each task has a thread and a CUDA stream of its own. It computes the same bits and needs the same memory as on
    its own. On a CPU, or with one job, the tasks run one after another. Ctrl-C and exceptions of a task are raised
    after the running tasks have ended.

    Args:
        tasks (list): Functions without arguments.
        jobs (int): Largest number of tasks at a time.
        device (device): Device of the computation.

    Yields:
        The return value of each task.
    """
    if device.type != "cuda" or jobs < 2 or len(tasks) < 2:
        for task in tasks:
            yield task()
        return

    def run_on_stream(task: Callable[[], Result]) -> Result:
        with use_own_stream(device):
            return task()

    previous_interval = sys.getswitchinterval()
    # A thread that compiles kernels would otherwise hold the interpreter lock while the others have work for the GPU.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(run_on_stream, tasks)
    finally:
        sys.setswitchinterval(previous_interval)
