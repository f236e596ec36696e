"""Several trainers side by side: on a CPU, replicas are what is worth sharing among its cores.

The operations of a training on small graphs are too short to be split among threads, and threads of one
interpreter wait for each other between them. So each core gets a process with its share of the replicas. It is
forked: graphs and columns are not copied.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import compact_features
from graphcaps.data.store import GraphStore
from graphcaps.training.memory import is_out_of_memory
from graphcaps.training.replicas import TRUNK_KEY, ModelFactory, Replica, stack_replicas
from graphcaps.training.step import TrainingError
from graphcaps.training.trainer import EpochEnd, Trainer
from graphcaps.types import FeatureTable

__all__ = ["ProcessPoolTrainer", "make_trainer"]

MAX_WORKERS = 16


class ProcessPoolTrainer:
    """Trainers of a part of the replicas each, with the interface of one :class:`Trainer` of all of them.

    Args:
        build (callable): From replicas to their trainer; called in each process.
        shards (list): The replicas of each process.
        config (TrainConfig): How they are trained.
    """

    def __init__(
        self,
        build: Callable[[list[Replica]], Trainer],
        shards: list[list[Replica]],
        config: TrainConfig,
    ) -> None:
        self.config, self.shards, self.epoch = config, shards, 0
        self.replicas = [replica for shard in shards for replica in shard]
        context = multiprocessing.get_context("fork")
        self._workers: list[tuple[Any, Connection]] = []
        for part in shards:
            ours, theirs = context.Pipe()
            held = [pipe for _, pipe in self._workers] + [ours]  # ends that the new process has to close
            worker = context.Process(target=_work, args=(build, part, theirs, held), daemon=True)
            with warnings.catch_warnings():
                # Python 3.12 warns of threads beside a fork; the child takes no lock of theirs.
                warnings.simplefilter("ignore", DeprecationWarning)
                worker.start()
            theirs.close()
            self._workers.append((worker, ours))
        self._all(None)  # built, or a reason why not

    def run_epoch(self) -> EpochEnd:
        """One epoch of all replicas; their figures stand in the order of :attr:`replicas`."""
        began = time.perf_counter()
        events: list[EpochEnd] = self._all(("run_epoch", ()))
        self.epoch = events[0].epoch
        joined = {
            entry.name: self._join([getattr(event, entry.name) for event in events])
            for entry in fields(EpochEnd)
            if entry.name not in ("epoch", "epochs", "seconds")
        }
        return EpochEnd(self.epoch, self.config.epochs, time.perf_counter() - began, **joined)

    def _join(self, parts: list[list[float]]) -> list[float]:
        """One figure of all replicas; NaN for those of a trainer that has none, where another has."""
        if not any(parts):
            return []
        sizes = map(len, self.shards)
        return [value for part, size in zip(parts, sizes, strict=True) for value in part or [math.nan] * size]

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.state` of all replicas together."""
        states: list[dict[str, Any]] = self._all(("state", ()))
        joined = {name: torch.cat([torch.from_numpy(s[name]) for s in states]) for name in states[0]}
        return joined | {"epoch": torch.tensor(self.epoch)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Goes on where :meth:`state` was taken, also that of one trainer of all replicas."""
        self.epoch = int(state["epoch"])
        bounds = [sum(map(len, self.shards[:count])) for count in range(len(self.shards) + 1)]
        calls = []
        for first, end in pairwise(bounds):
            own = {name: value[first:end].cpu().numpy() for name, value in state.items() if name != "epoch"}
            calls.append(("load_state", (own, self.epoch)))
        self._all(*calls)

    def close(self) -> None:
        """Ends the processes."""
        for worker, pipe in self._workers:
            pipe.close()  # a worker that waits for a call ends with its pipe
            worker.terminate()
            worker.join()
        self._workers.clear()

    def _all(self, *calls: Any) -> list[Any]:
        """Hands every worker its call (or all of them the same) and gathers what they answer.

        A call that fails, or an interrupt, ends all workers: none goes on behind the back of who stopped it.
        """
        try:
            for place, (_, pipe) in enumerate(self._workers):
                if (call := calls[place % len(calls)]) is not None:
                    with contextlib.suppress(ConnectionError):  # of one that is gone the answer tells
                        pipe.send(call)
            answers = [_received(pipe) for _, pipe in self._workers]
            failed = next((answer for answer in answers if isinstance(answer, BaseException)), None)
            if failed is not None:
                raise failed
        except BaseException:
            self.close()
            raise
        return answers


def make_trainer(
    make: ModelFactory,
    store: GraphStore,
    x: Tensor,
    replicas: list[Replica],
    config: TrainConfig,
    device: torch.device,
    drawn: Mapping[str, ModelFactory] | None = None,
) -> Trainer | ProcessPoolTrainer:
    """A trainer for these replicas on this device: one, or on a CPU of several threads a team."""

    features: Tensor | FeatureTable = x
    if store.device == x.device == device:  # looked through once, before the processes part
        features = compact_features(x, store)

    def build(part: list[Replica]) -> Trainer:
        model = stack_replicas(make, part, drawn=drawn).to(device)
        return Trainer(model, store, features, part, config)

    workers = min(MAX_WORKERS, torch.get_num_threads(), len(replicas)) if device.type == "cpu" else 1
    # Forks are safe on Linux alone; and a trunk keeps its replicas under names, not along an axis.
    if workers == 1 or sys.platform != "linux" or _has_trunk(make, replicas[:1]):
        return build(replicas)
    bounds = [len(replicas) * worker // workers for worker in range(workers + 1)]
    return ProcessPoolTrainer(build, [replicas[first:end] for first, end in pairwise(bounds)], config)


def _has_trunk(make: ModelFactory, one: list[Replica]) -> bool:
    return any(TRUNK_KEY in name for name in stack_replicas(make, one).state_dict())


def _work(
    build: Callable[[list[Replica]], Trainer], part: list[Replica], pipe: Connection, held: list[Any]
) -> None:
    """The life of a worker: builds its trainer, then does as it is told until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too; who called decides what follows
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in held:
        other.close()
    torch.set_num_threads(1)  # those that torch had before the fork are not here, and would be waited for
    try:
        trainer = build(part)
        pipe.send(None)
        while True:
            name, arguments = pipe.recv()
            pipe.send(_call(trainer, name, arguments))
    except (EOFError, ConnectionError):  # who called is gone
        return
    except BaseException as error:
        pipe.send(_told(error))


def _call(trainer: Trainer, name: str, arguments: tuple[Any, ...]) -> Any:
    if name == "state":
        return {name: value.numpy() for name, value in trainer.state().items() if name != "epoch"}
    if name == "load_state":
        values, epoch = arguments
        state = {name: torch.from_numpy(value) for name, value in values.items()}
        return trainer.load_state(state | {"epoch": torch.tensor(epoch)})
    return trainer.run_epoch()


def _told(error: BaseException) -> BaseException:
    """An error that can be sent, of the kind that the caller looks for."""
    if is_out_of_memory(error):
        return MemoryError(str(error))
    if isinstance(error, TrainingError):
        return TrainingError(str(error))
    return RuntimeError("".join(traceback.format_exception(error)))


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionError):
        # The system ends a process that takes too much memory, and nothing else ends one here.
        return MemoryError("a process of the training was ended by the system: out of memory")
