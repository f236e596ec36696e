"""Compiles the kernels of a computation on several cores before it runs.

Triton compiles a kernel when it is first launched, so that the first run of a computation compiles one kernel after
another. :func:`compile_kernels` runs the computation once without launching any kernel. What it would have launched is
compiled into Triton's cache by forked processes, which do not wait for each other's Python code, and then loaded in
threads. The kernels are those of the code that launches them.

A forked process has a copy of the memory and of the forking thread only. It must not use CUDA, which the compiler does
not need, nor wait for a lock of the compiler that another thread held. Therefore only the main thread forks, and no
other thread compiles the kernels of a computation at that time: trainings that run side by side in threads compile in
threads, one after another.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread, current_thread, get_ident, main_thread
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

__all__ = ["compile_kernels", "compiled_marker"]

_LOG = logging.getLogger("graphcaps.ops")
_lock = Lock()
_FORKED_SECONDS = 60
"""After this time, processes that compile are ended, and threads compile what is missing."""

Request = tuple[JITFunction[Any], str]
"""A kernel and a kind of its arguments, as Triton describes it."""

_ALLOCATIONS = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
)


def compile_kernels(computation: Callable[[], object], cores: int, *, marker: Path | None = None) -> int:
    """Compiles the kernels that a computation launches, and returns how many it had to compile or load.

    The computation runs once, in this thread, its backward passes too. What kernels would write is zero, which is also
    a valid index, and the values that it computes have no meaning. The caller restores what it changes. An exception,
    from the computation or from a compilation, is logged (level debug of ``graphcaps.ops``): kernels that are missing
    are compiled when they are launched.

    Args:
        computation (callable): Must not read values of tensors on the host, as for a capture.
        cores (int): Number of kernels that are compiled at the same time.
        marker (path, optional): File that is made if nothing failed, see :func:`compiled_marker`.
    """
    with _lock:
        hashing = Thread(target=_hash_compiler, daemon=True)
        hashing.start()
        kernels, complete = _collect(computation)
        _hash_kernels(kernels)
        hashing.join()
        device, processes = driver.active.get_current_device(), min(cores, len(kernels))
        if processes > 1 and _can_fork():
            try:
                _fill_cache(kernels, processes, device)
            except Exception:
                _LOG.debug("Kernels could not be compiled by other processes.", exc_info=True)
        with ThreadPoolExecutor(cores, "graphcaps-kernels") as pool:
            futures = [pool.submit(_build, *each, device) for each in kernels]
            for future in futures:
                if error := future.exception():
                    complete = False
                    _LOG.debug("A kernel could not be compiled before its launch.", exc_info=error)
    if complete and marker is not None:
        with suppress(OSError):  # a cache that cannot be written is none
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
    return len(kernels)


def compiled_marker(computation: str) -> Path:
    """File in Triton's cache that says that the kernels of a computation were compiled into it.

    Loading compiled kernels one after another takes less time than a run without launches, so that a computation whose
    file exists needs none. If the cache lacks kernels all the same, they are compiled when they are launched.

    Args:
        computation (str): Describes the computation: everything that its kernels depend on.
    """
    target = driver.active.get_current_target()
    facts = (computation, str(target), triton.__version__)
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return Path(knobs.cache.dir) / "graphcaps" / digest[:32]


def _collect(computation: Callable[[], object]) -> tuple[list[Request], bool]:
    """The kernels that a computation would launch and that are not compiled, and whether it came to its end."""
    requests: dict[tuple[int, str], Request] = {}

    def request(function: JITFunction[Any], key: str, specialization: str) -> None:
        requests.setdefault((id(function), key), (function, specialization))

    try:
        with (
            _intercepted_launches(request),
            torch.autograd.set_multithreading_enabled(False),
            _ZeroedAllocations(),
        ):
            computation()
    except Exception:
        _LOG.debug("The kernels of a computation could not be collected.", exc_info=True)
        return list(requests.values()), False
    return list(requests.values()), True


def _hash_compiler() -> None:
    """Computes the hash of Triton's own files, a part of every key of its cache, which Triton keeps.

    It takes half a second, most of it without Python's lock. Forked processes inherit it.
    """
    with suppress(Exception):  # other versions of Triton have it elsewhere, and compute it when they need it
        from triton.runtime.cache import triton_key

        triton_key()


def _hash_kernels(kernels: Sequence[Request]) -> None:
    """Computes the hash of each kernel in the order of the launches; forked processes inherit them.

    Triton's hash of a kernel depends on which kernels were hashed before it, if they call the same function and that
    has a global constant. Processes that hash some of the kernels would compile them under keys that are not found.
    """
    for function, _ in kernels:
        with suppress(Exception):  # a kernel that cannot be compiled is reported when it is loaded
            _ = function.cache_key


def _can_fork() -> bool:
    """Whether this thread may fork processes that compile."""
    is_main = current_thread() is main_thread() and not multiprocessing.current_process().daemon
    return is_main and hasattr(os, "fork")


def _fill_cache(kernels: Sequence[Request], processes: int, device: int) -> None:
    """Compiles kernels and their launchers into Triton's cache, in forked processes. What fails there is missing."""
    fork = multiprocessing.get_context("fork")
    next_kernel = fork.Value("i", 0)
    offline = _OfflineDriver(driver.active.get_current_target(), driver.active.launcher_cls, device)

    def work() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the worker too; the parent handles it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, _FORKED_SECONDS)  # ends the worker also if the parent was killed
        gc.disable()  # tensors of the GPU must not be freed here
        driver.set_active(offline)
        while True:
            with next_kernel.get_lock():
                number = next_kernel.value
                next_kernel.value += 1
            if number >= len(kernels):
                return
            function, specialization = kernels[number]
            with suppress(Exception):  # compiled again, and reported, when it is loaded
                compiled = function.preload(specialization)
                offline.launcher_cls(compiled.src, compiled.metadata)

    workers = [fork.Process(target=work, daemon=True) for _ in range(processes)]
    deadline = time.monotonic() + _FORKED_SECONDS
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads beside a fork; the docstring of this module says why that is safe here.
            warnings.simplefilter("ignore", DeprecationWarning)
            for worker in workers:
                worker.start()
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
    finally:
        for worker in workers:
            if worker.is_alive():
                _LOG.debug("A process that compiles kernels did not end in time.")
                worker.kill()
                worker.join()


