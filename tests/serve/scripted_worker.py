"""A worker without a model that does what requests ask for, to test the pool. It starts in a fraction of a second.

The body of a request is a command: ``sleep SECONDS``, ``wait FILE`` (makes ``FILE.begun``, then waits for ``FILE``),
``exit`` (every time), ``exit_once FILE``, or text that is returned. The model file holds commands for the start:
``exit_if FILE``, ``wait_while FILE``, or nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from graphcaps.serve import worker
from graphcaps.serve.ipc import read_message
from graphcaps.serve.limits import Limits
from graphcaps.serve.worker import Response, WorkerRequest


def wait_while(condition: Callable[[], bool]) -> None:
    """Waits until the condition is false, or the process that has started this one has ended."""
    parent = os.getppid()
    while condition() and os.getppid() == parent:
        time.sleep(0.005)


def load(requests: BinaryIO, limits: Limits, output: BinaryIO) -> str | None:
    message = read_message(requests)
    assert message is not None
    content = message.parts[0].decode()
    commands = dict(line.split(" ", 1) for line in content.splitlines())
    if Path(commands.get("exit_if", os.devnull)).is_file():
        os._exit(3)
    wait_while(lambda: Path(commands.get("wait_while", os.devnull)).is_file())
    worker._send(output, {}, [json.dumps({"model": {"content": content}, "assets": {}}).encode()])
    return content


def handle_batch(
    fitted: Any, limits: Limits, requests: Sequence[WorkerRequest], *, on_read: Callable[[int], None] | None
) -> list[Response]:
    responses = []
    report = on_read or (lambda index: None)
    for index, request in enumerate(requests):
        report(index)
        command, *arguments = request.body.decode().split() or [""]
        if command == "sleep":
            time.sleep(float(arguments[0]))
        if command == "wait":
            Path(f"{arguments[0]}.begun").touch()
            wait_while(lambda path=Path(arguments[0]): not path.exists())  # type: ignore[misc]
        if command == "exit":
            os._exit(3)
        if command == "exit_once" and not Path(arguments[0]).exists():
            Path(arguments[0]).touch()
            os._exit(3)
        responses.append(
            Response(
                200,
                json.dumps(
                    {"batch": len(requests), "model": fitted, "reported": on_read is not None}
                ).encode(),
            )
        )
    report(len(requests))
    return responses


if __name__ == "__main__":
    worker._load, worker.handle_batch = load, handle_batch  # type: ignore[assignment]
    worker.main(Limits(**json.loads(sys.argv[1])))
