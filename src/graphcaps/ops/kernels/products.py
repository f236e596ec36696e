"""A product of two tiles in the precision that was asked for; its sum is float32 always."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["product"]


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total + a b``; ``PRECISION`` is ``"tf32x3"``, ``"tf32"`` or ``"bf16"``."""
    if PRECISION == "bf16":
        found = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    else:
        found = tl.dot(a, b, total, input_precision=PRECISION)
    return found
