"""The largest memory that a block of code needs: allocated on a GPU, or of the process and its workers."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from types import TracebackType

import torch

__all__ = ["PeakMemory"]

_PROCESS = Path("/proc/self")
_INTERVAL = 1.0  # seconds between two looks at the workers; each takes some milliseconds


class _Count:
    """Measurements of this process: of two at a time, neither can tell which memory is its own."""

    active = 0
    started = 0
    lock = threading.Lock()


class PeakMemory:
    """A context manager that measures the largest memory inside its block.

    On a GPU, this is what torch allocated at most. On a CPU it is the largest resident memory of the whole process,
    interpreter and graphs included. Where workers run, it is the sum of all processes, with shared pages counted once,
    at the calls of :meth:`sample`. Two measurements at a time give nothing.

    Args:
        device (device): Device of the computation.

    Attributes:
        bytes (int, optional): The peak, after the block. ``None`` if it could not be measured, as outside Linux.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bytes: int | None = None
        self._number: int | None = None  # of the measurement; None if it gives nothing
        self._workers = 0
        self._sampled = 0.0

    def __enter__(self) -> PeakMemory:
        with _Count.lock:
            _Count.active += 1
            _Count.started += 1
            self._number = _Count.started if _Count.active == 1 else None
        if self._number is not None and self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self._number is not None:
            try:
                (_PROCESS / "clear_refs").write_text("5")  # resets the peak to what is resident now
            except OSError:
                self._number = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _Count.lock:
            _Count.active -= 1
            is_alone = _Count.started == self._number
        if is_alone and self.device.type == "cuda":
            self.bytes = torch.cuda.max_memory_allocated(self.device)
        elif is_alone:
            with contextlib.suppress(OSError):
                self.bytes = max(_field(_PROCESS / "status", "VmHWM"), self._workers)

    def sample(self) -> None:
        """Adds up the memory of the process and its workers; at most once a second, and only if there are workers."""
        if self.device.type != "cpu" or time.monotonic() - self._sampled < _INTERVAL:
            return
        self._sampled = time.monotonic()
        if workers := _children():
            total = 0
            for process in (_PROCESS, *(Path(f"/proc/{worker}") for worker in workers)):
                with contextlib.suppress(OSError):  # it has just ended
                    total += _field(process / "smaps_rollup", "Pss")
            self._workers = max(self._workers, total)


def _children() -> list[str]:
    """Process numbers of the workers that threads of this process have started."""
    numbers: list[str] = []
    with contextlib.suppress(OSError):
        for task in (_PROCESS / "task").iterdir():
            with contextlib.suppress(OSError):  # a thread that has just ended
                numbers += (task / "children").read_text().split()
    return numbers


def _field(path: Path, name: str) -> int:
    """A field of a file of the kernel, which is in kilobytes, in bytes; 0 if it is missing."""
    lines = path.read_text().splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)
