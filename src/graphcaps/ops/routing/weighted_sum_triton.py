"""The passes of routing over the rows: assignments and weighted sums in one pass over h, and the gradient of h.

One program per replica, graph and chunk of ``CHUNK`` rows. All leading axes are one axis L here. Values per output
capsule are ``[L, J, B, …]``, so that the products with the J weights need no copy
(:mod:`graphcaps.ops.routing.capsule_update_triton`). The sums of the S chunks of a graph are stored separately,
``[S, L, J, B, …]``; chunks beyond the end of a graph are neither written nor read.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment"

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import fast_reciprocal, product, tile_width
from graphcaps.ops.ragged.ragged_triton import chunk_bounds, count_chunks, ragged_sum, rows_per_chunk

__all__ = ["Rows", "assign_and_sum", "input_gradient", "sum_rows", "tile_options"]

_STAGES = (2, 3)
"""One more than the number of tiles of rows that are loaded ahead, for small and for large graphs: shared memory for
more tiles leaves room for fewer programs at a time, which pays off where a program has many tiles."""
_LARGE = 128
"""Rows above which a graph is large."""


@dataclass(frozen=True)
class Rows:
    """Which of V rows belong to which of B graphs, for L replicas.

    Args:
        ptr (Tensor): First row of each graph and the end of the last, ``[L, B + 1]``; not read if
            ``fixed``.
        size (int): Rows of a graph, or an upper bound.
        L (int): Replicas.
        V (int): Rows, padding included.
        B (int): Graphs, padding included.
        fixed (bool): Whether every graph has exactly ``size`` rows and there is no padding.
    """

    ptr: Tensor
    size: int
    L: int
    V: int
    B: int
    fixed: bool

    @property
    def parts(self) -> int:
        """S, the number of chunks of the largest graph."""
        return count_chunks(self.size)

    @property
    def fixed_size(self) -> int:
        """Rows of every graph if ``fixed``, else 0."""
        return self.size if self.fixed else 0

    @property
    def height(self) -> int:
        """Rows of a tile: few if graphs are small, as on the levels above the first."""
        return 16 if self.fixed and self.size <= 32 else 32


@triton.jit(do_not_specialize=["V", "B", "L", "J", "SIZE", "ROWS_PER_CHUNK", "STORE"])
def _assign_kernel(  # type: ignore[no-untyped-def]
    h, ptr, T, tau, G, m, c, V, B, L, J, SIZE, ROWS_PER_CHUNK, STORE, D,
    JP: tl.constexpr, DP: tl.constexpr, KB: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    d = tl.arange(0, KB)
    if b < B:
        start, end = chunk_bounds(ptr, B, r, b, part, SIZE, ROWS_PER_CHUNK)
        # The first chunk is written even for an empty graph, the others only if they have rows.
        if (part == 0) | (start < end):
            # Offsets within a replica and chunk fit into 32 bits. Rows are read as DP / KB tiles of columns: a single
            # operand of all columns would spill registers. Rows of T from J on repeat the last one.
            T_of = T + (r * J * B + b) * D + (tl.minimum(j, J - 1) * B)[:, None] * D
            T_tiles = ()
            total = ()
            for k in tl.static_range(0, DP, KB):
                wide = (k + d < D)[None, :]
                T_tiles += (tl.load(T_of + (k + d)[None, :], mask=wide, other=0.0),)
                total += (tl.zeros((JP, KB), tl.float32),)
            # Unused rows of the tile get assignment 0.
            bias_logits = tl.load(tau + r * J * B + b + j * B, mask=j < J, other=float("-inf"))
            mass = tl.zeros((JP, ROWS), tl.float32)
            x_of = h + (r * V + start) * D
            c_of = c + (r * V + start) * J
            for first in range(0, end - start, ROWS):
                rows = first + tl.arange(0, ROWS)
                real = rows < end - start
                logits = tl.zeros((JP, ROWS), tl.float32)
                # Loaded once for each product, in its orientation: only then are both copied to shared memory ahead.
                for k in tl.static_range(DP // KB):
                    channels = k * KB + d[:, None]
                    inside = (channels < D) & real[None, :]
                    values = tl.load(x_of + (rows[None, :] * D + channels), mask=inside, other=0.0)
                    logits = product(T_tiles[k], values, logits, PRECISION)
                logits += bias_logits[:, None]
                weight = tl.exp(logits - tl.max(logits, 0)[None, :])
                weight = weight * fast_reciprocal(tl.sum(weight, 0))[None, :]
                weight = tl.where(real[None, :], weight, 0.0)
                mass += weight  # summed over the rows at the end: a sum in each step would need barriers
                sums = ()
                for k in tl.static_range(DP // KB):
                    columns = k * KB + d[None, :]
                    inside = real[:, None] & (columns < D)
                    values = tl.load(x_of + (rows[:, None] * D + columns), mask=inside, other=0.0)
                    sums += (product(weight, values, total[k], PRECISION),)
                total = sums
                if STORE != 0:
                    stored = real[None, :] & (j < J)[:, None]
                    tl.store(c_of + rows[None, :] * J + j[:, None], weight, mask=stored)
            offset = (part * L + r) * J * B + b
            G_of = G + offset * D + (j * B)[:, None] * D
            for k in tl.static_range(DP // KB):
                wide = (j < J)[:, None] & (k * KB + d < D)[None, :]
                tl.store(G_of + (k * KB + d)[None, :], total[k], mask=wide)
            tl.store(m + offset + j * B, tl.sum(mass, 1), mask=j < J)
    else:
        # Rows behind the last graph are padding: their assignments are 0.
        tail = tl.load(ptr + r * (B + 1) + B).to(tl.int32) + part * ROWS
        for first in range(tail, V, tl.num_programs(2) * ROWS):
            rows = first + tl.arange(0, ROWS)
            inside = (rows < V)[:, None] & (j < J)[None, :]
            tl.store(
                c + (r * V + rows)[:, None] * J + j[None, :], tl.zeros((ROWS, JP), tl.float32), mask=inside
            )


@triton.jit(do_not_specialize=["V", "B", "J", "SIZE", "ROWS_PER_CHUNK"])
def _input_gradient_kernel(  # type: ignore[no-untyped-def]
    c, dG, ptr, ds, shift, dh, dres, V, B, J, SIZE, ROWS_PER_CHUNK, D, E,
    JP: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, ROWS: tl.constexpr, RESIDUAL: tl.constexpr,
    SHIFT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    d = tl.arange(0, DP)
    if b < B:
        if RESIDUAL:  # noqa: SIM102 (a constant, and an argument)
            if part == 0:  # the sum over the output capsules
                e = tl.arange(0, EP)
                each = tl.load(
                    ds + (r * J * B + b) * E + (j * B)[:, None] * E + e[None, :],
                    mask=(j < J)[:, None] & (e < E)[None, :],
                    other=0.0,
                )
                tl.store(dres + (r * B + b) * E + e, tl.sum(each, 0), mask=e < E)
        start, end = chunk_bounds(ptr, B, r, b, part, SIZE, ROWS_PER_CHUNK)
        if start < end:
            wide = (j < J)[:, None] & (d < D)[None, :]
            grad_G = tl.load(
                dG + (r * J * B + b) * D + (j * B)[:, None] * D + d[None, :], mask=wide, other=0.0
            )
            c_of = c + (r * V + start) * J
            dh_of = dh + (r * V + start) * D
            common = tl.zeros([DP], tl.float32)
            if SHIFT:
                common = tl.load(shift + (r * B + b) * D + d, mask=d < D, other=0.0)
            for first in range(0, end - start, ROWS):
                rows = first + tl.arange(0, ROWS)
                real = rows < end - start
                weight = tl.load(
                    c_of + rows[:, None] * J + j[None, :], mask=real[:, None] & (j < J)[None, :], other=0.0
                )
                dh_tile = product(weight, grad_G, tl.zeros((ROWS, DP), tl.float32), PRECISION)
                if SHIFT:
                    dh_tile += common[None, :]
                inside = real[:, None] & (d < D)[None, :]
                tl.store(dh_of + rows[:, None] * D + d[None, :], dh_tile, mask=inside)
    else:
        tail = tl.load(ptr + r * (B + 1) + B).to(tl.int32) + part * ROWS
        for first in range(tail, V, tl.num_programs(2) * ROWS):
            rows = first + tl.arange(0, ROWS)
            inside = (rows < V)[:, None] & (d < D)[None, :]
            tl.store(
                dh + (r * V + rows)[:, None] * D + d[None, :], tl.zeros((ROWS, DP), tl.float32), mask=inside
            )


def sum_rows(h: Tensor, rows: Rows) -> Tensor:
    """The sum of the input capsules ``h [L, V, d]`` of each graph, ``[L, B, d]``: J times G of the first iteration."""
    if rows.fixed:
        return h.reshape(rows.L, rows.B, rows.size, -1).sum(-2)
    return ragged_sum(h, rows.ptr, rows.size)


def assign_and_sum(
    h: Tensor,
    T: Tensor,
    tau: Tensor,
    rows: Rows,
    store: bool,
    precision: str,
    out: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None),
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""One pass over h: c = softmax over j of h·T + τ, then G = Σ c h and m = Σ c.

    Args:
        h (Tensor): Input capsules, ``[L, V, d]``, d at most 128; in half precision, T and c are rounded to it too.
        T (Tensor): ``[L, J, B, d]``, J at most 128.
        tau (Tensor): ``[L, J, B]``.
        rows (Rows): Which row belongs to which graph.
        store (bool): Whether c is stored.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.
        out (tuple): Tensors that G, m and c are written to, ``None`` for new ones. (default: all are new)

    Returns:
        tuple: G ``[S, L, J, B, d]`` and m ``[S, L, J, B]``, per chunk; c ``[L, V, J]`` or ``None``.
    """
    L, J, B, D = T.shape
    G, m, c = out
    G = T.new_empty(rows.parts, L, J, B, D) if G is None else G
    m = T.new_empty(rows.parts, L, J, B) if m is None else m
    c = T.new_empty(L, rows.V, J) if store and c is None else c
    # One more program per replica and chunk writes the padding rows of c.
    extra = int(store and not rows.fixed)
    _assign_kernel[(B + extra, L, rows.parts)](
        h, rows.ptr, T, tau, G, m, G if c is None else c,
        rows.V, B, L, J, rows.fixed_size, rows_per_chunk(rows.parts, rows.V), int(store), D,
        PRECISION=precision, num_stages=_STAGES[rows.size > _LARGE], **_assign_options(J, D, rows.height, precision),
    )  # fmt: skip
    return G, m, c


