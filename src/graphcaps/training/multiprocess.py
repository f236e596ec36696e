"""CPU training in several processes: the replicas of a cross-validation are divided among the cores.

The operations of a training on small graphs are too short to be divided among threads, and the threads of one
interpreter wait for each other between them. Each core therefore gets a process with some of the replicas.

Processes are forked, which shares graphs and features without a copy. On a machine with a GPU a fork is unusable once
CUDA is initialised or autograd has started its device threads. New processes are then spawned, and receive a copy.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.training.divided_trainer import DividedTrainer
from graphcaps.training.memory import is_out_of_memory
from graphcaps.training.replicas import Replica
from graphcaps.training.step import TrainingError
from graphcaps.training.trainer import Trainer

__all__ = ["ProcessPoolTrainer", "StartMethod", "choose_start_method"]

StartMethod = Literal["fork", "spawn"]


class ProcessPoolTrainer(DividedTrainer):
    """Trains shards of the replicas in worker processes.

    Args:
        build (callable): Builds the trainer of a shard; called in the worker. ``"spawn"`` has to pickle it.
        shards (list): The replicas of each process.
        config (TrainConfig): Hyper-parameters of the training.
        start_method (str): ``"fork"`` or ``"spawn"``. (default: "fork")
    """

    def __init__(
        self,
        build: Callable[[list[Replica]], Trainer],
        shards: list[list[Replica]],
        config: TrainConfig,
        start_method: StartMethod = "fork",
    ) -> None:
        super().__init__(shards, config)
        self._start_method = start_method
        self._workers: list[tuple[Any, Connection]] = []
        for shard in shards:
            self._start(build, shard)
        self._receive_all(starting=True)  # waits until each worker has built its trainer, or raises its error

    def close(self) -> None:
        """Ends the worker processes."""
        for worker, pipe in self._workers:
            pipe.close()  # a worker that waits for a call ends with its pipe
            worker.terminate()
            worker.join()
        self._workers.clear()

    def _start(self, build: Callable[[list[Replica]], Trainer], shard: list[Replica]) -> None:
        context: Any = multiprocessing.get_context(self._start_method)
        ours, theirs = context.Pipe()
        if self._start_method == "fork":
            inherited = [pipe for _, pipe in self._workers] + [ours]  # pipe ends that the child has to close
            worker = context.Process(target=_run_worker, args=(build, shard, theirs, inherited), daemon=True)
        else:
            # As bytes: multiprocessing would move the tensors to shared memory, which containers often limit.
            payload = pickle.dumps((build, shard))
            worker = context.Process(target=_run_spawned_worker, args=(payload, theirs), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of threads beside a fork; the child takes none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            worker.start()
        theirs.close()
        self._workers.append((worker, ours))

    def _call_all(self, name: str, arguments: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """As in the base class; a call that fails, or an interrupt, ends all workers."""
        given = arguments or [()] * len(self._workers)
        try:
            for (_, pipe), each in zip(self._workers, given, strict=True):
                with contextlib.suppress(ConnectionError):  # reading the answer reports a lost worker
                    pipe.send((name, as_arrays(each)))
        except BaseException:
            self.close()
            raise
        return [as_tensors(answer) for answer in self._receive_all()]

    def _receive_all(self, starting: bool = False) -> list[Any]:
        """The answers of all workers."""
        try:
            starting = starting and self._start_method == "spawn"
            answers = [_receive(pipe, starting) for _, pipe in self._workers]
            error = next((answer for answer in answers if isinstance(answer, BaseException)), None)
            if error is not None:
                raise error
        except BaseException:
            self.close()
            raise
        return answers


def choose_start_method() -> StartMethod:
    """``"fork"`` where a forked process can train, else ``"spawn"``.

    Where torch sees a GPU, the first backward pass of a process starts autograd's device threads, also for tensors on
    the CPU, and from then on autograd refuses to run in a fork. Whether this has happened is found out by a trial.
    """
    if not torch.cuda.is_available():
        return "fork"
    return "spawn" if torch.cuda.is_initialized() or not _backward_works_in_a_fork() else "fork"


def _backward_works_in_a_fork() -> bool:
    trial = multiprocessing.get_context("fork").Process(target=_try_backward, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        trial.start()
    trial.join(timeout=10)
    if trial.is_alive():
        trial.kill()
        trial.join()
    return trial.exitcode == 0


def _try_backward() -> None:
    try:
        torch.ones(1, requires_grad=True).sum().backward()
    except RuntimeError:
        os._exit(1)
    os._exit(0)


def _run_spawned_worker(payload: bytes, pipe: Connection) -> None:
    build, shard = pickle.loads(payload)
    _run_worker(build, shard, pipe, [])


def _run_worker(
    build: Callable[[list[Replica]], Trainer], shard: list[Replica], pipe: Connection, inherited: list[Any]
) -> None:
    """Main function of a worker: builds its trainer, then answers calls until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the worker too; the parent handles it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    # The threads of the parent do not exist in a fork, and torch would wait for them.
    torch.set_num_threads(1)
    try:
        trainer = build(shard)
        pipe.send(None)
        while True:
            name, arguments = pipe.recv()
            pipe.send(as_arrays(getattr(trainer, name)(*as_tensors(arguments))))
    except (EOFError, ConnectionError):  # the parent is gone
        return
    except BaseException as error:
        pipe.send(_sendable(error))


def as_arrays(values: Any) -> Any:
    """Tensors in tuples, lists and dictionaries as arrays: pipes would move tensors to shared memory."""
    return _convert(values, Tensor, lambda value: value.cpu().numpy())


def as_tensors(values: Any) -> Any:
    """Undoes :func:`as_arrays`."""
    return _convert(values, np.ndarray, torch.from_numpy)


def _convert(values: Any, kind: type, convert: Callable[[Any], Any]) -> Any:
    if isinstance(values, kind):
        return convert(values)
    if type(values) is dict:
        return {name: _convert(value, kind, convert) for name, value in values.items()}
    if type(values) in (tuple, list):
        return type(values)(_convert(value, kind, convert) for value in values)
    return values


def _sendable(error: BaseException) -> BaseException:
    """An exception that can be pickled, of a type that the caller handles."""
    if is_out_of_memory(error):
        return MemoryError(str(error))
    if isinstance(error, TrainingError):
        return TrainingError(str(error))
    return RuntimeError("".join(traceback.format_exception(error)))


def _receive(pipe: Connection, starting: bool) -> Any:
    try:
        return pipe.recv()
    except (EOFError, ConnectionError):
        if starting:
            return TrainingError(
                "A training process ended while it was started. In a script, put the call under "
                "if __name__ == '__main__':, or set OMP_NUM_THREADS=1 to train in one process."
            )
        # Only the operating system ends a running worker, and it does so when memory runs out.
        return MemoryError("a training process was killed by the operating system: out of memory")
