"""Launches that need not wait for each other: branches of a CUDA graph.

Most kernels of a training step of small graphs leave a part of the GPU idle. Those whose results are needed later, as
the gradients of weights, can run at the same time as the ones that follow them::

    with fork(ds, G) as weights:
        dW = weight_gradient(ds, G)     # on a side stream
    dh = input_gradient(ds)             # on this one
    weights.join()

Only the capture of a step has side streams (:func:`use_side_streams`): a captured graph has no streams, and its
branches run at the same time wherever they fit. Everywhere else, the block is a part of the sequence. Results are the
same bits.

Memory that is freed is used again by the stream that allocated it. What is allocated inside the block is therefore safe
there; what is allocated outside and read inside must live until the join.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["Branch", "fork", "use_side_streams"]


class Branch:
    """Launches of a side stream until :meth:`join`.

    Args:
        stream (Stream, optional): Where they run; ``None`` in the sequence.
        tensors (tuple): What they read. Kept until the join: memory that is freed before is written by what follows.
    """

    def __init__(self, stream: torch.cuda.Stream | None, tensors: tuple[Tensor | None, ...]) -> None:
        self._stream, self._tensors = stream, tensors
        self._end: torch.cuda.Event | None = None

    def close(self) -> None:
        """Marks the end of what :meth:`join` waits for."""
        if self._stream is not None:
            self._end = torch.cuda.Event()
            self._end.record(self._stream)

    def join(self) -> None:
        """Has later launches of the current stream wait for the branch. The first call counts."""
        if self._end is not None:
            torch.cuda.current_stream().wait_event(self._end)
        self._end, self._tensors = None, ()


@dataclass
class _SideStreams:
    """Streams of a capture, and those of them that have launches in it."""

    streams: Sequence[torch.cuda.Stream] = ()
    forked: list[torch.cuda.Stream] = field(default_factory=list)


_side_streams: ContextVar[_SideStreams | None] = ContextVar("side_streams", default=None)


@contextmanager
def fork(*tensors: Tensor | None, stream: int = 0) -> Iterator[Branch]:
    """Runs the block at the same time as the launches that follow it, until its :class:`Branch` is joined.

    The block starts when all launches before it have ended. It must be joined before its results are read, and before
    the capture ends.

    Args:
        tensors: What the block reads and what is not kept elsewhere until the join.
        stream (int): Which side stream; blocks of one stream run in sequence. (default: 0)
    """
    side = _side_streams.get()
    if side is None or not side.streams:
        yield Branch(None, ())
        return
    chosen = side.streams[stream % len(side.streams)]
    branch = Branch(chosen, tensors)
    chosen.wait_stream(torch.cuda.current_stream())
    if chosen not in side.forked:
        side.forked.append(chosen)
    with torch.cuda.stream(chosen):
        yield branch
    branch.close()


@contextmanager
def use_side_streams(streams: Sequence[torch.cuda.Stream]) -> Iterator[None]:
    """Lets :func:`fork` use these streams inside the block.

    After an exception all branches are joined: a capture with an unjoined branch would end with an error of its own in
    the place of that exception.
    """
    side = _SideStreams(streams)
    token = _side_streams.set(side)
    try:
        yield
    except BaseException:
        for stream in side.forked:  # another stream is not a part of the capture
            torch.cuda.current_stream().wait_stream(stream)
        raise
    finally:
        _side_streams.reset(token)
