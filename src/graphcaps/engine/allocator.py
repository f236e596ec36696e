"""Memory of large tensors on a CPU: large pages, and pages that are kept."""

from __future__ import annotations

import ctypes
import os

__all__ = ["keep_freed_memory", "take_large_pages"]

_SETTING = "THP_MEM_ALLOC_ENABLE"
# Numbers of these settings in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def take_large_pages() -> None:
    """Lets torch ask Linux for pages of 2 MB where a tensor is large; to be called before the first one is made.

    A large tensor is mapped anew each time, and the system clears its pages as they are touched. With pages of
    4 kB that takes as long as the step itself where rows do not fit into a cache, with large ones a third. Results
    and peak memory stay as they are; other systems ignore it, and a value that is already set is kept.
    """
    os.environ.setdefault(_SETTING, "1")


def keep_freed_memory() -> bool:
    """Lets this process keep what it frees, for the next tensor: pages are cleared once, not in every step.

    For one large graph it saves the system's whole share of a step, and costs memory: freed blocks do not always
    fit what is asked for next, and a peak is up to twice as high. It cannot be taken back.

    Returns:
        bool: Whether the C library is glibc, which takes such settings; another one is left alone.
    """
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (asked for, not called: others have a mallopt that differs)
        settings = library.mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(settings(_MMAP_MAX, 0)) and bool(settings(_TRIM_THRESHOLD, -1))
