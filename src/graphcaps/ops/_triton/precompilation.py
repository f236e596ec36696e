"""Compiles the kernels of a computation on several cores before it runs.

Triton compiles a kernel when it is first launched, so that the first run of a computation compiles one kernel after
another. :func:`compile_kernels` runs the computation once without launching any kernel, and compiles what it would have
launched in threads: the compiler releases Python's global lock for most of its time, and the assembler and the C
compiler are processes of their own. The kernels are those of the code that launches them, and they are kept in
Triton's cache like all others.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import graphcaps.ops._triton.kernel as kernel

__all__ = ["compile_kernels", "compiled_marker"]

_LOG = logging.getLogger("graphcaps.ops")
_lock = Lock()

_ALLOCATIONS = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
)


def compile_kernels(
    computation: Callable[[], object],
    threads: int,
    *,
    launched: Sequence[JITFunction[Any]] = (),
    marker: Path | None = None,
) -> int:
    """Compiles the kernels that a computation launches, and returns how many it had to compile or load.

    The computation runs once, in this thread, its backward passes too. What kernels would write is zero, and the values
    that it computes have no meaning. The caller restores what it changes. An exception, from the computation or from a
    compilation, is logged (level debug of ``graphcaps.ops``): kernels that are missing are compiled when they are
    launched.

    Args:
        computation (callable): Must not read values of tensors on the host, as for a capture.
        threads (int): Number of kernels that are compiled at the same time.
        launched (sequence): Kernels that are launched all the same, because torch takes what they write as indices: an
            index that is out of range would end the process. (default: none)
        marker (path, optional): File that is made if nothing failed, see :func:`compiled_marker`.
    """
    device = driver.active.get_current_device()
    kernels: dict[tuple[int, str], Future[object]] = {}
    pool = ThreadPoolExecutor(threads, "graphcaps-kernels")
    complete = True

    def request(function: JITFunction[Any], key: str, specialization: str) -> None:
        if (id(function), key) not in kernels:
            kernels[id(function), key] = pool.submit(_build, function, specialization, device)

    try:
        try:
            with (
                _lock,
                _intercepted_launches(request, launched),
                torch.autograd.set_multithreading_enabled(False),
                _ZeroedAllocations(),
            ):
                computation()
        except Exception:
            complete = False
            _LOG.debug("The kernels of a computation could not be collected.", exc_info=True)
        for future in kernels.values():
            if error := future.exception():
                complete = False
                _LOG.debug("A kernel could not be compiled before its launch.", exc_info=error)
    finally:
        pool.shutdown(cancel_futures=True)
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
    facts = (computation, str(target), triton.__version__, f"overlap {kernel.OVERLAPS}")
    digest = hashlib.sha256("\0".join(facts).encode()).hexdigest()
    return Path(knobs.cache.dir) / "graphcaps" / digest[:32]


def _build(function: JITFunction[Any], specialization: str, device: int) -> object:
    """Compiles a kernel for one kind of arguments, or loads it from the cache, and makes its launcher."""
    driver.active.set_current_device(device)  # of this thread
    return function.preload(specialization).run


@contextmanager
def _intercepted_launches(
    request: Callable[[JITFunction[Any], str, str], None], launched: Sequence[JITFunction[Any]]
) -> Iterator[None]:
    """Launches of this thread inside the block request the kernel, if it is not compiled, and do nothing else."""
    thread, run, hook = get_ident(), JITFunction.run, knobs.runtime.jit_cache_hook

    def is_intercepted(function: JITFunction[Any]) -> bool:
        return get_ident() == thread and not any(function is each for each in launched)

    def run_without_launch(
        self: JITFunction[Any], *args: Any, grid: Any, warmup: bool, **options: Any
    ) -> Any:
        return run(self, *args, grid=grid, warmup=warmup or is_intercepted(self), **options)

    def request_kernel(**facts: Any) -> bool | None:
        function, kind = facts["fn"].jit_function, facts["compile"]
        if not is_intercepted(function):
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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result.zero_() if func in _ALLOCATIONS else result
