"""CUDA streams that no two concurrent trainings share.

``torch.cuda.Stream()`` does not create a stream: it returns the next one of a pool of 32, and the 33rd is the first
again. Two trainings in two threads can therefore hold the same stream. If one of them captures it, the work of the
other becomes part of the capture or invalidates it (``operation failed due to a previous error during capture``), and
two captured graphs share one cuBLAS workspace, which belongs to the stream. Streams are therefore leased here: a stream
is handed out again only after its lease has been dropped. Each priority has 32 streams of its own, or shares those of
another one on a GPU with fewer priorities.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

import torch

from graphcaps.training.step import TrainingError

__all__ = [
    "CAPTURE_PRIORITY",
    "StreamLease",
    "StreamPool",
    "lease_side_streams",
    "lease_stream",
    "use_own_stream",
]

POOL_SIZE = 32
"""Number of distinct streams of a priority that torch hands out on a device."""
SIDE_PRIORITIES, CAPTURE_PRIORITY = (-1, -2, -2), -3
"""Priorities of the branches of a captured step, and of the sequence that they leave. Kernels keep the priority of
the stream that they are captured from: where not all fit, the sequence goes first. The first branch, of weights and
their gradients, can wait longest. Work that is not captured has priority 0."""


class StreamLease:
    """A stream that nobody else uses while this object is alive.

    Args:
        stream (Stream): The stream.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream


class StreamPool:
    """Leases distinct streams of one device. Thread-safe.

    Args:
        create (callable): Takes a priority and returns a stream, possibly one that is in use, as ``torch.cuda.Stream``.
        size (int): Number of distinct streams of a priority that ``create`` returns. (default: 32)
    """

    def __init__(self, create: Callable[[int], torch.cuda.Stream], size: int = POOL_SIZE) -> None:
        self._create, self._size = create, size
        self._in_use: set[int] = set()
        self._lock = Lock()

    def lease(self, priority: int = 0) -> StreamLease:
        """A stream without another living lease.

        Args:
            priority (int): Priority of the stream, the lower the sooner its kernels run. (default: 0)

        Raises:
            TrainingError: If all streams of this priority are in use.
        """
        lease = self._try_lease(priority)
        if lease is None:
            gc.collect()  # leases of finished trainings may wait in reference cycles
            lease = self._try_lease(priority)
        if lease is None:
            raise TrainingError(
                f"All {self._size} CUDA streams of this process are in use; start fewer trainings at a time."
            )
        return lease

    def _try_lease(self, priority: int) -> StreamLease | None:
        with self._lock:
            for _ in range(self._size):
                stream = self._create(priority)
                if stream.cuda_stream not in self._in_use:
                    self._in_use.add(stream.cuda_stream)
                    lease = StreamLease(stream)
                    # Without the lock, which this thread may hold when the garbage collector runs; discard is atomic.
                    weakref.finalize(lease, self._in_use.discard, stream.cuda_stream).atexit = False
                    return lease
        return None


_pools: dict[int, StreamPool] = {}
_pools_lock = Lock()


def lease_stream(device: torch.device | None = None, *, priority: int = 0) -> StreamLease:
    """A stream of a CUDA device that nobody else uses while the lease is alive.

    Args:
        device (device, optional): CUDA device. (default: the current one)
        priority (int): Priority of the stream, the lower the sooner its kernels run. (default: 0)
    """
    index = torch.cuda.current_device() if device is None or device.index is None else device.index
    with _pools_lock:
        if index not in _pools:
            _pools[index] = StreamPool(lambda priority: torch.cuda.Stream(index, priority=priority))
    return _pools[index].lease(priority)


def lease_side_streams() -> list[StreamLease]:
    """Streams for branches of a captured step, as many as are free: without them it is a sequence."""
    leases: list[StreamLease] = []
    with suppress(TrainingError):
        for priority in SIDE_PRIORITIES:
            leases.append(lease_stream(priority=priority))
    return leases


@contextmanager
def use_own_stream(device: torch.device) -> Iterator[None]:
    """Runs the block on a stream of its own."""
    lease = lease_stream(device)
    with torch.cuda.stream(lease.stream):
        yield
