"""Limits of a request, and the error of a request that is rejected."""

from __future__ import annotations

from dataclasses import dataclass

from graphcaps.errors import ArgumentError, GraphcapsError

__all__ = ["Limits", "RequestError"]


@dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Args:
        max_bytes (int): Size of the body in bytes.
        max_graphs (int): Number of graphs in a request.
        max_nodes (int): Number of nodes of one graph; only the graph that has more gets an error.
        max_total_nodes (int): Number of nodes of all graphs of a request together.
        max_seconds (float): Seconds from the first byte to the response, including the time in the queue.
        workers (int): Number of worker processes, which is the number of requests computed at once.
        max_waiting (int): Number of requests that may wait for a worker.
    """

    max_bytes: int = 5_000_000
    max_graphs: int = 256
    max_nodes: int = 20_000
    max_total_nodes: int = 100_000
    max_seconds: float = 30.0
    workers: int = 1
    max_waiting: int = 16

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "max_waiting" else 1
            if value < least:
                raise ArgumentError("Limits", name, f"be at least {least}", value)


class RequestError(GraphcapsError):
    """A rejected request: the HTTP status and a message of one sentence."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)
