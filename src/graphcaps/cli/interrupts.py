"""Ctrl-C at any time: one line, exit code 130 and no traceback. SIGTERM during a training: the same with 143.

Until a command runs, nothing needs to be finished, and Ctrl-C ends the process at once. While a command runs, Ctrl-C
raises ``KeyboardInterrupt`` as usual, but not within an import: extension modules such as numpy's catch an exception
during their import, print its traceback and go on without what they needed. The signal is therefore sent again until no
import is running.

Batch systems end a job with SIGTERM. Verbs that train handle it as Ctrl-C, and save what they have; ``serve`` has its
own handler, and other verbs have nothing to save.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = [
    "STOPPED",
    "Terminated",
    "defer_interrupts",
    "exit_on_interrupt",
    "ignore_interrupts",
    "leave_interrupts",
    "stop_code",
    "suggest_resume",
]

STOPPED = "Stopped."
"""The line on the error stream after Ctrl-C or SIGTERM, unless a command has more to say."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DEFAULTS = (signal.default_int_handler, signal.SIG_DFL)  # of Python, for these signals
_WAIT_SECONDS = 0.05
# Within this time SIGTERM counts as one: `timeout` and torchrun send it twice to some processes.
_REPEAT_SECONDS = 5.0
_IMPORT_FILE = "<frozen importlib._bootstrap>"
_terminated_at = -_REPEAT_SECONDS
_process = os.getpid()


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does, with another exit code."""


def stop_code(error: KeyboardInterrupt) -> int:
    """The exit code after Ctrl-C or SIGTERM: 128 and the number of the signal, as shells count."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def exit_on_interrupt() -> None:
    """Lets Ctrl-C and SIGTERM end the process at once; without effect if a signal is ignored or handled already."""
    for number in _SIGNALS:
        if signal.getsignal(number) in _DEFAULTS:
            signal.signal(number, _exit)


def defer_interrupts(*, trains: bool = False) -> None:
    """Lets Ctrl-C raise ``KeyboardInterrupt`` outside imports; without effect unless it ended the process before.

    Args:
        trains (bool): Whether SIGTERM does the same; else it ends the process as usual. (default: ``False``)
    """
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, _raise_outside_imports)
    if signal.getsignal(signal.SIGTERM) is _exit:
        signal.signal(signal.SIGTERM, _raise_outside_imports if trains else signal.SIG_DFL)


def ignore_interrupts() -> None:
    """Ignores both signals while Python ends, which takes a moment and would print a traceback."""
    for number in _SIGNALS:
        if signal.getsignal(number) in (_exit, _raise_outside_imports):
            signal.signal(number, signal.SIG_IGN)


def leave_interrupts() -> None:
    """Leaves Ctrl-C to another process of the same training, and lets SIGTERM end this one at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if signal.getsignal(signal.SIGTERM) is _raise_outside_imports:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:
    # Not KeyboardInterrupt: raised inside eval(), which typer calls, it would become the signal itself at Python's end.
    os.write(2, f"{STOPPED}\n".encode())
    os._exit(128 + number)


def _raise_outside_imports(number: int, frame: FrameType | None) -> None:
    global _terminated_at
    # In a worker, forked a moment ago: only the process that started it saves and prints.
    if os.getpid() != _process:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    if not _is_importing(frame):
        if number != signal.SIGTERM:
            signal.default_int_handler(number, frame)
        if time.monotonic() - _terminated_at < _REPEAT_SECONDS:  # a repeated one would interrupt the saving
            return
        _terminated_at = time.monotonic()
        raise Terminated
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


@contextmanager
def suggest_resume(out: Path | None) -> Iterator[None]:
    """Ends the command with exit code 130 at Ctrl-C, 143 at SIGTERM, with a line that says how to continue.

    Args:
        out (Path, optional): Folder that has what is finished; without it nothing can be continued.
    """
    import typer

    from graphcaps.cli.output import note

    try:
        yield
    except KeyboardInterrupt as error:
        note(STOPPED + ("" if out is None else " Continue with the same command and --resume."))
        raise typer.Exit(stop_code(error)) from error
