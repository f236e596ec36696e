"""The requests that wait for a worker, and the batches in which workers take them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from graphcaps.serve.limits import Limits, RequestError

__all__ = ["Job", "RequestQueue"]

_MAX_BATCH_BYTES = 1_000_000


@dataclass(eq=False)
class Job:
    """A request between its arrival and its response.

    Args:
        header (dict): ``task``, ``content_type`` and ``options`` of the request.
        body (bytes): Its body.
        deadline (float): Time of the event loop at which it must be finished.
        response (Future): Gets the status and the JSON of the response, or a :class:`RequestError`.
        failures (int): How often a worker ended while it computed this request.
        unread (int): How often it was sent to a worker that ended without reading it.
    """

    header: dict[str, Any]
    body: bytes
    deadline: float
    response: asyncio.Future[tuple[int, bytes]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    failures: int = 0
    unread: int = 0

    @property
    def is_batchable(self) -> bool:
        """Whether it may be computed together with others: a prediction that has not ended a worker."""
        return self.header["task"] == "predict" and not self.failures

    def finish(self, status: int, content: bytes) -> None:
        if not self.response.done():  # done if the request was given up
            self.response.set_result((status, content))

    def fail(self, error: RequestError) -> None:
        if not self.response.done():
            self.response.set_exception(error)


class RequestQueue:
    """Requests in the order of their arrival, as many as ``Limits.max_waiting``.

    A worker that becomes free takes what waits as one batch: the time of a batch grows much less than the number of its
    requests. Nothing waits for a batch to fill.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._jobs: deque[Job] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._jobs)

    def check_space(self, idle_workers: int) -> None:
        """Raises a :class:`RequestError` with status 503 if no further request may wait.

        Args:
            idle_workers (int): Number of workers that take a request at once.
        """
        if len(self._jobs) >= self._limits.max_waiting + idle_workers:
            message = f"server: busy, {len(self._jobs)} requests are waiting; try again later."
            raise RequestError(503, message, retry_after=1)

    def put(self, job: Job) -> None:
        """Adds a request at the end."""
        self._jobs.append(job)
        self._filled.set()

    def put_back(self, jobs: Iterable[Job]) -> None:
        """Adds requests that were taken at the front, in their order."""
        self._jobs.extendleft(reversed(list(jobs)))
        self._filled.set()

    def remove(self, job: Job) -> None:
        """Removes a request that was given up; does nothing if it was taken."""
        if job in self._jobs:
            self._jobs.remove(job)

    async def take(self) -> list[Job]:
        """The next batch, as soon as a request waits: the first request, and others if they may be computed with it.

        With several workers a batch is an equal share of the requests that wait, so that no worker stays idle.
        """
        while not self._jobs:
            self._filled.clear()
            await self._filled.wait()
        first = self._jobs.popleft()
        if not first.is_batchable:
            return [first]
        size = min(self._limits.max_batch, -(-(len(self._jobs) + 1) // self._limits.workers))
        batch, rest, total = [first], deque[Job](), len(first.body)
        while self._jobs and len(batch) < size:
            job = self._jobs.popleft()
            if job.is_batchable and total + len(job.body) <= _MAX_BATCH_BYTES:
                batch.append(job)
                total += len(job.body)
            else:
                rest.append(job)
        self._jobs.extendleft(reversed(rest))
        return batch
