"""Work captured as a CUDA graph: the host replays it and is asked nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from graphcaps.data.store import GraphStore
from graphcaps.ops.kernels import kernels_serve

__all__ = ["Recorder", "can_capture"]


def can_capture(model: Any, store: GraphStore, x: Tensor) -> bool:
    """Whether a step of this model can be captured: on a GPU with kernels, and no part of it asks the host."""
    if x.device.type != "cuda" or store.device != x.device or not kernels_serve(x, *model.parameters()):
        return False
    return store.edge_weight is None and bool(getattr(model, "capturable", False))


class Recorder:
    """Captures functions, one after another, into one pool of memory.

    Replays must not overlap, and what a function leaves behind lies in tensors made before. The pool lives as
    long as any of the replays does, so that letting go of them gives the memory back.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self._replays: WeakSet[Callable[[], None]] = WeakSet()
        self._pool: Any = None

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        """A function that does what ``body`` does, replayed; ``body`` itself runs once before.

        That run compiles kernels and makes libraries allocate what they need, which no capture may do.
        """
        current = torch.cuda.current_stream()
        self.stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            body()
            self.stream.synchronize()
            graph.capture_begin(pool=self._shared_pool(), capture_error_mode="thread_local")
            try:
                body()
            finally:
                graph.capture_end()
        current.wait_stream(self.stream)
        torch.cuda.empty_cache()  # what the run before took; replays have the pool

        def replay() -> None:
            graph.replay()

        # The graph reads what the function holds on to: both live as long as the other.
        replay.body = body  # type: ignore[attr-defined]
        self._replays.add(replay)
        return replay

    def _shared_pool(self) -> Any:
        """The pool of the replays that are left. A pool dies with its last graph and refuses another one, so where
        none is left there has to be a new pool."""
        if self._pool is None or not self._replays:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool
