"""Finds races between the streams of a captured step, without a GPU.

Kernels run one after another in Triton's interpreter; only the names of streams are kept. Every access of a tensor's
memory gets a time on its stream, and streams know of each other what they have waited for (vector clocks). Errors are

* two accesses of the same memory, one of them a write, of which neither waits for the other;
* memory that was freed and can be used again by the stream that allocated it, before an access of another stream;
* launches of a stream that nothing waits for in the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_VIEWS = ("aten.detach", "aten._unsafe_view", "aten.reshape", "aten.unbind")


class Stream:
    """A stream: how many launches of each stream are known to have ended before its next one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.known: dict[str, int] = {}

    def wait_stream(self, other: Stream) -> None:
        self._learn(other.known)

    def wait_event(self, event: Event) -> None:
        self._learn(event.known)

    def knows(self, access: Access) -> bool:
        return self.known.get(access.stream.name, 0) >= access.time

    def _learn(self, known: dict[str, int]) -> None:
        for name, time in known.items():
            self.known[name] = max(self.known.get(name, 0), time)


class Event:
    """An event: what its stream knew when it was recorded."""

    known: dict[str, int]

    def record(self, stream: Stream) -> None:
        self.known = dict(stream.known)


@dataclass(frozen=True)
class Access:
    """One launch that reads or writes a tensor's memory."""

    stream: Stream
    time: int
    writes: bool
    name: str

    def __str__(self) -> str:
        return f"{self.name} on {self.stream.name}"


@dataclass
class Memory:
    """Memory of one or more tensors; the tracker keeps it, so that its address is not used again."""

    storage: Any
    name: str
    allocated_by: Stream | None = None
    accesses: list[Access] = field(default_factory=list)

    @property
    def is_freed(self) -> bool:
        return bool(torch._C._storage_Use_Count(self.storage._cdata) == 1)

    def content(self) -> Tensor:
        return torch.empty(0, dtype=torch.uint8).set_(self.storage)


class StreamTracker(TorchDispatchMode):
    """Watches all torch operations and Triton launches while it is entered.

    ``errors`` describes what it finds, ``launched`` names operations and kernels in their order.
    """

    def __init__(self, side_streams: int) -> None:
        super().__init__()
        self.main = Stream("main")
        self.side_streams = [Stream(f"side stream {index}") for index in range(side_streams)]
        self.errors: set[str] = set()
        self.launched: list[str] = []
        self._entered = [self.main]
        self._memory: dict[int, Memory] = {}
        self._in_launch = self._active = False

    def __enter__(self) -> StreamTracker:
        self._active = True
        super().__enter__()
        return self

    def __exit__(self, *arguments: Any) -> None:
        super().__exit__(*arguments)
        self._active = False
        for stream in self.side_streams:
            if self.main.known.get(stream.name, 0) < stream.known.get(stream.name, 0):
                self.errors.add(f"nothing waits for {stream.name}")

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Takes the place of torch's streams and events, and of the interpreter's launches."""
        from triton.runtime import interpreter

        @contextlib.contextmanager
        def enter(stream: Stream) -> Iterator[None]:
            self._entered.append(stream)
            try:
                yield
            finally:
                self._entered.pop()

        run = interpreter.GridExecutor.__call__

        def launch(executor: Any, *arguments: Any, **options: Any) -> Any:
            if self._in_launch or not self._active:
                return run(executor, *arguments, **options)
            tensors = [each for each in (*arguments, *options.values()) if isinstance(each, Tensor)]
            name = f"{executor.fn.__module__.rsplit('.')[-1]}.{executor.fn.__name__}"
            self._in_launch = True  # what the interpreter itself does with tensors is no launch
            try:
                used = self._used(tensors, name)
                before = [memory.content().clone() for memory in used]
                result = run(executor, *arguments, **options)
                written = [not torch.equal(old, now.content()) for old, now in zip(before, used, strict=True)]
            finally:
                self._in_launch = False
            self._access(used, written, name)
            return result

        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self._entered[-1])
        monkeypatch.setattr(torch.cuda, "stream", enter)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(interpreter.GridExecutor, "__call__", launch)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._in_launch:
            return result
        name = str(func)
        inputs = self._used([each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)], name)
        if getattr(func, "is_view", False) or name.startswith(_VIEWS):
            return result
        new = [
            memory
            for each in tree_leaves(result)
            if isinstance(each, Tensor) and (memory := self._allocate(each, name)) is not None
        ]
        if "empty" not in name:  # an allocation alone is no access
            changed = [
                id(self._memory.get(value.untyped_storage().data_ptr()))
                for argument, value in zip(func._schema.arguments, args, strict=False)
                if isinstance(value, Tensor)
                and argument.alias_info is not None
                and argument.alias_info.is_write
            ]
            used = list({id(each): each for each in (*inputs, *new)}.values())
            fresh = {id(each) for each in new}
            self._access(used, [id(each) in fresh or id(each) in changed for each in used], name)
        return result

    def _used(self, tensors: list[Tensor], name: str) -> list[Memory]:
        """The memory of tensors, each once; one that is not known existed before."""
        found = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if address := storage.data_ptr():
                found[address] = self._memory.setdefault(address, Memory(storage, f"argument of {name}"))
        return list(found.values())

    def _allocate(self, tensor: Tensor, name: str) -> Memory | None:
        """The memory of a result, if it is new; it may be any that this stream has allocated and that is freed."""
        storage, stream = tensor.untyped_storage(), self._entered[-1]
        address = storage.data_ptr()
        if not address or address in self._memory:
            return None
        for memory in self._memory.values():
            if memory.allocated_by is stream and memory.is_freed:
                for access in memory.accesses:
                    if access.stream is not stream and not stream.knows(access):
                        self.errors.add(
                            f"{name} on {stream.name} may use the freed result of {memory.name}: {access}"
                        )
        self._memory[address] = Memory(storage, name, stream)
        return self._memory[address]

    def _access(self, used: list[Memory], written: list[bool], name: str) -> None:
        """A launch on the current stream."""
        stream = self._entered[-1]
        stream.known[stream.name] = stream.known.get(stream.name, 0) + 1
        self.launched.append(name)
        for memory, writes in zip(used, written, strict=True):
            access = Access(stream, stream.known[stream.name], writes, name)
            for other in memory.accesses:
                if other.stream is not stream and (writes or other.writes) and not stream.knows(other):
                    self.errors.add(f"{access} does not wait for {other}, both use {memory.name}")
            memory.accesses.append(access)
