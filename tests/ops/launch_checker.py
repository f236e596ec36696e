"""What a GPU would not forgive, found in Triton's interpreter, which runs one program of a launch after another.

A program may read and write the tensors of its launch alone. Programs of a launch run in any order and at the same time
on a GPU: none may read or write what another one writes. Threads of a program run at the same time, too: what it has
stored it may read after a barrier only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from torch import Tensor

__all__ = ["LaunchError", "check_launches"]

_NOBODY, _SEVERAL = -1, -2


class LaunchError(AssertionError):
    """A launch that would go wrong on a GPU."""


class _Launch:
    """Which program of a launch last wrote, and which one read, each byte of its tensors.

    Args:
        name (str): Name of the kernel.
        tensors (list): Its tensors; those that share memory count as one.
    """

    def __init__(self, name: str, tensors: Iterable[Tensor]) -> None:
        self.name = name
        bounds = _bounds(tensors)
        self.start = np.array([start for start, _ in bounds] + [2**62], dtype=np.int64)
        self.end = np.array([end for _, end in bounds] + [2**62], dtype=np.int64)
        sizes = [end - start for start, end in bounds]
        self.writer = [np.full(size, _NOBODY, np.int32) for size in sizes]
        self.reader = [np.full(size, _NOBODY, np.int32) for size in sizes]
        self.stored = [np.full(size, _NOBODY, np.int32) for size in sizes]
        self.program, self.barriers = 0, 0

    def load(self, addresses: np.ndarray, size: int) -> None:
        """Notes that the present program reads numbers of ``size`` bytes."""
        for index, at in self._places(addresses, size, "loads"):
            writer, reader = self.writer[index][at], self.reader[index]
            if ((writer != _NOBODY) & (writer != self.program)).any():
                raise self._error("loads what another program stores")
            if ((writer == self.program) & (self.stored[index][at] == self.barriers)).any():
                raise self._error("loads what it has stored without a barrier between")
            reader[at] = np.where(self._is_free(reader[at]), self.program, _SEVERAL)

    def store(self, addresses: np.ndarray, size: int) -> None:
        """Notes that the present program writes numbers of ``size`` bytes."""
        for index, at in self._places(addresses, size, "stores"):
            for before, what in ((self.writer[index], "stores"), (self.reader[index], "loads")):
                if not self._is_free(before[at]).all():
                    raise self._error(f"stores where another program {what}")
            self.writer[index][at], self.stored[index][at] = self.program, self.barriers

    def _is_free(self, programs: np.ndarray) -> np.ndarray:
        """Whether no other program than the present one is named."""
        free: np.ndarray = (programs == _NOBODY) | (programs == self.program)
        return free

    def _places(self, addresses: np.ndarray, size: int, verb: str) -> Iterable[tuple[int, np.ndarray]]:
        """The addresses by tensor, as offsets of bytes; the first byte of a number stands for all."""
        found = np.searchsorted(self.start, addresses, side="right") - 1
        if ((found < 0) | (addresses + size > self.end[found])).any():
            raise self._error(f"{verb} outside of its tensors")
        if found.size and (found == found.flat[0]).all():
            yield int(found.flat[0]), addresses - self.start[found.flat[0]]
            return
        for index in np.unique(found):
            yield int(index), addresses[found == index] - self.start[index]

    def _error(self, what: str) -> LaunchError:
        return LaunchError(f"{self.name}, line {_line()}: program {self.program} {what}.")


def _bounds(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """First address of the memory of each tensor and the one after its last, in order; overlapping ones are one."""
    spans = []
    for tensor in tensors:
        if tensor.numel():
            last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
            spans.append((tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:  # neighbours stay apart
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _tensors(arguments: Iterable[Any]) -> Iterable[Tensor]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from _tensors(argument)


def _line() -> int:
    """The line of the kernel that is interpreted."""
    frame: Any = sys._getframe()
    while frame is not None and (
        "triton/" in frame.f_code.co_filename or frame.f_code.co_filename == __file__
    ):
        frame = frame.f_back
    return 0 if frame is None else frame.f_lineno


def check_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises a :class:`LaunchError` from a launch that would go wrong on a GPU."""
    from triton.runtime import interpreter

    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    load, store, call = builder.create_masked_load, builder.create_masked_store, executor.__call__
    set_program, launches = builder.set_grid_idx, list[_Launch]()

    def chosen(pointers: Any, mask: Any) -> np.ndarray:
        addresses = np.asarray(pointers.data).astype(np.int64)
        return addresses[np.broadcast_to(np.asarray(mask.data).astype(bool), addresses.shape)]

    def checked_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        size = np.dtype(interpreter._get_np_dtype(pointers.get_element_ty())).itemsize
        launches[-1].load(chosen(pointers, mask), size)
        return load(self, pointers, mask, *rest)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        launches[-1].store(chosen(pointers, mask), np.asarray(value.data).dtype.itemsize)
        return store(self, pointers, value, mask, *rest)

    def barrier(self: Any) -> None:
        launches[-1].barriers += 1

    def next_program(self: Any, x: int, y: int, z: int) -> None:
        _, across, deep = self.grid_dim
        launches[-1].program, launches[-1].barriers = (x * across + y) * deep + z, 0
        set_program(self, x, y, z)

    def checked_call(self: Any, *arguments: Any, **options: Any) -> Any:
        launches.append(_Launch(self.fn.__name__, _tensors((*arguments, *options.values()))))
        try:
            return call(self, *arguments, **options)
        finally:
            launches.pop()

    for owner, name, function in (
        (builder, "create_masked_load", checked_load),
        (builder, "create_masked_store", checked_store),
        (builder, "create_barrier", barrier),
        (builder, "set_grid_idx", next_program),
        (executor, "__call__", checked_call),
    ):
        monkeypatch.setattr(owner, name, function)
