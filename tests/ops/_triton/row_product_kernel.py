"""A kernel of one product of rows with a matrix, for the test of that product."""

from __future__ import annotations

import triton
import triton.language as tl

from graphcaps.ops._triton.row_products import times_rows


@triton.jit
def row_product(
    x, starts, real, matrix, out, N, K,
    R: tl.constexpr, KB: tl.constexpr, NP: tl.constexpr, TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The whole result of :func:`times_rows`, ``[R, NP]``, of rows from ``starts`` on."""
    row, n = tl.arange(0, R), tl.arange(0, NP)
    start, is_real = tl.load(starts + row), tl.load(real + row) != 0
    total = times_rows(x, start, is_real, matrix, N, K, KB, NP, 2, TRANSPOSED, PRECISION)
    tl.store(out + row[:, None] * NP + n[None, :], total)
