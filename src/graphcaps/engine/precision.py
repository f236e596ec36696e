"""The precision of a training: of our kernels and of torch's own products alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graphcaps.ops.kernels import Precision, products_in

__all__ = ["multiply_in"]


@contextmanager
def multiply_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Inside the block products on a GPU are taken in this precision; a CPU takes float32 always.

    torch's own products know no bf16 of float32 numbers: below float32 they are taken in TF32.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    try:
        with products_in(precision):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
