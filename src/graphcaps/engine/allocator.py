"""Memory of large tensors on a CPU: large pages."""

from __future__ import annotations

import os

__all__ = ["take_large_pages"]

_SETTING = "THP_MEM_ALLOC_ENABLE"


def take_large_pages() -> None:
    """Lets torch ask Linux for pages of 2 MB where a tensor is large; to be called before the first one is made.

    A large tensor is mapped anew each time, and the system clears its pages as they are touched. With pages of
    4 kB that takes as long as the step itself where rows do not fit into a cache, with large ones a third. Results
    and peak memory stay as they are; other systems ignore it, and a value that is already set is kept.
    """
    os.environ.setdefault(_SETTING, "1")
