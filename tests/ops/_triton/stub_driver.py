"""A Triton driver without a GPU: kernels are compiled for an H200, and launches only count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

TARGET = GPUTarget("cuda", 90, 32)


class StubDriver:
    """What Triton asks of a driver to compile, load and launch a kernel.

    Args:
        target (GPUTarget): The GPU that is compiled for. (default: H200)
    """

    def __init__(self, target: GPUTarget = TARGET) -> None:
        self.target, self.utils = target, self
        self.loaded: list[str] = []
        self.launches = 0

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        assert device == 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 232448}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, ...]:
        self.loaded.append(name)
        return (1, 1, 32, 0, 1024)

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(*arguments: Any) -> None:
            self.launches += 1

        return launch


@contextmanager
def stub_driver() -> Iterator[StubDriver]:
    """Makes Triton use a :class:`StubDriver` inside the block."""
    before = driver._active
    driver.set_active(stub := StubDriver())  # type: ignore[no-untyped-call]
    try:
        yield stub
    finally:
        driver._active = before
