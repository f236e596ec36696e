"""Several trainings on one GPU at a time: while one waits between two kernels, another computes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["run_concurrently"]

Result = TypeVar("Result")
_TURN = 5e-4  # seconds that a thread may keep the interpreter


def run_concurrently(
    tasks: Sequence[Callable[[], Result]], jobs: int, device: torch.device
) -> Iterator[Result]:
    """Runs tasks, at most ``jobs`` at a time, and gives their results in the order of the tasks.

    Each has a thread and a stream of the GPU. What it computes is what it would compute alone, bit by bit; it
    takes as much memory. On a CPU, and with one job, the tasks run one after another. Ctrl-C, or a task that
    fails, is told when those that run have ended.

    Args:
        tasks (list): Functions without arguments.
        jobs (int): Tasks at a time.
        device (device): Where they compute.
    """
    if device.type != "cuda" or jobs < 2 or len(tasks) < 2:
        for task in tasks:
            yield task()
        return

    def on_own_stream(task: Callable[[], Result]) -> Result:
        with torch.cuda.stream(torch.cuda.Stream(device)):
            return task()

    before = sys.getswitchinterval()
    # One that compiles kernels would keep the others waiting for the interpreter, and the GPU for them.
    sys.setswitchinterval(_TURN)
    try:
        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(on_own_stream, tasks)
    finally:
        sys.setswitchinterval(before)
