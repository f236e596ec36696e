"""A lock on an output file: one process at a time computes it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from graphcaps.errors import DataError

__all__ = ["lock_file"]


@contextlib.contextmanager
def lock_file(path: str | Path, *, refusal: DataError | None = None) -> Iterator[None]:
    """Locks the file ``path``, which need not exist, against other processes that call this function.

    The lock is one of the operating system on an empty hidden file next to ``path``. It ends with the process, however
    that ends, and processes that it has forked do not keep it. On file systems without locks nothing is locked.

    Args:
        path (str or Path): The file; its folder must exist. A symbolic link is followed.
        refusal (DataError, optional): Raised if another process has the lock. (default: one that names the file)

    Raises:
        DataError: If another process has the lock.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    if refusal is None:
        fix = "Wait until it has ended, or name another file."
        refusal = DataError(path, "another process is writing this file", fix=fix)
    descriptor = _open_current(lock, refusal)
    try:
        yield
    finally:
        if sys.platform != "win32":  # Windows cannot remove a file that is open
            lock.unlink(missing_ok=True)
        os.close(descriptor)  # releases the lock
        if sys.platform == "win32":
            with contextlib.suppress(OSError):  # another process has opened it
                lock.unlink()


def _open_current(lock: Path, refusal: DataError) -> int:
    """Opens and locks the lock file; again if the process that held it has removed it in between."""
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise DataError(refusal.where, f"file cannot be locked ({error.strerror or error})") from error
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError) as error:
            os.close(descriptor)
            raise refusal from error
        except OSError:
            return descriptor  # the file system has no locks
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                return descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Locks an open file without waiting; ``BlockingIOError`` or ``PermissionError`` if another process has it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        # Not flock: a forked worker would keep that lock after its parent was killed.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
