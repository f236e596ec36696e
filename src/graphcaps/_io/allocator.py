"""Environment settings of torch's CPU memory allocator.

This module does not import torch, so that the command line can set them before torch is loaded.
"""

from __future__ import annotations

import os

__all__ = ["enable_huge_pages"]

_VARIABLE = "THP_MEM_ALLOC_ENABLE"


def enable_huge_pages() -> None:
    """Makes torch request transparent huge pages (2 MB) for large CPU tensors. Call before the first allocation.

    Linux maps a large tensor anew at each allocation and clears its pages on first access. With pages of 4 kB this
    takes as long as the training step itself where rows do not fit into a cache; with huge pages it takes a third of
    that time. Results and peak memory do not change. Other systems ignore the setting, and a value that is already in
    the environment is kept.
    """
    os.environ.setdefault(_VARIABLE, "1")
