"""Products with a matrix that all rows share, for kernels that use the result in the same program.

The gradient of such a matrix is a sum over all rows, which :func:`split_rows` splits into parts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphcaps.ops._triton.arithmetic import product

__all__ = ["split_rows", "times_rows"]

PROGRAMS = 264
"""Programs of the gradient that a large GPU runs at a time; the rows of a replica are split into parts accordingly."""
LEAST_STEPS = 4
"""Least number of steps of a part: below, its product takes longer to add than to compute."""
LARGEST_OFFSET = 2**31 - 1
"""Of a number within a part, so that offsets have 32 bits."""


def split_rows(V: int, rows: int, programs: int, width: int) -> tuple[int, int]:
    """Number of steps of a part and number of parts of V rows.

    Args:
        V (int): Number of rows.
        rows (int): Rows of a step.
        programs (int): Programs of each part.
        width (int): Numbers of a row.
    """
    count = triton.cdiv(V, rows)
    parts = max(1, min(triton.cdiv(count, LEAST_STEPS), PROGRAMS // max(1, programs)))
    steps = max(1, min(triton.cdiv(count, parts), LARGEST_OFFSET // (rows * width)))
    return steps, max(1, triton.cdiv(count, steps))


@triton.jit
def times_rows(  # type: ignore[no-untyped-def]
    x, at, real, matrix, N, K,
    KB: tl.constexpr, NP: tl.constexpr, STAGES: tl.constexpr, TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x M ``[R, NP]`` of R rows of x, K numbers from offset ``at`` on, with M ``[K, N]``.

    ``TRANSPOSED``: M is stored as its transpose ``[N, K]``, which the warp-group instruction (wgmma) needs. Rows that
    are not ``real`` count as 0. Only products use what is loaded here, so that its layout in shared memory is that of
    an operand; steps of KB numbers are loaded ahead.
    """
    n = tl.arange(0, NP)
    total = tl.zeros((at.shape[0], NP), tl.float32)
    for first in tl.range(0, K, KB, num_stages=STAGES):
        k = first + tl.arange(0, KB)
        left = tl.load(x + at[:, None] + k[None, :], mask=real[:, None] & (k < K)[None, :], other=0.0)
        offsets = n[None, :] * K + k[:, None] if TRANSPOSED else k[:, None] * N + n[None, :]
        right = tl.load(matrix + offsets, mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        total = product(left, right, total, PRECISION)
    return total
