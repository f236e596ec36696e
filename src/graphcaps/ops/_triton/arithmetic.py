"""A product of two tiles in the precision that was asked for; its sum is float32 always."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["fast_log2", "fast_reciprocal", "product"]


# The interpreter knows no machine instructions, and computes the same in float32.
_MACHINE = tl.constexpr(not triton.knobs.runtime.interpret)


@triton.jit
def fast_reciprocal(x):  # type: ignore[no-untyped-def]
    """1 / x within one unit in the last place; x must not be so small that 1 / x overflows."""
    if _MACHINE:
        found = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        found = 1 / x
    return found


@triton.jit
def fast_log2(x):  # type: ignore[no-untyped-def]
    """log₂ x, off by at most 2⁻²² (between ½ and 2) or by that share of itself; x must be a normal number."""
    if _MACHINE:
        found = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        found = tl.log2(x)
    return found


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total + a b``; ``PRECISION`` is ``"tf32x3"``, ``"tf32"`` or ``"bf16"``."""
    if PRECISION == "bf16":
        found = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    else:
        found = tl.dot(a, b, total, input_precision=PRECISION)
    return found
