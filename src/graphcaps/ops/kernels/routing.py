"""The passes of routing over the rows: weigh and sum in one reading of h, and the gradient back to the rows.

One program per replica, graph and chunk of ``CHUNK`` rows. What belongs to a whole lies as ``[L, J, B, …]``,
so that the products with the J weights need no copy (:mod:`graphcaps.ops.kernels.wholes`). All leading axes
are one axis L here. A graph's chunks leave their sums side by side, ``[S, L, J, B, …]``; chunks beyond a
graph's end are neither written nor read.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.ragged import CHUNK, chunk, chunks_of

__all__ = ["Rows", "parts_backward", "weigh_and_sum"]


@dataclass(frozen=True)
class Rows:
    """Which of V rows belong to which of B graphs, in L replicas.

    Args:
        ptr (Tensor, optional): First row of each graph and the end of the last, ``[L, B + 1]``; ``None``
            where every graph has ``size`` rows and nothing is padding.
        size (int): Rows of a graph, or a bound on it where ``ptr`` is given.
        L (int): Replicas.
        V (int): Rows, padding included.
        B (int): Graphs, padding included.
    """

    ptr: Tensor | None
    size: int
    L: int
    V: int
    B: int

    @property
    def parts(self) -> int:
        """S, chunks of the largest graph."""
        return chunks_of(self.size)

    @property
    def height(self) -> int:
        """Rows of a tile: small where graphs are small."""
        return 32 if self.V > 16 * self.B else 16


@triton.jit
def _weigh_kernel(  # type: ignore[no-untyped-def]
    h, ptr, T, tau, G, m, c, V, B, L, SIZE,
    S: tl.constexpr, J: tl.constexpr, D: tl.constexpr, JP: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, FIXED: tl.constexpr, STORE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    d = tl.arange(0, DP)
    if b < B:
        start, end = chunk(ptr, B, r, b, part, SIZE, FIXED, S == 1, CHUNK)
        # The first chunk is written for a graph without rows too; the others only where there are rows.
        if (part == 0) | (start < end):
            whole = (r * J + j) * B + b
            wide = (j < J)[:, None] & (d < D)[None, :]
            toward = tl.load(T + whole[:, None] * D + d[None, :], mask=wide, other=0.0)
            lift = tl.load(tau + whole, mask=j < J, other=0.0)
            total = tl.zeros((JP, DP), tl.float32)
            mass = tl.zeros((JP,), tl.float32)
            for first in range(start, end, ROWS):
                rows = first + tl.arange(0, ROWS)
                real = rows < end
                x = tl.load(
                    h + (r * V + rows)[:, None] * D + d[None, :],
                    mask=real[:, None] & (d < D)[None, :],
                    other=0.0,
                )
                logits = tl.dot(toward, tl.trans(x), input_precision=PRECISION) + lift[:, None]
                logits = tl.where((j < J)[:, None], logits, float("-inf"))
                weight = tl.exp(logits - tl.max(logits, 0)[None, :])
                weight = weight / tl.sum(weight, 0)[None, :]
                weight = tl.where(real[None, :], weight, 0.0)
                total = tl.dot(weight, x, total, input_precision=PRECISION)
                mass += tl.sum(weight, 1)
                if STORE:
                    tl.store(
                        c + (r * V + rows)[None, :] * J + j[:, None],
                        weight,
                        mask=real[None, :] & (j < J)[:, None],
                    )
            place = part * (L * J * B) + whole
            tl.store(G + place[:, None] * D + d[None, :], total, mask=wide)
            tl.store(m + place, mass, mask=j < J)
    else:
        # Rows behind the last graph are padding: their weights are written as 0.
        tail = tl.load(ptr + r * (B + 1) + B).to(tl.int32) + part * ROWS
        for first in range(tail, V, S * ROWS):
            rows = first + tl.arange(0, ROWS)
            inside = (rows < V)[:, None] & (j < J)[None, :]
            tl.store(
                c + (r * V + rows)[:, None] * J + j[None, :], tl.zeros((ROWS, JP), tl.float32), mask=inside
            )


@triton.jit
def _parts_backward_kernel(  # type: ignore[no-untyped-def]
    c, dG, ptr, dh, V, B, SIZE,
    S: tl.constexpr, J: tl.constexpr, D: tl.constexpr, JP: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, FIXED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    d = tl.arange(0, DP)
    if b < B:
        start, end = chunk(ptr, B, r, b, part, SIZE, FIXED, S == 1, CHUNK)
        if start < end:
            whole = (r * J + j) * B + b
            wide = (j < J)[:, None] & (d < D)[None, :]
            slope = tl.load(dG + whole[:, None] * D + d[None, :], mask=wide, other=0.0)
            for first in range(start, end, ROWS):
                rows = first + tl.arange(0, ROWS)
                real = rows < end
                weight = tl.load(
                    c + (r * V + rows)[:, None] * J + j[None, :],
                    mask=real[:, None] & (j < J)[None, :],
                    other=0.0,
                )
                found = tl.dot(weight, slope, input_precision=PRECISION)
                place = (r * V + rows)[:, None] * D + d[None, :]
                tl.store(dh + place, found, mask=real[:, None] & (d < D)[None, :])
    else:
        tail = tl.load(ptr + r * (B + 1) + B).to(tl.int32) + part * ROWS
        for first in range(tail, V, S * ROWS):
            rows = first + tl.arange(0, ROWS)
            inside = (rows < V)[:, None] & (d < D)[None, :]
            tl.store(
                dh + (r * V + rows)[:, None] * D + d[None, :], tl.zeros((ROWS, DP), tl.float32), mask=inside
            )


def weigh_and_sum(
    h: Tensor, T: Tensor, tau: Tensor, rows: Rows, store: bool, precision: str = "tf32x3"
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""One reading of h: c = softmax over j of h·T + τ, then G = Σ c h and m = Σ c.

    Args:
        h (Tensor): Parts, ``[L, V, d]``, d at most 128.
        T (Tensor): ``[L, J, B, d]``, J at most 32.
        tau (Tensor): ``[L, J, B]``.
        rows (Rows): Which row belongs to which graph.
        store (bool): Whether c is kept.
        precision (str): Of the products, as ``tl.dot`` names it. (default: "tf32x3")

    Returns:
        tuple: G ``[S, L, J, B, d]`` and m ``[S, L, J, B]``, a chunk each; c ``[L, V, J]`` or ``None``.
    """
    L, J, B, D = T.shape
    G, m = h.new_empty(rows.parts, L, J, B, D), h.new_empty(rows.parts, L, J, B)
    c = h.new_empty(L, rows.V, J) if store else None
    JP, DP = _padded(J), _padded(D)
    # One more program per replica and chunk writes the padding rows of c.
    extra = int(store and rows.ptr is not None)
    _weigh_kernel[(B + extra, L, rows.parts)](
        h, h if rows.ptr is None else rows.ptr, T, tau, G, m, G if c is None else c,
        rows.V, B, L, rows.size,
        S=rows.parts, J=J, D=D, JP=JP, DP=DP, ROWS=rows.height, CHUNK=CHUNK,
        FIXED=rows.ptr is None, STORE=store, PRECISION=precision, num_warps=_warps(JP, DP), num_stages=2,
    )  # fmt: skip
    return G, m, c


