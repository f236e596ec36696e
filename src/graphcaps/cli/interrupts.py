"""Ctrl-C while modules are imported: it takes effect when the import is complete.

Extension modules such as numpy's catch an exception during their import, print its traceback and go on without what
they needed. The signal is therefore sent again until no import is running.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

__all__ = ["defer_interrupts"]

_WAIT_SECONDS = 0.05
_IMPORT_FILE = "<frozen importlib._bootstrap>"


def defer_interrupts() -> None:
    """Handles Ctrl-C from now on; without effect if the signal is ignored or handled by the program already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _handle)


def _handle(number: int, frame: FrameType | None) -> None:
    if not _is_importing(frame):
        signal.default_int_handler(number, frame)
    again = threading.Timer(_WAIT_SECONDS, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _is_importing(frame: FrameType | None) -> bool:
    """Whether one of the callers is an import."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_FILE:
            return True
        frame = frame.f_back
    return False
