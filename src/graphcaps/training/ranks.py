"""The processes of one training that ``torchrun`` starts: their environment, communication and errors.

``torchrun --nproc-per-node=2 -m graphcaps train …`` starts two processes, ranks 0 and 1, that call the same code. They
communicate through ``torch.distributed``: NCCL between GPUs, one per process, and gloo between CPUs.

A rank that fails ends with its message, and ``torchrun`` ends the others. A rank that waits for another one in vain
gets an error: at once if that process has ended, else after :data:`TIMEOUT`. :meth:`Ranks.claim_message` lets one rank
print where several fail, usually for one reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from graphcaps.errors import GraphcapsError, UsageError

__all__ = ["TIMEOUT", "LaunchedRank", "RankError", "Ranks", "connect_ranks", "launched_rank"]

TIMEOUT = timedelta(minutes=30)
"""Longest time that a rank waits for another one, such as the first rank that reads the data set."""

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
Value = TypeVar("Value")


class RankError(GraphcapsError):
    """Another rank of the training has ended, or does not answer."""


@dataclass(frozen=True)
class LaunchedRank:
    """The place of this process among those that ``torchrun`` has started.

    Args:
        rank (int): Number of this process, from 0.
        size (int): Number of processes, at least 2.
        local_rank (int): Number of this process on its machine, which is that of its GPU.
    """

    rank: int
    size: int
    local_rank: int


def launched_rank(environment: Mapping[str, str] | None = None) -> LaunchedRank | None:
    """The rank that ``torchrun`` gives this process; ``None`` without ``torchrun``, or if there is one process.

    Args:
        environment (mapping, optional): Environment variables. (default: those of the process)

    Raises:
        UsageError: If the variables are not those of ``torchrun``, or there are several machines.
    """
    values = os.environ if environment is None else environment
    if "TORCHELASTIC_RUN_ID" not in values:
        return None
    try:
        rank, size, local_rank, local_size = (int(values[name]) for name in _VARIABLES)
    except (KeyError, ValueError) as error:
        names = ", ".join(_VARIABLES)
        raise UsageError(f"torchrun sets {names} to whole numbers, and one is missing: {error}.") from error
    if size != local_size:
        raise UsageError(
            f"Training over several machines is not supported, and torchrun starts {size} processes, {local_size} of "
            "them here; use --nnodes=1."
        )
    return None if size == 1 else LaunchedRank(rank, size, local_rank)


@dataclass(frozen=True)
class Ranks:
    """The processes of one training.

    Args:
        rank (int): Number of this process, from 0.
        size (int): Number of processes.
        backend (str): Backend of the communication, for messages. (default: "gloo")
        store (Store, optional): Key-value store of all ranks. (default: none)
    """

    rank: int
    size: int
    backend: str = "gloo"
    store: dist.Store | None = field(default=None, repr=False)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and messages."""
        return self.rank == 0

    def total(self, x: Tensor) -> Tensor:
        """The sum of a tensor over all ranks; the same bits on each. All ranks call it in the same order."""
        result = x.detach().clone(memory_format=torch.contiguous_format)
        with _explain_loss():
            dist.all_reduce(result)
        return result

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, by rank. They are pickled, for processes of the same program only."""
        values: list[Any] = [None] * self.size
        with _explain_loss():
            dist.all_gather_object(values, value)
        return values

    def claim_message(self) -> bool:
        """Whether no other rank has called this before: of several ranks that fail, one prints its message."""
        try:
            return self.store is None or self.store.add("failed", 1) == 1
        except RuntimeError:  # the store has ended with torchrun
            return self.is_first

    def close(self) -> None:
        """Ends the communication. Not after an error: a rank that has ended cannot take part."""
        dist.destroy_process_group()


@contextmanager
def _explain_loss() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RankError(
            "Another process of this training has ended or does not answer; if it has no message of its own, the "
            "operating system may have killed it for lack of memory."
        ) from error


def connect_ranks(device: str = "auto") -> Ranks | None:
    """Connects the processes that ``torchrun`` has started; ``None`` without ``torchrun``, or if there is one process.

    On a GPU, the current CUDA device becomes that of the rank.

    Args:
        device (str): ``"cpu"``, ``"cuda"`` or ``"auto"``. (default: "auto")

    Raises:
        UsageError: If there are fewer GPUs than processes, or the variables of ``torchrun`` are wrong.
        RankError: If the other processes do not answer.
    """
    launched = launched_rank()
    if launched is None:
        return None
    backend = "gloo"
    if device != "cpu" and torch.cuda.is_available():
        if launched.size > torch.cuda.device_count():
            raise UsageError(
                f"{launched.size} processes need as many GPUs, and there are {torch.cuda.device_count()}; start fewer "
                "with --nproc-per-node, or train with --device cpu."
            )
        torch.cuda.set_device(launched.local_rank)
        backend = "cpu:gloo,cuda:nccl"
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=TIMEOUT))
        dist.init_process_group(
            backend, store=dist.PrefixStore("ranks", store), rank=rank, world_size=size, timeout=TIMEOUT
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise RankError(f"The {launched.size} processes could not be connected: {reason}.") from error
    name = "gloo" if backend == "gloo" else "nccl"
    return Ranks(rank, size, name, dist.PrefixStore("graphcaps", store))
