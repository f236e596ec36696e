"""Kernels with the mistakes that tests of :mod:`tests.ops.launch_checker` look for."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def shift_kernel(x, out, n, BEYOND: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """``out = x``, each program with a block; ``BEYOND`` numbers too many are read and written."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n + BEYOND
    tl.store(out + i, tl.load(x + i, mask=inside, other=0.0), mask=inside)


@triton.jit
def neighbour_kernel(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program reads the block of the next one, and writes its own."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    after = (i + BLOCK) % n
    tl.store(out + i, tl.load(x + after, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def first_kernel(out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """All programs write the same block."""
    tl.store(out + tl.arange(0, BLOCK), tl.program_id(0))


@triton.jit
def reversed_kernel(x, out, BARRIER: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Writes a block and reads it in the other order."""
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + i, tl.load(out + BLOCK - 1 - i))
