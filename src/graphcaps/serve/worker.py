"""The worker process: ``python -m graphcaps.serve.worker MODEL LIMITS``.

It reads messages from its standard input and writes messages to its standard output, one request at a time, until
the input ends. Its first message describes the model. Log messages go to the error stream.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, BinaryIO

from graphcaps.errors import GraphcapsError, MissingExtraError
from graphcaps.serve.ipc import LENGTHS, encode_message, error_json
from graphcaps.serve.limits import Limits, RequestError

if TYPE_CHECKING:
    from graphcaps.inference.fitted_model import FittedModel

__all__ = ["handle", "main"]


def main(path: str, limits: Limits) -> None:
    """Loads the model and answers requests until the input ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the messages
    requests = sys.stdin.buffer
    fitted = _load(path, limits, output)
    while fitted is not None and (lengths := requests.read(LENGTHS.size)):
        header_length, body_length = LENGTHS.unpack(lengths)
        header, body = json.loads(requests.read(header_length)), requests.read(body_length)
        _set_alarm(limits.max_seconds + 2)
        status, content = handle(fitted, limits, header, body)
        _set_alarm(0)
        _send(output, status, content)


def handle(fitted: FittedModel, limits: Limits, header: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """Status and JSON of the response to one request. Raises nothing.

    Args:
        fitted (FittedModel): The model.
        limits (Limits): Limits of the request.
        header (dict): ``task``, ``content_type`` and ``options`` of the request.
        body (bytes): Body of the request.
    """
    from graphcaps.serve.request_graphs import read_request
    from graphcaps.serve.responses import respond

    options = dict(header["options"])
    reading = {name: options.pop(name) for name in ("column", "unseen") if name in options}
    try:
        graphs = read_request(header["content_type"], body, fitted, limits, **reading)
        response = respond(fitted, header["task"], graphs, **options)
        return 200, json.dumps(response, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    except RequestError as error:
        return error.status, error_json(str(error))
    except MissingExtraError as error:  # the server lacks a package: not the request's fault
        return 501, error_json(f"server: {error}")
    except GraphcapsError as error:
        return 422, error_json(str(error))
    except Exception:
        traceback.print_exc()
        return 500, error_json("server: internal error on these graphs; see the log of the server.")


def _load(path: str, limits: Limits, output: BinaryIO) -> FittedModel | None:
    """The model, after a first message that describes it or says why it cannot be loaded."""
    from graphcaps.inference.fitted_model import load
    from graphcaps.serve.explorer_page import page_assets
    from graphcaps.serve.responses import describe_model

    fitted = None
    try:
        fitted = load(path)
        description = {"model": describe_model(fitted), "assets": page_assets()}
        status, content = 200, json.dumps(description, ensure_ascii=False).encode("utf-8", "replace")
        _share_cores(limits.workers)
    except GraphcapsError as error:
        status, content = 422, error_json(str(error))
    _send(output, status, content)
    return fitted


def _send(output: BinaryIO, status: int, content: bytes) -> None:
    output.write(encode_message({"status": status}, content))
    output.flush()


def _share_cores(workers: int) -> None:
    """Divides the threads of torch among the workers."""
    if workers > 1:
        import torch

        torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))


def _set_alarm(seconds: float) -> None:
    """Lets the system end this process after ``seconds``, in case the server is no longer there to do it."""
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(seconds))


if __name__ == "__main__":
    main(sys.argv[1], Limits(**json.loads(sys.argv[2])))