def parts_backward(c: Tensor, dG: Tensor, rows: Rows, precision: str = "tf32x3") -> Tensor:
    r"""dh\ :sub:`i` = Σ\ :sub:`j` c\ :sub:`ij` dG\ :sub:`j`, c being a constant; padding rows are 0.

    Args:
        c (Tensor): ``[L, V, J]``.
        dG (Tensor): ``[L, J, B, d]``.
        rows (Rows): Which row belongs to which graph.
        precision (str): Of the products, as ``tl.dot`` names it. (default: "tf32x3")

    Returns:
        Tensor: ``[L, V, d]``.
    """
    L, J, B, D = dG.shape
    dh = torch.empty(L, rows.V, D, dtype=dG.dtype, device=dG.device)
    JP, DP = _padded(J), _padded(D)
    _parts_backward_kernel[(B + int(rows.ptr is not None), L, rows.parts)](
        c, dG, c if rows.ptr is None else rows.ptr, dh, rows.V, B, rows.size,
        S=rows.parts, J=J, D=D, JP=JP, DP=DP, ROWS=rows.height, CHUNK=CHUNK, FIXED=rows.ptr is None,
        PRECISION=precision, num_warps=_warps(JP, DP), num_stages=2,
    )  # fmt: skip
    return dh


def _padded(width: int) -> int:
    return max(16, int(triton.next_power_of_2(width)))


def _warps(JP: int, DP: int) -> int:
    return 8 if JP * DP >= 4096 else 4
