"""Launches that need not wait for each other: branches of a CUDA graph.

Most kernels of a training step of small graphs leave a part of the GPU idle. Those whose results are needed later, as
the gradients of weights, can run beside the ones that follow them::

    with beside(ds, G) as weights:
        dW = weight_gradient(ds, G)     # on another stream
    dh = input_gradient(ds)             # on this one
    weights.join()

Only the capture of a step has other streams (:func:`use_branches`): a captured graph has no streams, and its branches
run at the same time wherever they fit. Everywhere else, the block is a part of the sequence. Results are the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

__all__ = ["Branch", "beside", "use_branches"]


class Branch:
    """What runs beside the sequence until :meth:`join`.

    Args:
        stream (Stream, optional): Where it runs; ``None`` in the sequence.
        tensors (tuple): What it reads. Kept until the join: memory that is freed before is written by what follows.
    """

    def __init__(self, stream: torch.cuda.Stream | None, tensors: tuple[Tensor | None, ...]) -> None:
        self._stream, self._tensors = stream, tensors
        self._end: torch.cuda.Event | None = None

    def keep(self, *tensors: Tensor | None) -> None:
        """Keeps further tensors that the branch reads."""
        self._tensors += tensors

    def close(self) -> None:
        """Marks the end of what :meth:`join` waits for."""
        if self._stream is not None:
            self._end = torch.cuda.Event()
            self._end.record(self._stream)

    def join(self) -> None:
        """Has all later launches wait for the branch. The first call counts."""
        if self._end is not None:
            torch.cuda.current_stream().wait_event(self._end)
        self._end, self._tensors = None, ()


_streams: ContextVar[Sequence[torch.cuda.Stream]] = ContextVar("branches", default=())


@contextmanager
def beside(*tensors: Tensor | None, lane: int = 0) -> Iterator[Branch]:
    """Runs the block beside the launches that follow it, until its :class:`Branch` is joined.

    The block starts when all launches before it have ended. It must be joined before its results are read, and before
    the capture ends.

    Args:
        tensors: What the block reads and what is not kept elsewhere until the join.
        lane (int): Blocks of one lane run in sequence. (default: 0)
    """
    streams = _streams.get()
    if not streams:
        yield Branch(None, ())
        return
    stream = streams[lane % len(streams)]
    branch = Branch(stream, tensors)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield branch
    branch.close()


@contextmanager
def use_branches(streams: Sequence[torch.cuda.Stream]) -> Iterator[None]:
    """Lets :func:`beside` use these streams inside the block, one for each lane."""
    token = _streams.set(streams)
    try:
        yield
    finally:
        _streams.reset(token)