def input_gradient(
    c: Tensor,
    dG: Tensor,
    rows: Rows,
    precision: str,
    ds: Tensor | None = None,
    shift: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    r"""dh\ :sub:`i` = Σ\ :sub:`j` c\ :sub:`ij` dG\ :sub:`j`, c being a constant; padding rows are 0.

    Args:
        c (Tensor): ``[L, V, J]``.
        dG (Tensor): ``[L, J, B, d]``.
        rows (Rows): Which row belongs to which graph.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.
        ds (Tensor, optional): Gradient of s, ``[L, J, B, d']``, to be summed over the output capsules too, for the
            gradient of a residual.
        shift (Tensor, optional): Added to all rows of a graph, ``[L, B, d]``.

    Returns:
        tuple: dh ``[L, V, d]``, and the sum of ds ``[L, B, d']`` or ``None``.
    """
    L, J, B, D = dG.shape
    E = 1 if ds is None else ds.size(-1)
    dh = torch.empty(L, rows.V, D, dtype=dG.dtype, device=dG.device)
    dres = None if ds is None else ds.new_empty(L, B, E)
    # One more program per replica and chunk writes the padding rows.
    _input_gradient_kernel[(B + int(not rows.fixed), L, rows.parts)](
        c, dG, rows.ptr, dG if ds is None else ds, dG if shift is None else shift, dh, dh if dres is None else dres,
        rows.V, B, J, rows.fixed_size, rows_per_chunk(rows.parts, rows.V), D, E,
        JP=tile_width(J), DP=tile_width(D), EP=tile_width(E), ROWS=rows.height, RESIDUAL=ds is not None,
        SHIFT=shift is not None, PRECISION=precision, num_warps=4, num_stages=2,
    )  # fmt: skip
    return dh, dres


def tile_options(J: int, D: int, height: int, precision: str) -> dict[str, int]:
    """Tile sizes, warps and register limit of a pass over the rows.

    Graphs are small, so throughput depends on the number of programs that run at a time: programs are small, and the
    register limit lets one more fit without spilling. Widths that are not a multiple of 16 are read one number at a
    time and need more registers.
    """
    JP, DP = tile_width(J), tile_width(D)
    options = {"JP": JP, "DP": DP, "KB": min(DP, 64), "ROWS": height if JP == 16 else 32, "num_warps": 4}
    few = (JP == 16 and height == 16) or DP <= 32
    if few:
        options["num_warps"] = 2
    limits = {"tf32": 128} if few else {"tf32": 96, "tf32x3": 168} if JP == 16 else {}
    if D % 16 == 0 and precision in limits:
        options["maxnreg"] = limits[precision]
    return options


def _assign_options(J: int, D: int, height: int, precision: str) -> dict[str, int]:
    """As :func:`tile_options`, with registers for the addresses of rows that are loaded ahead."""
    options = tile_options(J, D, height, precision)
    if D % 16:
        if options["JP"] > 16:
            options["ROWS"] = 16
    elif "maxnreg" in options and options["num_warps"] == 2:
        options["maxnreg"] = 144
    elif precision == "bfloat16" and options["JP"] == 16 and options["num_warps"] == 4:
        options["maxnreg"] = 96
    return options
