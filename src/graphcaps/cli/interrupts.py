"""Ctrl-C at any time: one line, exit code 130 and no traceback.

Until a command runs, nothing needs to be finished, and Ctrl-C ends the process at once. While a command runs, Ctrl-C
raises ``KeyboardInterrupt`` as usual, but not within an import: extension modules such as numpy's catch an exception
during their import, print its traceback and go on without what they needed. The signal is therefore sent again until no
import is running.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = ["STOPPED", "defer_interrupts", "exit_on_interrupt", "ignore_interrupts", "suggest_resume"]

STOPPED = "Stopped."
"""The line on the error stream after Ctrl-C, unless a command has more to say."""

_WAIT_SECONDS = 0.05
_IMPORT_FILE = "<frozen importlib._bootstrap>"


def exit_on_interrupt() -> None:
    """Lets Ctrl-C end the process at once; without effect if the signal is ignored or handled already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def defer_interrupts() -> None:
    """Lets Ctrl-C raise ``KeyboardInterrupt`` outside imports; without effect unless it ended the process before."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, _raise_outside_imports)


def ignore_interrupts() -> None:
    """Ignores Ctrl-C while Python ends, which takes a moment and would print a traceback."""
    if signal.getsignal(signal.SIGINT) in (_exit, _raise_outside_imports):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _exit(number: int, frame: FrameType | None) -> None:
    # Not KeyboardInterrupt: raised inside eval(), which typer calls, it would become the signal itself at Python's end.
    os.write(2, f"{STOPPED}\n".encode())
    os._exit(130)


def _raise_outside_imports(number: int, frame: FrameType | None) -> None:
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


@contextmanager
def suggest_resume(out: Path | None) -> Iterator[None]:
    """Ends the command with exit code 130 at Ctrl-C, with a line that says how to continue.

    Args:
        out (Path, optional): Folder that has what is finished; without it nothing can be continued.
    """
    import typer

    from graphcaps.cli.output import note

    try:
        yield
    except KeyboardInterrupt as error:
        note(STOPPED + ("" if out is None else " Continue with the same command and --resume."))
        raise typer.Exit(130) from error
