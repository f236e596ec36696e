"""Rows of one graph each times a matrix that all of them share, for kernels that use the result in the same program."""

from __future__ import annotations

import triton
import triton.language as tl

from graphcaps.ops._triton.arithmetic import product

__all__ = ["times_rows"]


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
