"""The pool of worker processes: given batches of requests, and replaced when they end or take too long."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphcaps.errors import GraphcapsError
from graphcaps.serve.limits import Limits, RequestError, too_slow
from graphcaps.serve.model_snapshot import ModelSnapshot, read_snapshot
from graphcaps.serve.request_queue import Job, RequestQueue
from graphcaps.serve.worker_process import WorkerProcess, start_worker

__all__ = ["WorkerPool"]

_LOG = logging.getLogger("graphcaps.serve")
_MAX_FAILURES = 2
_MAX_UNREAD = 5


class WorkerPool:
    """Worker processes with the same model, which take batches of requests from one queue.

    A worker that ends is replaced at once. If the new one does not start, or ends before it has answered a request, the
    next attempt follows after :attr:`first_delay` seconds, and twice as long after each further failure, up to
    :attr:`longest_delay`.

    A request whose worker ended is tried again alone; if a worker ends a second time, it is answered with an error.

    Args:
        path (str or Path): The model file. It is read by :meth:`start` and :meth:`reload`, and not otherwise.
        limits (Limits): Limits of requests, among them the number of workers.

    Attributes:
        model (dict): Description of the model, from :func:`graphcaps.serve.responses.describe_model`.
        assets (dict): Parts of the explorer page, from :func:`graphcaps.serve.explorer_page.page_assets`.
    """

    first_delay = 0.5
    longest_delay = 30.0

    def __init__(self, path: str | Path, limits: Limits) -> None:
        self.path, self.limits = Path(path), limits
        self.model: dict[str, Any] = {}
        self.assets: dict[str, str] = {}
        self._snapshot: ModelSnapshot | None = None
        self._queue = RequestQueue(limits)
        self._jobs: set[Job] = set()  # waiting or computed
        self._serving: set[WorkerProcess] = set()
        self._idle = 0
        self._tasks: set[asyncio.Task[None]] = set()  # one per worker
        self._stop = asyncio.Event()  # ends the tasks after their batches
        self._reloading = asyncio.Lock()
        self._aborted = False
        self._failure = ""  # why the last worker did not start
        self._next_attempt = 0.0

    async def start(self) -> None:
        """Reads the model file, starts the workers and waits until they have loaded it; does nothing if they run.

        Raises:
            GraphcapsError: If the file cannot be read or the model cannot be loaded, with the loader's message.
        """
        if not self._tasks:
            self._aborted = False
            snapshot = read_snapshot(self.path)
            self._run(snapshot, await self._start_workers(snapshot))

    async def reload(self) -> None:
        """Reads the model file again. All workers switch to it, or none if it cannot be loaded.

        New workers load the model while the others go on. Then the others finish their batches and end, and after that
        the new ones take requests: no response of the old model follows one of the new.
        """
        async with self._reloading:
            try:
                snapshot = await asyncio.to_thread(read_snapshot, self.path)
                workers = await self._start_workers(snapshot)
            except GraphcapsError as error:
                _LOG.warning("graphcaps: the model was not replaced: %s", error)
                return
            self._serving.update(workers)
            self._stop.set()
            await asyncio.gather(*self._tasks)
            self._run(snapshot, workers)
            _LOG.warning("graphcaps: the model was replaced; SHA-256 %s.", snapshot.sha256)

    async def close(self) -> None:
        """Ends all workers; requests that are not finished get an error."""
        self.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def abort(self) -> None:
        """Answers every request that is not finished, and every further one, with an error."""
        self._aborted = True
        for job in list(self._jobs):
            job.fail(_stopped())

    @property
    def sha256(self) -> str:
        """SHA-256 of the model file that the workers have loaded."""
        return "" if self._snapshot is None else self._snapshot.sha256

    @property
    def num_serving(self) -> int:
        """Number of workers that have loaded the model."""
        return len(self._serving)

    @property
    def num_waiting(self) -> int:
        """Number of requests that wait for a worker."""
        return len(self._queue)

    def check_serving(self) -> None:
        """Raises a :class:`RequestError` with status 503 while no worker has loaded the model."""
        if not self._serving:
            after = self._retry_after()
            reason = self._failure or "a new one is being started."
            raise RequestError(503, f"server: no worker process is ready: {reason}", retry_after=after)

    def check_open(self) -> None:
        """Raises a :class:`RequestError` with status 503 if a request need not be sent: it would only be rejected.

        That is so if too many requests wait, or if no worker is left and the last attempt to start one failed.
        """
        if self._aborted:
            raise _stopped()
        if not self._serving and self._failure:
            self.check_serving()
        self._queue.check_space(self._idle)

    async def submit(self, header: dict[str, Any], body: bytes, deadline: float) -> tuple[int, bytes]:
        """Status and JSON of the response to a request.

        Args:
            header (dict): ``task``, ``content_type`` and ``options`` of the request.
            body (bytes): Its body.
            deadline (float): Time of the event loop after which its worker is ended.

        Raises:
            RequestError: 503 if it cannot be computed now, 500 if its worker ended twice.
        """
        self.check_open()
        job = Job(header, body, deadline)
        self._jobs.add(job)
        self._queue.put(job)
        try:
            return await job.response
        finally:
            self._jobs.discard(job)
            self._queue.remove(job)

    def _retry_after(self) -> int:
        return max(1, math.ceil(self._next_attempt - asyncio.get_running_loop().time()))

    async def _start_workers(self, snapshot: ModelSnapshot) -> list[WorkerProcess]:
        """As many workers as asked for, or an exception and none."""
        starting = (start_worker(snapshot, self.limits) for _ in range(self.limits.workers))
        results = await asyncio.gather(*starting, return_exceptions=True)
        workers = [result for result in results if isinstance(result, WorkerProcess)]
        for result in results:
            if isinstance(result, BaseException):
                await asyncio.gather(*(worker.end() for worker in workers))
                raise result
        return workers

    def _run(self, snapshot: ModelSnapshot, workers: Sequence[WorkerProcess]) -> None:
        """Lets new workers take requests."""
        self._snapshot, self.model, self.assets = snapshot, workers[0].model, workers[0].assets
        self._stop = asyncio.Event()
        for worker in workers:
            self._serving.add(worker)
            task = asyncio.get_running_loop().create_task(self._keep_running(worker, snapshot, self._stop))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _keep_running(
        self, worker: WorkerProcess | None, snapshot: ModelSnapshot, stop: asyncio.Event
    ) -> None:
        """Lets a worker take requests, and replaces it when it ends, until ``stop`` is set."""
        failures = 0
        while not stop.is_set():
            if worker is None:
                try:
                    worker = await start_worker(snapshot, self.limits)
                except (
                    Exception
                ) as error:  # whatever it is: without another attempt the server would be of no use
                    failures += 1
                    self._failure = str(error)
                    await self._pause(failures, stop)
                    continue
                self._failure = ""
                self._serving.add(worker)
            try:
                was_used = await self._serve(worker, stop)
            finally:
                self._serving.discard(worker)
                status = await worker.end()
            worker = None
            if stop.is_set():
                return
            _LOG.warning("graphcaps: a worker process ended with status %d and is replaced.", status)
            failures = 0 if was_used else failures + 1
            if failures > 1:
                self._failure = "serve: a worker process ended before it was given a request."
                await self._pause(failures - 1, stop)

    async def _pause(self, failures: int, stop: asyncio.Event) -> None:
        """Waits before the next attempt to start a worker."""
        delay = min(self.longest_delay, self.first_delay * 2.0 ** min(failures - 1, 20))
        self._next_attempt = asyncio.get_running_loop().time() + delay
        _LOG.warning("graphcaps: %s The next attempt follows in %g s.", self._failure, delay)
        try:
            async with asyncio.timeout(delay):
                await stop.wait()
        except TimeoutError:
            pass

    async def _serve(self, worker: WorkerProcess, stop: asyncio.Event) -> bool:
        """Computes batches until the worker ends or ``stop`` is set; whether there was at least one."""
        stopping, was_used = asyncio.get_running_loop().create_task(stop.wait()), False
        try:
            while jobs := await self._take(worker, stopping):
                was_used = True
                try:
                    async with asyncio.timeout_at(self._time_limit(jobs)):
                        responses = await worker.compute(jobs)
                except Exception as error:  # the end of the process, a time-out, or a message that is none
                    self._try_again(jobs, worker.reading, timed_out=isinstance(error, TimeoutError))
                    break
                for job, (status, content) in zip(jobs, responses, strict=True):
                    job.finish(status, content)
        finally:
            stopping.cancel()
        return was_used

    async def _take(self, worker: WorkerProcess, stopping: asyncio.Task[bool]) -> list[Job]:
        """The next batch, or an empty one if the worker has ended or must stop."""
        if stopping.done() or worker.ended.done():
            return []
        self._idle += 1
        taking = asyncio.get_running_loop().create_task(self._queue.take())
        try:
            await asyncio.wait({taking, stopping, worker.ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._idle -= 1
            taking.cancel()  # does nothing if it is done
        if not taking.done() or taking.cancelled():
            return []
        if worker.ended.done():
            self._queue.put_back(taking.result())
            return []
        return taking.result()

    def _time_limit(self, jobs: Sequence[Job]) -> float:
        """Time at which a worker is ended: for a batch early enough to compute its requests again."""
        latest = max(job.deadline for job in jobs)
        soon = asyncio.get_running_loop().time() + self.limits.max_seconds / 2
        return latest if len(jobs) == 1 else min(latest, soon)

    def _try_again(self, jobs: Sequence[Job], reading: int, *, timed_out: bool) -> None:
        """Puts the requests of a worker that ended back into the queue.

        The request that was being read goes to the end, and is computed alone; the others go to the front. If all were
        read, each of them may be the cause; if none was, the worker had ended before.

        Args:
            jobs (sequence): The requests.
            reading (int): Index of the one that was being read; -1 before the first, their number after the last.
            timed_out (bool): Whether the worker was ended because it took too long.
        """
        unread = reading < 0 and not timed_out and all(job.unread < _MAX_UNREAD for job in jobs)
        suspects = [] if unread else [jobs[reading]] if 0 <= reading < len(jobs) else list(jobs)
        for job in jobs:
            job.unread += unread
        self._queue.put_back(job for job in jobs if job not in suspects and not job.response.done())
        for job in suspects:
            job.failures += 1
            if timed_out and len(jobs) == 1:
                job.fail(too_slow(self.limits))
            elif job.failures >= _MAX_FAILURES:
                message = "the worker process ended twice; these graphs may be too large for this machine."
                job.fail(RequestError(500, f"server: {message}"))
            elif not job.response.done():
                self._queue.put(job)


def _stopped() -> RequestError:
    message = "server: it is stopping and the request was not finished; send it again later."
    return RequestError(503, message, retry_after=1)