@dataclass(frozen=True)
class _OfflineDriver:
    """What the compiler asks of a driver, in a process without CUDA.

    Args:
        target (GPUTarget): The GPU that is compiled for.
        launcher_cls (callable): Makes the launcher of a kernel, in C.
        device (int): Number of the GPU.
    """

    target: Any
    launcher_cls: Callable[[Any, Any], object]
    device: int

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return self.device


def _build(function: JITFunction[Any], specialization: str, device: int) -> object:
    """Compiles a kernel for one kind of arguments, or loads it from the cache, and makes its launcher."""
    driver.active.set_current_device(device)  # of this thread
    return function.preload(specialization).run


@contextmanager
def _intercepted_launches(request: Callable[[JITFunction[Any], str, str], None]) -> Iterator[None]:
    """Launches of this thread inside the block request the kernel, if it is not compiled, and do nothing else."""
    thread, run, hook = get_ident(), JITFunction.run, knobs.runtime.jit_cache_hook

    def run_without_launch(
        self: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **options: Any
    ) -> Any:
        return run(self, *args, grid=grid, warmup=warmup or get_ident() == thread, **options)

    def request_kernel(**facts: Any) -> bool | None:
        function, kind = facts["fn"].jit_function, facts["compile"]
        if get_ident() != thread:
            return None if hook is None else hook(**facts)
        request(function, kind["key"], kind["specialization_data"])
        return True  # not compiled here

    JITFunction.run, knobs.runtime.jit_cache_hook = run_without_launch, request_kernel
    try:
        yield
    finally:
        JITFunction.run, knobs.runtime.jit_cache_hook = run, hook


class _ZeroedAllocations(TorchDispatchMode):
    """Fills tensors without values with zeros: what is in memory before may be anything."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return (
            False  # else torch would import its compiler, which takes seconds, to exclude this class from it
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.zero_() if func in _ALLOCATIONS else result
