"""Cells as tasks of a Ray cluster.

Each cell states the cores, the fraction of a GPU and the memory that it needs. Its data are put into Ray's object store
once. A cell whose node or process ended runs again, and one that ran out of memory is divided into two.
"""

from __future__ import annotations

import math
import pickle
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from graphcaps.errors import GraphcapsError, UsageError
from graphcaps.execution.cell import Cell, ClusterProgress, Executor, Outcome
from graphcaps.execution.node_versions import node_report
from graphcaps.execution.ray_cluster import RayCluster
from graphcaps.execution.tensor_packing import pack
from graphcaps.training.device import choose_device
from graphcaps.training.memory import USABLE_FRACTION, OutOfMemoryError
from graphcaps.training.replica_trainer import EpochEnd

__all__ = ["RayExecutor", "Resources", "choose_group", "state_resources"]

PROCESS_BYTES = 600 * 2**20
"""Memory of a worker without data: interpreter, torch and graphcaps."""
LEAST_GPU_FRACTION = 0.25
"""Up to four cells share a GPU: more of them would wait for each other."""
MAX_CRASHES = 3
"""Number of times that a cell may end with its process or node; memory is assumed to be the reason from the second."""
_GPU_OVERHEAD = 10.0  # on a GPU, ten trainings take little longer than one
_WAIT_SECONDS = 1.0
_CANCEL_SECONDS = 15.0


@dataclass(frozen=True)
class Resources:
    """What a cell asks of a node: CPU cores, a fraction of a GPU, and bytes of memory, 0 if there is no forecast."""

    cpus: int
    gpus: float
    memory: int


def state_resources(
    forecast: int, device: torch.device, gpu_memory: int | None, node_memory: int
) -> Resources:
    """The resources of a cell.

    Args:
        forecast (int): Forecast of its memory on the device, in bytes; 0 if there is none.
        device (device): Its device.
        gpu_memory (int, optional): Memory of the smallest GPU.
        node_memory (int): Memory of the largest node. A cell never asks for more, since it would wait for ever.
    """
    if device.type == "cuda":
        needed = forecast / (USABLE_FRACTION * gpu_memory) if gpu_memory else 1.0
        fraction = min(max(math.ceil(needed * 100) / 100, LEAST_GPU_FRACTION), 1.0)
        return Resources(1, fraction, min(PROCESS_BYTES, node_memory))
    return Resources(1, 0.0, min(PROCESS_BYTES + forecast, node_memory) if forecast else 0)


