"""Training on a GPU in several streams: while the kernels of one stream start or end, those of another compute.

A training step is a chain of kernels that wait for each other, most of which take a few microseconds. At the start and
at the end of a kernel most multiprocessors have nothing to do. Two trainers of half of the replicas, each with captured
steps on a stream of its own, use that time: their chains do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import zip_longest
from typing import Any

import torch

from graphcaps.config import TrainConfig
from graphcaps.training.cuda_streams import StreamLease, lease_stream
from graphcaps.training.divided_trainer import DividedTrainer
from graphcaps.training.trainer import EpochEnd, Trainer

__all__ = ["StreamTrainer"]


class StreamTrainer(DividedTrainer):
    """Trains shards of the replicas at the same time on one GPU, each on a stream of its own.

    On a CPU, which has no streams, the shards are trained in turn.

    Args:
        trainers (list): The trainer of each shard. The first one compiles the kernels of all.
        config (TrainConfig): Hyper-parameters of the training.
    """

    def __init__(self, trainers: Sequence[Trainer], config: TrainConfig) -> None:
        super().__init__([trainer.replicas for trainer in trainers], config)
        self._trainers = list(trainers)
        self._leases = [_lease(trainer) for trainer in trainers]
        for trainer in self._trainers[1:]:
            trainer.compiles_kernels = False

    @property
    def captured(self) -> bool:
        """Whether steps are captured as CUDA graphs."""
        return all(trainer.captured for trainer in self._trainers)

    def close(self) -> None:
        """Releases CUDA graphs and models. No epoch can follow."""
        for trainer in self._trainers:
            trainer.close()

    def _call_all(self, name: str, arguments: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        with self._forked():
            if name == "run_epoch":
                return self._run_epochs()
            results = []
            for number, trainer in enumerate(self._trainers):
                with self._stream(number):
                    results.append(getattr(trainer, name)(*(() if arguments is None else arguments[number])))
            return results

    def _run_epochs(self) -> list[EpochEnd]:
        """An epoch of each trainer; their steps are launched in turn."""
        with self._trainers[0].computing():
            queues = []
            for number, trainer in enumerate(self._trainers):
                with self._stream(number):
                    queues.append(trainer.launches())
            for turn in zip_longest(*queues):
                for number, launch in enumerate(turn):
                    if launch is not None:
                        with self._stream(number):
                            launch()
        events = []
        for number, trainer in enumerate(self._trainers):
            with self._stream(number):
                events.append(trainer.finish_epoch())
        return events

    def _stream(self, number: int) -> AbstractContextManager[object]:
        """The stream of a trainer."""
        lease = self._leases[number]
        return nullcontext() if lease is None else torch.cuda.stream(lease.stream)

    @contextmanager
    def _forked(self) -> Iterator[None]:
        """Streams wait for the work before the block, and the work after it waits for them."""
        streams = [lease.stream for lease in self._leases if lease is not None]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        yield
        for stream in streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)


def _lease(trainer: Trainer) -> StreamLease | None:
    return lease_stream(trainer.device) if trainer.device.type == "cuda" else None
