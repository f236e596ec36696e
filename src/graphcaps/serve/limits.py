"""What one request may ask for, and how it is told that it asked for more."""

from __future__ import annotations

from dataclasses import dataclass

from graphcaps.errors import ArgumentError, GraphcapsError

__all__ = ["Limits", "Refused"]


@dataclass(frozen=True)
class Limits:
    """Bounds of a request.

    Args:
        max_bytes (int): Size of the body.
        max_graphs (int): Graphs in a request.
        max_nodes (int): Nodes of a graph; one that has more gets an error of its own.
        max_total_nodes (int): Nodes of all graphs of a request.
        max_seconds (float): Time from the first byte to the answer, waiting included.
        workers (int): Processes that compute, and so requests that are worked on at once.
        max_waiting (int): Requests that wait for one of them.
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
            if value < (0 if name == "max_waiting" else 1):
                raise ArgumentError("Limits", name, "be at least 1", value)


class Refused(GraphcapsError):
    """A request that is not answered as asked: the HTTP status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        self.status = status
        super().__init__(sentence)