def choose_group(folds: int, seeds: int, workers: int, fitting: int, overhead: float = 1.0) -> int:
    """Number of trainings of a cell for which all cells are done first.

    Args:
        folds, seeds (int): Folds and seeds; a cell holds complete seeds, or folds of one seed.
        workers (int): Number of cells that run at a time.
        fitting (int): Largest number of trainings that fit into the memory together.
        overhead (float): Time of a cell beside that of its trainings, in trainings. (default: 1)
    """

    def duration(size: int) -> float:
        cells = seeds * math.ceil(folds / size) if size < folds else math.ceil(seeds / (size // folds))
        return math.ceil(cells / workers) * (size + overhead)

    together = [folds * count for count in range(seeds, 1, -1) if folds * count <= fitting]
    return min([*together, *range(min(folds, fitting), 0, -1)], key=duration)


@dataclass(frozen=True, eq=False)
class _Data:
    """Data of cells in the object store: a name, the pickle, and the large tensors."""

    name: str
    payload: Any
    tensors: list[Any]


@dataclass(frozen=True, eq=False)
class _Attempt:
    """A cell that runs, or is to run again."""

    cell: Cell[Any]
    data: _Data
    crashes: int = 0


class RayExecutor(Executor):
    """Runs cells on a Ray cluster. It is a context manager, which leaves the cluster at its end.

    Args:
        address (str): Address of the cluster, as in :class:`graphcaps.execution.ray_cluster.RayCluster`.
            (default: "auto")
        on_note (callable, optional): Called with a sentence when a cell is run again or divided.

    Example:
        ``with RayExecutor("auto") as executor: graphcaps.cross_validate(store, executor=executor)``
    """

    is_local = False

    def __init__(self, address: str = "auto", on_note: Callable[[str], object] | None = None) -> None:
        self.cluster = RayCluster(address)
        self._ray, self._note = self.cluster.ray, on_note or _ignore
        self._task = self._ray.remote(_make_task(self.cluster.versions))
        self._tensors: dict[int, tuple[weakref.ref[Tensor], Any]] = {}
        self._last_data: tuple[Any, _Data] | None = None

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the cluster."""
        self._tensors.clear()
        self._last_data = None
        self.cluster.close()

    def choose_device(self, name: str, owner: str, model: str | None = None) -> torch.device:
        has_gpu = any(node.gpus > 0 for node in self.cluster.nodes())
        return choose_device(name, owner, model, has_gpu=has_gpu)

    def data_device(self, device: torch.device) -> torch.device:
        return torch.device("cpu")

    def total_memory(self, device: torch.device) -> int | None:
        return self.cluster.gpu_memory if device.type == "cuda" else self._node_memory() or None

    def group_size(self, folds: int, seeds: int, fitting: int, runs: int, device: torch.device) -> int:
        """Cells for all cores or GPUs, twice as many if several runs share them."""
        workers = self._workers(device)
        share = workers if runs == 1 else min(workers, math.ceil(2 * workers / runs))
        return choose_group(folds, seeds, share, fitting, _GPU_OVERHEAD if device.type == "cuda" else 1.0)

    def run(
        self,
        cells: Iterable[Cell[Any]],
        on_epoch: Callable[[Cell[Any], EpochEnd], object] | None = None,
        on_progress: Callable[[ClusterProgress], object] | None = None,
    ) -> Generator[Outcome[Any]]:
        source, again = iter(cells), deque[_Attempt]()
        running: dict[Any, _Attempt] = {}
        finished, is_exhausted = 0, False
        try:
            while True:
                # Some wait in Ray's queue, for nodes that are added.
                limit = 2 * self._workers(torch.device("cpu")) + 2
                while len(running) < limit and (again or not is_exhausted):
                    if not again:
                        cell = next(source, None)
                        if cell is None:
                            is_exhausted = True
                            break
                        again.append(_Attempt(cell, self._put(cell.data)))
                    attempt = again.popleft()
                    running[self._submit(attempt)] = attempt
                if on_progress is not None:
                    on_progress(ClusterProgress(len(self.cluster.nodes()), len(running), finished))
                if not running:
                    return
                done, _ = self._ray.wait(list(running), num_returns=1, timeout=_WAIT_SECONDS)
                for reference in done:
                    outcome = self._finish(reference, running.pop(reference), again)
                    if outcome is not None:
                        finished += 1
                        yield outcome
        finally:
            self._cancel(list(running))

    def _workers(self, device: torch.device) -> int:
        """Number of cells that run at a time: GPUs or cores."""
        nodes = self.cluster.nodes()
        count = sum(node.gpus if device.type == "cuda" else node.cpus for node in nodes)
        return max(int(count), 1)

    def _node_memory(self) -> int:
        return max((node.memory for node in self.cluster.nodes()), default=0)

    def _put(self, data: Any) -> _Data:
        """Puts data into the object store; once, as long as the cells that come in have the same."""
        if self._last_data is None or self._last_data[0] is not data:
            payload, tensors = pack(data, self._put_tensor)
            self._last_data = data, _Data(uuid4().hex, self._store(payload), tensors)
        return self._last_data[1]

    def _put_tensor(self, tensor: Tensor) -> Any:
        """A tensor in the object store; once, also if several data sets of cells share it."""
        present = self._tensors.get(id(tensor))
        if present is not None and present[0]() is tensor:
            return present[1]
        reference = self._store(tensor.detach().numpy())
        self._tensors = {key: each for key, each in self._tensors.items() if each[0]() is not None}
        self._tensors[id(tensor)] = weakref.ref(tensor), reference
        return reference

    def _store(self, value: Any) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.put(value)
        except (exceptions.OutOfDiskError, exceptions.ObjectStoreFullError) as error:
            raise UsageError(
                "The data do not fit into Ray's object store on this machine, or its disk is full. Start Ray with more "
                "(--object-store-memory), or free some of the disk."
            ) from error

    def _submit(self, attempt: _Attempt) -> Any:
        cell, data = attempt.cell, attempt.data
        needed = state_resources(cell.memory, cell.device, self.cluster.gpu_memory, self._node_memory())
        options: dict[str, Any] = {
            "num_cpus": needed.cpus,
            "num_gpus": needed.gpus,
            "name": cell.title,
            "max_retries": 0,  # run() decides what runs again
            "runtime_env": self.cluster.environment,
        }
        if needed.memory:
            options["memory"] = needed.memory
        payload = pickle.dumps(replace(cell, data=None))
        return self._task.options(**options).remote(payload, data.name, data.payload, *data.tensors)

    def _finish(self, reference: Any, attempt: _Attempt, again: deque[_Attempt]) -> Outcome[Any] | None:
        """The outcome of a task; ``None`` if its cell is to run again, as a whole or divided."""
        ray, cell = self._ray, attempt.cell
        try:
            kind, value = ray.get(reference)
        except ray.exceptions.OutOfMemoryError:
            kind, value = "memory", "Ray ended a process of a node that had little memory left"
        except ray.exceptions.OutOfDiskError:
            kind, value = (
                "error",
                f"{cell.title}: the disk of a node is full. Free some of it, and use --resume.",
            )
        except ray.exceptions.TaskUnschedulableError as error:
            kind, value = "error", f"{cell.title}: {error}"
        except ray.exceptions.RayError as error:
            kind, value = "crash", type(error).__name__
        if kind == "crash":
            crashes = attempt.crashes + 1
            ended = "the node or the process ended"
            if crashes < MAX_CRASHES:
                self._note(f"{cell.title}: {ended} ({value}); it is run again.")
                again.append(replace(attempt, cell=cell.resumed(), crashes=crashes))
                return None
            kind, value = "memory", f"{ended} {crashes} times ({value})"
        if kind == "memory":
            if halves := cell.halves():
                self._note(
                    f"{cell.title}: out of memory ({value.rstrip('.')}). Its two halves are trained one by one."
                )
                again.extend(_Attempt(half, attempt.data) for half in halves)
                return None
            return Outcome(cell, None, OutOfMemoryError(f"{cell.title}: out of memory. {value}"))
        if kind == "versions":
            try:
                self.cluster.check_versions(value)
            except UsageError as error:
                return Outcome(cell, None, error)
        if kind == "error":
            return Outcome(cell, None, GraphcapsError(value))
        if kind == "bug":
            return Outcome(cell, None, RuntimeError(value))
        return Outcome(cell, value)

    def _cancel(self, references: list[Any]) -> None:
        """Interrupts tasks, which write their last checkpoint, and ends those that do not stop."""
        ray = self._ray
        if not references or not ray.is_initialized():
            return
        for reference in references:
            ray.cancel(reference)
        _, left = ray.wait(references, num_returns=len(references), timeout=_CANCEL_SECONDS)
        for reference in left:
            ray.cancel(reference, force=True)


def _make_task(versions: dict[str, str]) -> Callable[..., Any]:
    """The function of a task. It is defined here, so that it is pickled by value: a node may lack graphcaps."""
    report = node_report()

    def graphcaps_cell(payload: bytes, name: str, data: bytes, *arrays: Any) -> tuple[str, Any]:
        found = report(False)
        if found["versions"] != versions:
            return "versions", found
        from graphcaps.execution.ray_worker import execute_cell

        return execute_cell(payload, name, data, arrays)

    return graphcaps_cell


def _ignore(sentence: str) -> None:
    """Where nobody reads notes."""
