"""Ranks that are threads of one process: the communication of several processes without starting them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphcaps.training.ranks import Ranks

Result = TypeVar("Result")


class Exchange:
    """Lets a number of threads exchange values: each call returns the values of all threads, by rank."""

    def __init__(self, size: int) -> None:
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=600)

    def swap(self, rank: int, value: Any) -> list[Any]:
        self.values[rank] = value
        self.barrier.wait()
        values = list(self.values)
        self.barrier.wait()
        return values


@dataclass(frozen=True)
class ThreadRanks(Ranks):
    """Ranks with an :class:`Exchange` in place of ``torch.distributed``."""

    exchange: Exchange = field(default_factory=lambda: Exchange(1))

    def total(self, x: Tensor) -> Tensor:
        return torch.stack(self.exchange.swap(self.rank, x.detach().clone())).sum(0)

    def gather(self, value: Any) -> list[Any]:
        return self.exchange.swap(self.rank, value)


def run_ranks(size: int, work: Callable[[Ranks], Result]) -> list[Result]:
    """Calls ``work`` in a thread for each rank and returns the results by rank; the first exception is raised."""
    exchange, results, errors = Exchange(size), [None] * size, []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadRanks(rank, size, exchange=exchange))
        except BaseException as error:
            errors.append(error)
            exchange.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = [error for error in errors if not isinstance(error, threading.BrokenBarrierError)]
    if errors:
        raise (broken or errors)[0]
    return results  # type: ignore[return-value]
