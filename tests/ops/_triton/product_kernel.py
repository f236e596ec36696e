"""A kernel of one product, for the test of what its precisions are."""

from __future__ import annotations

import triton
import triton.language as tl

from graphcaps.ops._triton.arithmetic import product


@triton.jit
def one_product(a, b, out, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    offsets = i[:, None] * N + i[None, :]
    total = product(tl.load(a + offsets), tl.load(b + offsets), tl.full((N, N), 1.0, tl.float32), PRECISION)
    tl.store(out + offsets, total)
