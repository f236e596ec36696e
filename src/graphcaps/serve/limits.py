"""Limits of requests and connections, and the error of a request that is rejected."""

from __future__ import annotations

from dataclasses import dataclass

from graphcaps.errors import ArgumentError, GraphcapsError

__all__ = ["Limits", "RequestError", "too_slow"]

_MAY_BE_ZERO = ("max_waiting", "grace_seconds")


@dataclass(frozen=True)
class Limits:
    """Limits of requests and connections.

    Args:
        max_bytes (int): Size of the body of a request in bytes.
        max_graphs (int): Number of graphs in a request.
        max_nodes (int): Number of nodes of one graph; only the graph that has more gets an error.
        max_total_nodes (int): Number of nodes of all graphs of a request together, and of a batch of requests.
        max_seconds (float): Seconds from the end of the headers to the response, including the time in the queue; then
            as many again for the client to read the response.
        workers (int): Number of worker processes.
        max_waiting (int): Number of requests that may wait for a worker.
        max_waiting_bytes (int): Bytes of all bodies that the server holds, or ``max_bytes`` if that is more.
        max_batch (int): Number of waiting requests that a worker predicts together.
        max_connections (int): Number of open connections. One more closes the connection whose request has been
            incomplete for the longest time.
        header_seconds (float): Seconds from the opening of a connection, or from its last response, to the end of the
            headers of a request.
        grace_seconds (float): Seconds that requests have to finish after Ctrl-C or SIGTERM.
    """

    max_bytes: int = 5_000_000
    max_graphs: int = 256
    max_nodes: int = 20_000
    max_total_nodes: int = 100_000
    max_seconds: float = 30.0
    workers: int = 1
    max_waiting: int = 256
    max_waiting_bytes: int = 64_000_000
    max_batch: int = 32
    max_connections: int = 512
    header_seconds: float = 10.0
    grace_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name in _MAY_BE_ZERO else 1
            if value < least:
                raise ArgumentError("Limits", name, f"be at least {least}", value)


class RequestError(GraphcapsError):
    """A rejected request.

    Args:
        status (int): HTTP status.
        message (str): One sentence.
        retry_after (int, optional): Seconds after which another attempt may succeed, for the header ``Retry-After``.
    """

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        self.status, self.retry_after = status, retry_after
        super().__init__(message)


def too_slow(limits: Limits) -> RequestError:
    """The error of a request that took longer than ``Limits.max_seconds``."""
    return RequestError(503, f"server: the request took more than {limits.max_seconds:g} s and was stopped.")
