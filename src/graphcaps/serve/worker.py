"""The worker process: ``python -m graphcaps.serve.worker LIMITS``.

It reads messages (:mod:`graphcaps.serve.ipc`) from its standard input and writes messages to its standard output until
the input ends. The first message holds the model file; every further one is a batch of requests. Log messages go to
the error stream.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from graphcaps.errors import GraphcapsError, MissingExtraError
from graphcaps.serve.ipc import encode_message, error_json, read_message
from graphcaps.serve.limits import Limits, RequestError

if TYPE_CHECKING:
    from graphcaps.inference.fitted_model import FittedModel
    from graphcaps.serve.request_graphs import RequestGraph
    from graphcaps.serve.responses import Task

__all__ = ["Response", "WorkerRequest", "handle_batch", "main"]


@dataclass(frozen=True)
class WorkerRequest:
    """A request as a worker gets it.

    Args:
        task (str): As in :func:`graphcaps.serve.responses.respond`.
        content_type (str): Content type of the body.
        options (dict): Options of the query string that were given.
        body (bytes): The complete body.
    """

    task: Task
    content_type: str
    options: dict[str, Any]
    body: bytes


@dataclass(frozen=True)
class Response:
    """HTTP status and JSON of the response to one request."""

    status: int
    content: bytes


def main(limits: Limits) -> None:
    """Loads the model and answers batches of requests until the input ends."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the messages
    fitted = _load(sys.stdin.buffer, limits, output)
    if fitted is None:
        return

    def report(index: int) -> None:
        _send(output, {"reading": index})

    while (message := read_message(sys.stdin.buffer)) is not None:
        listed = zip(message.header["requests"], message.parts, strict=True)
        requests = [WorkerRequest(**header, body=body) for header, body in listed]
        _set_alarm(limits.max_seconds + 2)
        responses = handle_batch(
            fitted, limits, requests, on_read=report if message.header["reports"] else None
        )
        _set_alarm(0)
        statuses = [response.status for response in responses]
        _send(output, {"statuses": statuses}, [response.content for response in responses])


def handle_batch(
    fitted: FittedModel,
    limits: Limits,
    requests: Sequence[WorkerRequest],
    *,
    on_read: Callable[[int], None] | None = None,
) -> list[Response]:
    """The responses to several requests; their graphs are predicted together. Raises nothing.

    Args:
        fitted (FittedModel): The model.
        limits (Limits): Limits of each request.
        requests (sequence): The requests.
        on_read (Callable, optional): Called with the index of a request before it is read, and with the number of
            requests while several are read together and when all are read. What is the same as in the last call, as
            for requests that list only molecules that were read together, is not reported again.
    """
    from graphcaps.serve.responses import respond

    reading = -1

    def report(index: int) -> None:
        nonlocal reading
        if on_read is not None and index != reading:
            on_read(index)
        reading = index

    graphs, responses = _read_batch(fitted, limits, requests, report)
    rows, failed = _predict_batch(fitted, limits, graphs)
    responses |= failed
    for index, request in enumerate(requests):
        if index in responses:
            continue
        target = request.options.get("target")
        try:
            content = respond(fitted, request.task, graphs[index], target=target, rows=rows.get(index))
            encoded = json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
            responses[index] = Response(200, encoded)
        except Exception as error:
            responses[index] = _failed(error)
    return [responses[index] for index in range(len(requests))]


def _read_batch(
    fitted: FittedModel, limits: Limits, requests: Sequence[WorkerRequest], report: Callable[[int], None]
) -> tuple[dict[int, list[RequestGraph]], dict[int, Response]]:
    """The graphs of each request that can be read, and the responses to the others."""
    from graphcaps.serve.request_graphs import read_molecules, read_request
    from graphcaps.training.device import use_threads

    graphs: dict[int, list[RequestGraph]] = {}
    responses: dict[int, Response] = {}
    are_several = len(requests) > 1  # a single request is the only one that may end the worker
    if are_several:
        report(len(requests))
    bodies = [(request.content_type, request.body) for request in requests]
    with use_threads(1):  # operations of a few microseconds, which several threads make slower
        molecules = read_molecules(bodies, fitted, limits) if are_several else None
        for index, request in enumerate(requests):
            if molecules is None or index not in molecules.requests:
                report(index)
            options = {
                name: request.options[name] for name in ("column", "unseen") if name in request.options
            }
            try:
                graphs[index] = read_request(
                    request.content_type, request.body, fitted, limits, molecules=molecules, **options
                )
            except Exception as error:
                responses[index] = _failed(error)
    if are_several:
        report(len(requests))
    return graphs, responses


def _predict_batch(
    fitted: FittedModel, limits: Limits, graphs: dict[int, list[RequestGraph]]
) -> tuple[dict[int, list[dict[str, Any]]], dict[int, Response]]:
    """The predictions of each request, and the responses to those that fail alone.

    A request that is in neither failed together with others: it is to be predicted alone.
    """
    from graphcaps.serve.responses import predict_requests
    from graphcaps.training.device import limit_threads

    rows: dict[int, list[dict[str, Any]]] = {}
    responses: dict[int, Response] = {}
    num_nodes = {index: _num_nodes(listed) for index, listed in graphs.items()}
    for indices in _groups(num_nodes, limits):
        try:
            with limit_threads(sum(num_nodes[index] for index in indices), fitted.device):
                rows |= zip(indices, predict_requests(fitted, [graphs[i] for i in indices]), strict=True)
        except Exception as error:
            if len(indices) == 1:
                responses[indices[0]] = _failed(error)
    return rows, responses


def _num_nodes(graphs: Sequence[RequestGraph]) -> int:
    return sum(graph.num_nodes for graph in graphs)


def _groups(num_nodes: dict[int, int], limits: Limits) -> list[list[int]]:
    """Requests that are predicted together: as many as have ``max_total_nodes`` nodes.

    Args:
        num_nodes (dict): Number of nodes of each request.
        limits (Limits): Limits of a request.
    """
    groups: list[list[int]] = []
    total = 0
    for index, nodes in num_nodes.items():
        if not groups or total + nodes > limits.max_total_nodes:
            groups.append([])
            total = 0
        groups[-1].append(index)
        total += nodes
    return groups


def _failed(error: Exception) -> Response:
    """The response to a request that raised an exception."""
    if isinstance(error, RequestError):
        return Response(error.status, error_json(str(error)))
    if isinstance(error, MissingExtraError):  # the server lacks a package: not the request's fault
        return Response(501, error_json(f"server: {error}"))
    if isinstance(error, GraphcapsError):
        return Response(422, error_json(str(error)))
    traceback.print_exception(error)
    return Response(500, error_json("server: internal error on these graphs; see the log of the server."))


def _load(requests: BinaryIO, limits: Limits, output: BinaryIO) -> FittedModel | None:
    """The model of the first message, after an answer that describes it or says why it cannot be loaded."""
    message = read_message(requests)
    if message is None:  # the server has ended
        return None
    from graphcaps.inference.model_file import load
    from graphcaps.serve.explorer_page import page_assets
    from graphcaps.serve.responses import describe_model

    with tempfile.TemporaryDirectory(prefix="graphcaps-") as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(message.parts[0])
        try:
            fitted = load(path)
        except GraphcapsError as error:  # the message names the file that the server read
            reason = str(error).replace(str(path), message.header["path"])
            _send(output, {"error": reason})
            return None
    _share_cores(limits.workers)
    description = {"model": describe_model(fitted), "assets": page_assets()}
    _send(output, {}, [json.dumps(description, ensure_ascii=False).encode("utf-8", "replace")])
    return fitted


def _send(output: BinaryIO, header: dict[str, Any], parts: Sequence[bytes] = ()) -> None:
    output.write(encode_message(header, parts))
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
    main(Limits(**json.loads(sys.argv[1])))
