"""The neighbours of hubs: what a list adds up to behind its first entries, which others take care of.

Most slots have few neighbours. A program looks through a block of slots and does nothing where none has more; a
hub's list is gathered in chunks of many rows, and what they add up to is left where the result will stand.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.gather import four
from graphcaps.ops.kernels.hop_terms import affine

__all__ = ["add_hubs"]

_SLOTS = 32
"""Slots that a program looks through."""
_AT_ONCE = 2048
"""Numbers of a chunk of rows; four chunks are in flight at a time, in registers."""


def add_hubs(
    x: Tensor,
    out: Tensor,
    lists: tuple[Tensor, ...],
    first: Tensor,
    neighbours: Tensor,
    weight: Tensor,
    scale: Tensor,
    terms: list[Any],
    options: dict[str, Any],
) -> None:
    """Writes into ``out`` the sums over the neighbours from number ``HEAD`` on, at slots that have so many.

    The arguments are those of the product that is going to read them.
    """
    V, d = x.shape[-2:]
    blocks = triton.cdiv(V, _SLOTS)
    _hubs_kernel[(x.numel() // (V * d) * blocks, triton.cdiv(d, options["WIDTH"]))](
        x, out, *lists, first, neighbours, weight, scale, *terms[:4], terms[10],
        V, d // options["UNIT"], blocks,
        **options, SLOTS=_SLOTS, ROWS=max(4, _AT_ONCE // options["WIDTH"]), num_warps=4,
    )  # fmt: skip


@triton.jit(do_not_specialize=["V", "units", "blocks"])
def _hubs_kernel(  # type: ignore[no-untyped-def]
    x, out, starts, counts, first, neighbours, weight, scale, mean, var, gamma, beta, epsilon, V, units, blocks,
    UNIT: tl.constexpr, WEIGHTED: tl.constexpr, OWN: tl.constexpr, NORMED: tl.constexpr, LONG: tl.constexpr,
    HEAD: tl.constexpr, SLOTS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    D = units * UNIT
    replica = (tl.program_id(0) // blocks).to(tl.int64)
    base = replica * V
    begin = tl.program_id(0) % blocks * SLOTS
    lane = tl.arange(0, SLOTS)
    count = tl.load(counts + base + begin + lane, mask=begin + lane < V, other=0)
    hubs = tl.sum((count > HEAD).to(tl.int32), 0)
    if hubs > 0:
        columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        wide = columns < D
        x += base * D
        scale += base
        centre, factor, shift = columns, columns, columns  # not read
        if NORMED:
            centre, factor, shift = affine(mean, var, gamma, beta, replica * D + columns, wide, epsilon, True)
        row = tl.arange(0, ROWS)
        last = -1
        for _ in range(0, hubs):
            last = tl.min(tl.where((count > HEAD) & (lane > last), lane, SLOTS), 0)
            slot = base + begin + last
            at = tl.load(starts + slot) + HEAD
            left = tl.load(counts + slot) - HEAD
            origin = tl.load(first + slot).to(tl.int32)
            total = tl.zeros([ROWS, WIDTH], tl.float32)
            for k in range(0, left, 4 * ROWS):
                total = four(
                    total, x, at + (k + row)[:, None], left - (k + row)[:, None], origin, neighbours, weight,
                    scale, columns, wide, centre, factor, shift, D, ROWS, WEIGHTED, OWN, NORMED, LONG,
                )  # fmt: skip
            tl.store(out + slot * D + columns, tl.sum(total, 0), mask=wide)
