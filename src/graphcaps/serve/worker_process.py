"""One worker process, as the server sees it: started with a model, given batches of requests, ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from graphcaps.errors import GraphcapsError
from graphcaps.serve.ipc import encode_message, receive_message
from graphcaps.serve.limits import Limits
from graphcaps.serve.model_snapshot import ModelSnapshot
from graphcaps.serve.request_queue import Job

__all__ = ["WORKER", "WorkerProcess", "start_worker"]

WORKER = ("-m", "graphcaps.serve.worker")
"""Arguments of Python that start a worker."""

_START_SECONDS = 120.0


@dataclass(eq=False)
class WorkerProcess:
    """A process that has loaded the model.

    Args:
        process (Process): The process.
        model (dict): Description of the model, from :func:`graphcaps.serve.responses.describe_model`.
        assets (dict): Parts of the explorer page, from :func:`graphcaps.serve.explorer_page.page_assets`.
        reading (int): Index of the request of the batch that it reads; -1 before the first, their number after the
            last. A request that is computed alone for the first time counts as read when it is sent.
        ended (Task): Done when the process has ended.
    """

    process: Process
    model: dict[str, Any]
    assets: dict[str, str]
    reading: int = -1
    ended: asyncio.Task[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ended = asyncio.get_running_loop().create_task(self.process.wait())

    async def compute(self, jobs: Sequence[Job]) -> list[tuple[int, bytes]]:
        """Status and JSON of the response to each request.

        Raises:
            EOFError, OSError: If the process ends.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # Of a single request, the report that it is read would be as much work as its response. Without it, a request
        # may be blamed for the end of a worker that had ended before; it is tried again, and then reported.
        reports = len(jobs) > 1 or jobs[0].failures > 0
        self.reading = -1 if reports else 0
        batch = {"requests": [job.header for job in jobs], "reports": reports}
        self.process.stdin.write(encode_message(batch, [job.body for job in jobs]))
        await self.process.stdin.drain()
        while True:
            message = await receive_message(self.process.stdout)
            if "statuses" in message.header:
                return list(zip(message.header["statuses"], message.parts, strict=True))
            self.reading = message.header["reading"]

    async def end(self) -> int:
        """Ends the process and all that it has started; returns its exit status."""
        await _end_process(self.process)
        return await self.ended


async def start_worker(snapshot: ModelSnapshot, limits: Limits) -> WorkerProcess:
    """Starts a worker and waits until it has loaded the model.

    Args:
        snapshot (ModelSnapshot): The model.
        limits (Limits): Limits of requests.

    Raises:
        GraphcapsError: If the model cannot be loaded, with the loader's message, or if the process does not start.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *WORKER, json.dumps(asdict(limits))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Waiting threads of torch spin: on a busy machine that costs more than it saves (docs/training.md).
            env={"GOMP_SPINCOUNT": "1000"} | os.environ,
            start_new_session=True,  # Ctrl-C goes to the server alone; the whole group can be ended
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise GraphcapsError(f"serve: a worker process cannot be started ({reason}).") from error
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_SECONDS):
            process.stdin.write(encode_message({"path": str(snapshot.path)}, [snapshot.content]))
            await process.stdin.drain()
            answer = await receive_message(process.stdout)
        if "error" in answer.header:
            raise GraphcapsError(answer.header["error"])
    except (OSError, EOFError) as error:  # TimeoutError is an OSError
        await _end_process(process)
        raise GraphcapsError("serve: a worker process did not start; see the messages above.") from error
    except BaseException:
        await _end_process(process)
        raise
    return WorkerProcess(process, **json.loads(answer.parts[0]))


async def _end_process(process: Process) -> None:
    """Closes the input, at whose end an idle worker ends, and kills the process group if that is not enough."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    # The output is read to its end: asyncio reports the end of a process after that of its pipes.
    ending = asyncio.gather(process.stdout.read(), process.wait())
    await asyncio.wait({ending}, timeout=0.2)
    if not ending.done():
        _kill_group(process)
    await ending


def _kill_group(process: Process) -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass
