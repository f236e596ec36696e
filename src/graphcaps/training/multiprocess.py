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
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection
from typing import Any, Literal

import torch
from torch import Tensor

from graphcaps.config import TrainConfig
from graphcaps.data.features.encoding import compact_features
from graphcaps.data.store import GraphStore
from graphcaps.metrics import SelectionMetric
from graphcaps.models.builder import join_builders
from graphcaps.nn.capsule_use import CapsuleUse
from graphcaps.nn.graph_model import ModelFactory
from graphcaps.training.graph_shards import GraphShard
from graphcaps.training.memory import is_out_of_memory
from graphcaps.training.replica_settings import ReplicaSettings
from graphcaps.training.replica_trainer import EpochEnd
from graphcaps.training.replicas import Replica, join_replicas, slice_replicas, stack_replicas
from graphcaps.training.step import TrainingError
from graphcaps.training.trainer import Trainer
from graphcaps.types import FeatureTable

__all__ = ["ProcessPoolTrainer", "StartMethod", "TrainerFactory", "make_trainer"]

MAX_WORKERS = 16

StartMethod = Literal["fork", "spawn"]


@dataclass(frozen=True)
class TrainerFactory:
    """Builds the trainer of some replicas; called in each process.

    Args:
        factory (callable): Builds a model with the given leading axes.
        store (GraphStore): All graphs.
        x (Tensor or FeatureTable): Features of all nodes.
        config (TrainConfig): Hyper-parameters of the training.
        device (device): Device to train on.
        variants (dict, optional): Factories of the initial weights, as in :func:`stack_replicas`.
        class_weight (Tensor or str, optional): Weight of each class in the losses, ``[O]``, or ``"balanced"``, as in
            :class:`Trainer`.
        sample_weight (Tensor, optional): Weight of each graph in the losses, ``[G]``.
        metric (str): Metric of the validation set that selects the epoch. (default: "loss")
        keep_scores (bool): Keep class scores of validation and test graphs. (default: ``False``)
        settings (dict, optional): Model and training of each variant of the replicas, where they differ in numbers; the
            trainer then trains on if one of them diverges. (default: ``factory`` and ``config`` for all)
        shard (GraphShard, optional): The graphs of ``store`` among those of all ranks. (default: one process)
    """

    factory: ModelFactory
    store: GraphStore
    x: Tensor | FeatureTable
    config: TrainConfig
    device: torch.device
    variants: Mapping[str, ModelFactory] | None = None
    class_weight: Tensor | Literal["balanced"] | None = None
    sample_weight: Tensor | None = None
    metric: SelectionMetric = "loss"
    keep_scores: bool = False
    settings: Mapping[str, ReplicaSettings] | None = None
    shard: GraphShard | None = None

    def compacted(self) -> TrainerFactory:
        """The same with compact features, where they are on the device: once, before there are several processes."""
        if not isinstance(self.x, Tensor) or self.shard is not None:
            return self
        if not self.store.device == self.x.device == self.device:
            return self
        return replace(self, x=compact_features(self.x, self.store))

    def __call__(self, replicas: list[Replica]) -> Trainer:
        factory, variants, replica_configs = self.factory, self.variants, None
        if self.settings is not None:
            each = [self.settings[replica.variant] for replica in replicas]
            factory = join_builders([settings.builder for settings in each])
            variants = {name: settings.builder for name, settings in self.settings.items()}
            replica_configs = [settings.training for settings in each]
        model = stack_replicas(factory, replicas, variants=variants).to(self.device)
        return Trainer(
            model,
            self.store,
            self.x,
            replicas,
            self.config,
            class_weight=self.class_weight,
            sample_weight=self.sample_weight,
            metric=self.metric,
            keep_scores=self.keep_scores,
            replica_configs=replica_configs,
            allow_divergence=self.settings is not None,
            shard=self.shard,
        )


class ProcessPoolTrainer:
    """Trains shards of the replicas in worker processes, with the interface of one :class:`Trainer` of all of them.

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
        self.config, self.shards, self.epoch = config, shards, 0
        self.replicas = [replica for shard in shards for replica in shard]
        self._start_method = start_method
        self._workers: list[tuple[Any, Connection]] = []
        for shard in shards:
            self._start(build, shard)
        self._call_all(None)  # waits until each worker has built its trainer, or raises its error

    def run_epoch(self) -> EpochEnd:
        """One epoch of all replicas; metrics are in the order of :attr:`replicas`."""
        began = time.perf_counter()
        events: list[EpochEnd] = self._call_all(("run_epoch", ()))
        self.epoch = events[0].epoch
        return EpochEnd.join(events, time.perf_counter() - began)

    def scores(self) -> list[Tensor]:
        """As :meth:`Trainer.scores`, copied from the workers."""
        shards = self._call_all(("scores", ()))
        return [torch.from_numpy(rows) for shard in shards for rows in shard]

    def capsule_use(self) -> list[CapsuleUse]:
        """As :meth:`Trainer.capsule_use`, computed by the workers."""
        return [use for shard in self._call_all(("capsule_use", ())) for use in shard]

    def weights(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.weights`, copied from the workers."""
        return self._join(self._call_all(("weights", ())))

    def keep(self, replicas: Sequence[int]) -> None:
        """As :meth:`Trainer.keep`: every worker keeps weights of its own replicas."""
        calls = [
            ("keep", ([f - first for f in replicas if first <= f < end],)) for first, end in self._bounds()
        ]
        self._call_all(*calls)

    def kept(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.kept`, copied from the workers."""
        return self._join(self._call_all(("kept", ())))

    def state(self) -> dict[str, Tensor]:
        """As :meth:`Trainer.state` of all replicas together, copied from the workers."""
        return self._join(self._call_all(("state", ()))) | {"epoch": torch.tensor(self.epoch)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continues from a result of :meth:`state`, also of a :class:`Trainer` of all replicas."""
        self.epoch = int(state["epoch"])
        values = {name: value for name, value in state.items() if name != "epoch"}
        calls = []
        for first, end in self._bounds():
            part = slice_replicas(values, first, end)
            arrays = {name: value.cpu().numpy() for name, value in part.items()}
            calls.append(("load_state", (arrays, self.epoch)))
        self._call_all(*calls)

    def _bounds(self) -> list[tuple[int, int]]:
        """First replica of each worker, and the one after its last."""
        ends = [*accumulate(map(len, self.shards))]
        return [*pairwise((0, *ends))]

    def _join(self, states: list[dict[str, Any]]) -> dict[str, Tensor]:
        tensors = [{name: torch.from_numpy(value) for name, value in state.items()} for state in states]
        return join_replicas(tensors)

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

    def _call_all(self, *calls: Any) -> list[Any]:
        """Sends every worker its call (or all of them the same) and collects the answers.

        A call that fails, or an interrupt, ends all workers; then every call fails.
        """
        if not self._workers:
            raise MemoryError("the training processes have ended")
        try:
            for index, (_, pipe) in enumerate(self._workers):
                if (call := calls[index % len(calls)]) is not None:
                    with contextlib.suppress(ConnectionError):  # reading the answer reports a lost worker
                        pipe.send(call)
            starting = self._start_method == "spawn" and calls == (None,)
            answers = [_receive(pipe, starting) for _, pipe in self._workers]
            error = next((answer for answer in answers if isinstance(answer, BaseException)), None)
            if error is not None:
                raise error
        except BaseException:
            self.close()
            raise
        return answers


def make_trainer(build: TrainerFactory, replicas: list[Replica]) -> Trainer | ProcessPoolTrainer:
    """A trainer of these replicas: one process, or several on a CPU with several threads.

    Args:
        build (TrainerFactory): Builds the trainer of some of them; each rank is one process.
        replicas (list): Replicas to train.
    """
    build = build.compacted()
    is_divided = build.device.type == "cpu" and build.shard is None
    workers = min(MAX_WORKERS, torch.get_num_threads(), len(replicas)) if is_divided else 1
    if workers == 1 or sys.platform != "linux":  # forks are safe on Linux only
        return build(replicas)
    start_method = _start_method()
    if start_method == "spawn" and not _is_portable(build):
        return build(replicas)
    bounds = [len(replicas) * worker // workers for worker in range(workers + 1)]
    shards = [replicas[first:end] for first, end in pairwise(bounds)]
    return ProcessPoolTrainer(build, shards, build.config, start_method)


def _start_method() -> StartMethod:
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


def _is_portable(build: TrainerFactory) -> bool:
    """Whether a spawned process can rebuild the models; it cannot if their factories are local functions."""
    try:
        pickle.dumps((build.factory, build.variants, build.settings))
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


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
            pipe.send(_call(trainer, name, arguments))
    except (EOFError, ConnectionError):  # the parent is gone
        return
    except BaseException as error:
        pipe.send(_sendable(error))


def _call(trainer: Trainer, name: str, arguments: tuple[Any, ...]) -> Any:
    # Arrays, not tensors: pipes would move tensors to shared memory.
    match name:
        case "run_epoch":
            return trainer.run_epoch()
        case "keep":
            return trainer.keep(*arguments)
        case "scores":
            return [rows.numpy() for rows in trainer.scores()]
        case "capsule_use":
            return trainer.capsule_use()
        case "load_state":
            arrays, epoch = arguments
            state = {name: torch.from_numpy(value) for name, value in arrays.items()}
            return trainer.load_state(state | {"epoch": torch.tensor(epoch)})
    tensors = {"weights": trainer.weights, "kept": trainer.kept, "state": trainer.state}[name]()
    return {name: value.numpy() for name, value in tensors.items() if name != "epoch"}


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
