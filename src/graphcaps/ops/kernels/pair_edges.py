"""What listed edges change in the sum over all pairs, where there are no bits to read them from."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["edges_kernel"]


@triton.jit(do_not_specialize=["V", "B", "chunks", "stride", "offset"])
def edges_kernel(  # type: ignore[no-untyped-def]
    p, shift, ptr, index, edge_ptr, neighbours, node, first, slope, partial, V, B, d, chunks, stride, offset,
    low, high, epsilon, K: tl.constexpr,
    MEAN_OF_GRAPHS: tl.constexpr, SLOPE: tl.constexpr, SHIFT: tl.constexpr,
    D: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """The edges of a slot (program 0) of a replica (1), a chunk of the slope (2): −Σ (log P − log(1 − P))."""
    slot = tl.program_id(0)
    replica = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    at = replica * V + slot
    store = tl.load(node + at).to(tl.int64)
    side = tl.arange(0, 2)
    ends = tl.load(edge_ptr + store + side, mask=store >= 0, other=0)
    lower = tl.min(ends, 0)
    count = tl.sum(tl.where(side == 1, ends, -ends), 0).to(tl.int32)
    graph = tl.load(index + at)
    rows = p + (replica * V + tl.load(first + at)) * d
    shift += (replica * B + graph) * d
    real = graph < B
    k = tl.arange(0, D)
    own = p + at * d + k
    total = tl.zeros([K], tl.float32)
    grad = tl.zeros([D], tl.float32)
    if WHOLE:
        zi = tl.load(own, mask=(k < d) & (store >= 0), other=0.0)
        if SHIFT:
            s = tl.load(shift + k, mask=(k < d) & real, other=0.0)
            zi += s
    for e in range(0, count, K):
        entry = e + tl.arange(0, K)
        there = entry < count
        local = tl.load(neighbours + lower + entry, mask=there, other=0).to(tl.int64)
        neighbour = rows + local[:, None] * d + k[None, :]
        if WHOLE:
            zj = tl.load(neighbour, mask=there[:, None] & (k[None, :] < d), other=0.0)
            if SHIFT:
                zj += s[None, :]
            S = tl.sum(zj * zi[None, :], 1)
        else:
            S = tl.zeros([K], tl.float32)
            for q in range(0, chunks):
                known = k + q * D < d
                zi = tl.load(own + q * D, mask=known, other=0.0)
                zj = tl.load(neighbour + q * D, mask=there[:, None] & known[None, :], other=0.0)
                if SHIFT:
                    s = tl.load(shift + k + q * D, mask=known & real, other=0.0)
                    zi += s
                    zj += s[None, :]
                S += tl.sum(zj * zi[None, :], 1)
        # Comparisons, not minimum and maximum, which would turn NaN into a bound.
        below = low > S
        above = high < S
        P = tl.where(below, low, tl.where(above, high, S))
        joined = P + epsilon
        missing = 1 - P + epsilon
        total += tl.where(there, tl.log(joined) - tl.log(missing), 0.0)
        if SLOPE:
            g = tl.where(below | above | (entry >= count), 0.0, 1 / joined + 1 / missing)
            if not WHOLE:
                known = k + part * D < d
                zj = tl.load(neighbour + part * D, mask=there[:, None] & known[None, :], other=0.0)
                if SHIFT:
                    zj += tl.load(shift + k + part * D, mask=known & real, other=0.0)[None, :]
            grad += tl.sum(g[:, None] * zj, 0)

    weight = 1.0
    if MEAN_OF_GRAPHS:
        begin = ptr + replica * (B + 1) + graph
        n = tl.load(begin + 1, mask=real, other=1) - tl.load(begin, mask=real, other=0)
        wide = n.to(tl.float32)
        weight = 1 / (wide * wide)
    if part == 0:
        tl.store(partial + replica * stride + offset + slot, -weight * tl.sum(total, 0))
    if SLOPE:
        place = slope + at * d + k + part * D
        change = (k + part * D < d) & (count > 0)
        tl.store(place, tl.load(place, mask=change, other=0.0) - (2 * weight) * grad, mask=change)
