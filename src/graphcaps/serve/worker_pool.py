"""The pool of worker processes: started, given requests, and replaced when they fail or take too long."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import Process
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphcaps.errors import GraphcapsError
from graphcaps.serve.ipc import LENGTHS, encode_message
from graphcaps.serve.limits import Limits, RequestError

__all__ = ["WORKER", "WorkerPool"]

WORKER = ("-m", "graphcaps.serve.worker")
"""Arguments of Python that start a worker."""


class WorkerPool:
    """Worker processes with the same model; each computes one request at a time.

    Args:
        path (str or Path): The model file.
        limits (Limits): Number of workers, and of requests that may wait for one.

    Attributes:
        model (dict): Description of the model, from :func:`graphcaps.serve.responses.describe_model`.
        assets (dict): Parts of the explorer page, from :func:`graphcaps.serve.explorer_page.page_assets`.
    """

    def __init__(self, path: str | Path, limits: Limits) -> None:
        self.path, self.limits = Path(path), limits
        self.model: dict[str, Any] = {}
        self.assets: dict[str, str] = {}
        self._idle: asyncio.Queue[Process] = asyncio.Queue()
        self._workers: set[Process] = set()
        self._replacements: set[asyncio.Task[None]] = set()
        self._waiting = 0

    async def start(self) -> None:
        """Starts the workers and waits until they have loaded the model; does nothing if they run.

        Raises:
            GraphcapsError: If the model cannot be loaded, with the loader's message.
        """
        if self._workers:
            return
        self._idle = asyncio.Queue()
        try:
            for worker in await asyncio.gather(*(self._start_worker() for _ in range(self.limits.workers))):
                self._idle.put_nowait(worker)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends all workers."""
        for task in list(self._replacements):
            task.cancel()
        await asyncio.gather(*self._replacements, return_exceptions=True)
        await asyncio.gather(*(self._end_worker(worker) for worker in list(self._workers)))

    async def submit(self, header: dict[str, Any], body: bytes) -> tuple[int, bytes]:
        """Status and JSON of the response to a request. Cancelling it ends the worker that computes.

        Raises:
            RequestError: 503 if too many requests wait, 500 if the worker ended.
        """
        if self._idle.empty() and self._waiting >= self.limits.max_waiting:
            raise RequestError(503, f"server: busy, {self._waiting} requests are waiting; try again later.")
        self._waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self._waiting -= 1
        try:
            response = await _exchange(worker, encode_message(header, body))
        except (OSError, EOFError) as error:
            self._replace(worker)
            message = "server: the computation was aborted; these graphs may be too large for this machine."
            raise RequestError(500, message) from error
        except BaseException:
            self._replace(worker)
            raise
        self._idle.put_nowait(worker)
        return response

    async def _start_worker(self) -> Process:
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, *WORKER),
            *(str(self.path), json.dumps(asdict(self.limits))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to the server alone
        )
        self._workers.add(worker)
        try:
            status, content = await _receive(worker)
        except (OSError, EOFError) as error:
            raise GraphcapsError("serve: a worker process did not start; see the messages above.") from error
        description = json.loads(content)
        if status != 200:
            raise GraphcapsError(description["error"])
        self.model, self.assets = description["model"], description["assets"]
        return worker

    def _replace(self, worker: Process) -> None:
        """Ends a worker and starts another in the background."""

        async def replace() -> None:
            await self._end_worker(worker)
            try:
                self._idle.put_nowait(await self._start_worker())
            except GraphcapsError as error:  # the model file was removed, or memory is exhausted
                print(f"graphcaps: {error}", file=sys.stderr)

        task = asyncio.get_running_loop().create_task(replace())
        self._replacements.add(task)
        task.add_done_callback(self._replacements.discard)

    async def _end_worker(self, worker: Process) -> None:
        self._workers.discard(worker)
        if worker.stdin is not None:
            worker.stdin.close()  # an idle worker ends at the end of its input
        try:
            async with asyncio.timeout(0.2):
                await worker.wait()
        except TimeoutError:
            worker.kill()
            await worker.wait()


async def _exchange(worker: Process, request: bytes) -> tuple[int, bytes]:
    assert worker.stdin is not None
    worker.stdin.write(request)
    await worker.stdin.drain()
    return await _receive(worker)


async def _receive(worker: Process) -> tuple[int, bytes]:
    assert worker.stdout is not None
    header_length, body_length = LENGTHS.unpack(await worker.stdout.readexactly(LENGTHS.size))
    header = json.loads(await worker.stdout.readexactly(header_length))
    return header["status"], await worker.stdout.readexactly(body_length)
