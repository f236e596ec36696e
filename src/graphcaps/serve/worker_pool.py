"""The processes that compute, as the server sees them: asked, waited for, ended and replaced."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import Process
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphcaps.errors import GraphcapsError
from graphcaps.serve.ipc import SIZES, frame
from graphcaps.serve.limits import Limits, Refused

__all__ = ["WORKER", "Pool"]

WORKER = ("-m", "graphcaps.serve.worker")
"""What Python runs to compute."""


class Pool:
    """So many processes with the same model; a request has one of them to itself.

    Args:
        path (Path): The model file.
        limits (Limits): How many processes, and how many requests may wait for one.
    """

    def __init__(self, path: str | Path, limits: Limits) -> None:
        self.path, self.limits = Path(path), limits
        self.model: dict[str, Any] = {}
        self.page: dict[str, str] = {}
        self._idle: asyncio.Queue[Process] = asyncio.Queue()
        self._all: set[Process] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._waiting = 0

    async def start(self) -> None:
        """Starts the processes and waits until they have the model; again does nothing.

        Raises:
            GraphcapsError: If the model cannot be loaded, in the loader's own words.
        """
        if self._all:
            return
        self._idle = asyncio.Queue()
        try:
            for process in await asyncio.gather(*(self._begin() for _ in range(self.limits.workers))):
                self._idle.put_nowait(process)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends all processes."""
        for task in list(self._starting):
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(self._end(process) for process in list(self._all)))

    async def ask(self, head: dict[str, Any], body: bytes) -> tuple[int, bytes]:
        """Status and JSON of the answer. Cancelling it ends the process that was at work.

        Raises:
            Refused: 503 where too many requests wait already, 500 where the process broke.
        """
        if self._idle.empty() and self._waiting >= self.limits.max_waiting:
            raise Refused(
                503, f"server: busy with other requests, of which {self._waiting} wait; try again later."
            )
        self._waiting += 1
        try:
            process = await self._idle.get()
        finally:
            self._waiting -= 1
        try:
            found = await _exchange(process, frame(head, body))
        except (OSError, EOFError) as error:
            self._replace(process)
            told = "server: the computation broke off; these graphs may be too much for it."
            raise Refused(500, told) from error
        except BaseException:
            self._replace(process)
            raise
        self._idle.put_nowait(process)
        return found

    async def _begin(self) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *WORKER),
            *(str(self.path), json.dumps(asdict(self.limits))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the server alone
        )
        self._all.add(process)
        try:
            status, told = await _receive(process)
        except (OSError, EOFError) as error:
            raise GraphcapsError(
                "serve: the process that computes did not start; its reason stands above."
            ) from error
        found = json.loads(told)
        if status != 200:
            raise GraphcapsError(found["error"])
        self.model, self.page = found["model"], found["page"]
        return process

    def _replace(self, process: Process) -> None:
        async def swap() -> None:
            await self._end(process)
            try:
                self._idle.put_nowait(await self._begin())
            except GraphcapsError as error:  # the model file has gone, or memory has
                print(f"graphcaps: {error}", file=sys.stderr)

        task = asyncio.get_running_loop().create_task(swap())
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _end(self, process: Process) -> None:
        self._all.discard(process)
        if process.stdin is not None:
            process.stdin.close()  # which ends one that waits for work, or has ended already
        try:
            async with asyncio.timeout(0.2):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _exchange(process: Process, request: bytes) -> tuple[int, bytes]:
    assert process.stdin is not None
    process.stdin.write(request)
    await process.stdin.drain()
    return await _receive(process)


async def _receive(process: Process) -> tuple[int, bytes]:
    assert process.stdout is not None
    heads, bodies = SIZES.unpack(await process.stdout.readexactly(SIZES.size))
    head = json.loads(await process.stdout.readexactly(heads))
    return head["status"], await process.stdout.readexactly(bodies)
