"""Rows of neighbours, gathered and added up: four of each list at a time."""

from __future__ import annotations

import triton
import triton.language as tl

from graphcaps.ops.kernels.hop_terms import normalised

__all__ = ["four"]


@triton.jit
def _row(  # type: ignore[no-untyped-def]
    x, slot, has, entry, weight, scale, columns, wide, centre, factor, shift, D,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """What a neighbour adds to the sum, 0 where there is none."""
    at = slot.to(tl.int64) * D if LONG else slot * D
    values = tl.load(x + (at + columns[None, :]), mask=has & wide[None, :], other=0.0)
    if NORMED:  # 0 where there is no neighbour, by its scale
        values = normalised(values, centre, factor, shift)
    if WEIGHTED:
        values *= tl.load(weight + entry, mask=has, other=0.0)
    if OWN:
        values *= tl.load(scale + slot, mask=has, other=0.0)
    return values


@triton.jit
def four(  # type: ignore[no-untyped-def]
    total, x, entry, left, begin, neighbours, weight, scale, columns, wide, centre, factor, shift,
    D, STEP: tl.constexpr,
    WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    """Adds the entries ``entry``, ``entry + STEP``, … of lists that have ``left`` to go.

    Four at a time: a load that waits for another one is what a gather of a few rows spends its time on.
    """
    i, j, k, m = left > 0, left > STEP, left > 2 * STEP, left > 3 * STEP
    a = begin + tl.load(neighbours + entry, mask=i, other=0).to(tl.int32)
    b = begin + tl.load(neighbours + entry + STEP, mask=j, other=0).to(tl.int32)
    c = begin + tl.load(neighbours + entry + 2 * STEP, mask=k, other=0).to(tl.int32)
    d = begin + tl.load(neighbours + entry + 3 * STEP, mask=m, other=0).to(tl.int32)
    p = _row(x, a, i, entry, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    q = _row(x, b, j, entry + STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    r = _row(x, c, k, entry + 2 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    s = _row(x, d, m, entry + 3 * STEP, weight, scale, columns, wide, centre, factor, shift, D,
             WEIGHTED, OWN, NORMED, LONG)  # fmt: skip
    return total + p + q + r + s
