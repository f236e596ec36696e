"""The precision of a training: of our kernels and of torch's own products alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

from graphcaps.ops.kernels import Precision, products_in

__all__ = ["multiply_in"]

_lock = Lock()
# What was set when each of the blocks now open was entered, the first one's at the bottom.
_before: list[str] = []


@contextmanager
def multiply_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Inside the block products on a GPU are taken in this precision; a CPU takes float32 always.

    torch's own products know no bf16 of float32 numbers: below float32 they are taken in TF32. That setting
    is one for the whole process, so trainings in several threads have to agree on it; it is taken back when the
    last of them leaves its block.
    """
    if device.type != "cuda":
        yield
        return
    with _lock:
        _before.append(torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    try:
        with products_in(precision):
            yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                torch.set_float32_matmul_precision(before)
