"""Arithmetic shared by kernels: approximate reciprocal and logarithm, and tile products in a chosen precision.

Their launches share :func:`tile_width`.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["fast_log2", "fast_reciprocal", "product", "tile_width"]


def tile_width(size: int) -> int:
    """Width of a tile of ``size`` columns: a power of two, and at least 16, the least that a product takes."""
    return max(16, int(triton.next_power_of_2(size)))


# The interpreter has no machine instructions and computes the same in float32.
_COMPILED = tl.constexpr(not triton.knobs.runtime.interpret)


@triton.jit
def fast_reciprocal(x):  # type: ignore[no-untyped-def]
    """1 / x within one unit in the last place; x must not be so small that 1 / x overflows."""
    if _COMPILED:
        result = tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        result = 1 / x
    return result


@triton.jit
def fast_log2(x):  # type: ignore[no-untyped-def]
    """log₂ x for a normal number x; the error is at most 2⁻²², absolute between ½ and 2 and relative elsewhere."""
    if _COMPILED:
        result = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        result = tl.log2(x)
    return result


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """``total + a b``; ``PRECISION`` is ``"tf32x3"``, ``"tf32"`` or ``"bfloat16"``.

    If b is in half precision, a is rounded to it.
    """
    if PRECISION == "bfloat16":
        result = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    elif b.dtype == tl.float16:
        result = tl.dot(a.to(tl.float16), b, total)
    else:
        result = tl.dot(a, b, total, input_precision=PRECISION)
    return result
