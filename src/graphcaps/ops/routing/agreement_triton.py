r"""The agreement after an iteration of routing, from a product of each weight with its own transpose.

All iterations but the last turn the sums G and m into the next T and τ. With :math:`M_j = W_j W_j^\top` and
:math:`w_j = W_j e_j`, which do not depend on the graphs, that takes one product per graph and output capsule, not two,
and no output capsule is formed:

.. math::
    y_j &= M_j G_j + m_j w_j, \quad
    |s_j|^2 = G_j \cdot y_j + m_j\, G_j \cdot w_j + m_j^2 |e_j|^2 \\
    T_j &\leftarrow T_j + f(|s_j|^2)\, y_j, \quad
    \tau_j \leftarrow \tau_j + f(|s_j|^2) (G_j \cdot w_j + m_j |e_j|^2)

with f of squash(s) = f(\|s\|²) s. It equals the iteration of :mod:`graphcaps.ops.routing.factored`, because
:math:`s = W^\top G + m e` and :math:`W s = y`. The matrices are symmetric, so that products read them along the axis
that the warp-group instruction (wgmma) needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import tile_width
from graphcaps.ops._triton.row_products import times_rows
from graphcaps.ops.ragged.ragged_triton import CHUNK
from graphcaps.ops.routing.capsule_update_triton import add_chunks, graph_sizes, squash_factor
from graphcaps.ops.routing.weighted_sum_triton import Rows

__all__ = ["Agreement", "AgreementTiles", "agreement_matrices", "update_agreement"]


class Agreement(NamedTuple):
    """What the agreement depends on besides the graphs.

    Args:
        matrix (Tensor): M = W Wᵀ, ``[L, J, d, d]``.
        vector (Tensor): w = W e, ``[L, J, d]``.
        square (Tensor): e·e, ``[L, J]``.
    """

    matrix: Tensor
    vector: Tensor
    square: Tensor


@dataclass(frozen=True)
class AgreementTiles:
    """How programs divide the rows of a product with a matrix ``[d, d]``: graphs, or the rows of W itself.

    What is best depends on the GPU; ``dataclasses.replace`` makes another one to compare.

    Args:
        rows (int): Rows of a program. With 64 and four or more warps, wgmma is used.
        step (int): Columns of the rows in a step of the product.
        stages (int): One more than the number of steps that are loaded ahead.
        warps (int): Warps of a program with so many rows.
        few_rows (int): Rows of a program if there are no more, or with tf32x3, which holds each operand twice.
        few_warps (int): Warps of such a program.
        registers (int, optional): Limit of registers of a thread, so that 65536 / (32 · warps · registers) programs of
            ``rows`` rows fit.
    """

    rows: int = 64
    step: int = 32
    stages: int = 4
    warps: int = 4
    few_rows: int = 16
    few_warps: int = 4
    registers: int | None = None

    def options(self, count: int, D: int, precision: str) -> dict[str, int]:
        """Launch options for ``count`` rows of width d; widths that are no multiple of 16 need more registers."""
        aligned, split = D % 16 == 0, precision == "tf32x3"
        few = count <= 2 * self.few_rows or split or not aligned
        width = tile_width(D)
        stages = self.stages if aligned and not split else 2
        return {
            **{"RB": self.few_rows if few else self.rows, "KB": min(self.step, width), "DP": width},
            **{"STAGES": stages, "num_warps": self.few_warps if few else self.warps},
            **({"maxnreg": self.registers} if self.registers is not None and not few else {}),
        }


MATRIX_TILES = AgreementTiles()
"""Of the product of a weight with its transpose."""
UPDATE_TILES = AgreementTiles(warps=8, registers=128)
"""Of the product of the sums of graphs with that matrix."""


@triton.jit(do_not_specialize=["J"])
def _matrix_kernel(  # type: ignore[no-untyped-def]
    W, bias, matrix, vector, square, J, D, E,
    RB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows of M and w (program 0) of an output capsule (1) of a replica (2)."""
    capsule = tl.program_id(2).to(tl.int64) * J + tl.program_id(1)
    weights = W + capsule * D * E
    base = tl.program_id(0) * RB
    row, n, e = base + tl.arange(0, RB), tl.arange(0, DP), tl.arange(0, EP)
    lift = tl.load(bias + capsule * E + e, mask=e < E, other=0.0)
    total = times_rows(weights, row * E, row < D, weights, D, E, KB, DP, STAGES, True, PRECISION)
    inside = (row < D)[:, None] & (n < D)[None, :]
    tl.store(matrix + capsule * D * D + row[:, None] * D + n[None, :], total, mask=inside)
    # Read again: only products use what the loop reads, so that its layout in shared memory is that of an operand.
    inside = (row < D)[:, None] & (e < E)[None, :]
    rows = tl.load(weights + row[:, None] * E + e[None, :], mask=inside, other=0.0)
    tl.store(vector + capsule * D + row, tl.sum(rows * lift[None, :], 1), mask=row < D)
    if tl.program_id(0) == 0:
        tl.store(square + capsule, tl.sum(lift * lift, 0))


# Flags are arguments, not constants, so that all iterations share one compiled kernel.
@triton.jit(do_not_specialize=["B", "L", "J", "S", "SIZE", "CHUNK", "FIRST", "ADD"])
def _update_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, matrix, vector, square, T, tau, T_out, tau_out, joined, B, L, J, S, SIZE, CHUNK, D, epsilon, FIRST, ADD,
    RB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, STAGES: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """T and τ of RB graphs (program 0) and an output capsule (1) of a replica (2)."""
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * RB
    b, d = base + tl.arange(0, RB), tl.arange(0, DP)
    inside = b < B
    here = inside[:, None] & (d < D)[None, :]
    offsets = b[:, None] * D + d[None, :]
    capsule = r * J + j
    # First iteration: c = 1/J, and one sum for all output capsules.
    source = G + tl.where(FIRST != 0, r, capsule) * B * D
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)
    # All that is read once per graph is read first, not when it is needed.
    lift = tl.load(vector + capsule * D + d, mask=d < D, other=0.0)
    square_of = tl.load(square + capsule)
    size = graph_sizes(ptr, B, r, b, inside, SIZE)
    mass = tl.load(m + capsule * B + b, mask=inside & (FIRST == 0), other=0.0)
    before = tl.load(tau + capsule * B + b, mask=inside & (ADD != 0), other=0.0)
    if CUT:
        chunks = tl.minimum(S, tl.cdiv(tl.max(size, 0), CHUNK))
        stride = L.to(tl.int64) * J * B
        for chunk in range(1, chunks):
            also = inside & (size > chunk * CHUNK)
            mass += tl.load(m + chunk * stride + capsule * B + b, mask=also, other=0.0)
        # Graphs of several chunks are rare: most programs read the sums where they are.
        together = joined + capsule * B * D
        if chunks > 1:
            add_chunks(together, source, source, size, stride * D, base, B, D, chunks, CHUNK, 0, RB, DP)
        tl.debug_barrier()  # the product reads what was just stored
        source = tl.where(chunks > 1, together, source)
    mass = share * tl.where(FIRST != 0, size.to(tl.float32), mass)
    matrix += capsule * D * D  # symmetric
    T_out += capsule * B * D
    y = times_rows(source, b * D, inside, matrix, D, D, KB, DP, STAGES, True, PRECISION)
    # Through global memory, so that the tiles that follow do not have the layout of a product, in which they are read
    # in small pieces and a sum over a row needs barriers.
    tl.store(T_out + offsets, y, mask=here)
    tl.debug_barrier()
    past = tl.load(T + capsule * B * D + offsets, mask=here & (ADD != 0), other=0.0)
    sums = share * tl.load(source + offsets, mask=here, other=0.0)
    y = share * tl.load(T_out + offsets, mask=here, other=0.0) + mass[:, None] * lift[None, :]
    along = tl.sum(sums * lift[None, :], 1)
    squared = tl.sum(sums * y, 1) + mass * (along + mass * square_of)
    squared = tl.where(squared < 0, 0.0, squared)  # by rounding; NaN stays
    f, _ = squash_factor(squared, epsilon)
    tl.store(T_out + offsets, past + f[:, None] * y, mask=here)
    tl.store(tau_out + capsule * B + b, before + f * (along + mass * square_of), mask=inside)


def agreement_matrices(weight: Tensor, bias: Tensor, precision: str) -> Agreement:
    """M, w and e·e of weights ``[L, J, d, d']`` and biases ``[L, J, d']``, both contiguous.

    Args:
        weight, bias (Tensor): W and e.
        precision (str): Of the product, as in :func:`graphcaps.ops._triton.precision.dot_precision`.
    """
    L, J, D, E = weight.shape
    matrix, vector = weight.new_empty(L, J, D, D), weight.new_empty(L, J, D)
    square = weight.new_empty(L, J)
    options = MATRIX_TILES.options(D, D if E % 16 == 0 else E, precision)
    options["DP"] = tile_width(D)
    _matrix_kernel[(triton.cdiv(D, options["RB"]), J, L)](
        weight, bias, matrix, vector, square, J, D, E,
        EP=tile_width(E), PRECISION=precision, **options,
    )  # fmt: skip
    return Agreement(matrix, vector, square)


def update_agreement(
    G: Tensor,
    m: Tensor | None,
    agreement: Agreement,
    T: Tensor | None,
    tau: Tensor | None,
    rows: Rows,
    epsilon: float,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """The end of an iteration that is not the last: T + W u and τ + e·u with u = squash(WᵀG + m e).

    Args:
        G (Tensor): ``[S, L, J, B, d]``, or in the first iteration, where c = 1/J, the sum of all
            input capsules ``[L, B, d]``.
        m (Tensor, optional): ``[S, L, J, B]``; ``None`` in the first iteration.
        agreement (Agreement): Of weights and biases.
        T (Tensor, optional): ``[L, J, B, d]``; ``None`` stands for 0.
        tau (Tensor, optional): ``[L, J, B]``; ``None`` stands for 0.
        rows (Rows): Which row belongs to which graph.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.

    Returns:
        tuple: The new T and τ.
    """
    L, J, D = agreement.vector.shape
    B, parts = rows.B, 1 if m is None else rows.parts
    T_out, tau_out = G.new_empty(L, J, B, D), G.new_empty(L, J, B)
    joined = G.new_empty(L, J, B, D) if parts > 1 else G  # written for graphs of several chunks only
    options = UPDATE_TILES.options(B, D, precision)
    unused = T_out  # must be a valid pointer
    _update_kernel[(triton.cdiv(B, options["RB"]), J, L)](
        G, unused if m is None else m, rows.ptr, *agreement, unused if T is None else T,
        unused if tau is None else tau, T_out, tau_out, joined,
        B, L, J, parts, rows.fixed_size, CHUNK, D, epsilon, int(m is None), int(T is not None),
        CUT=parts > 1, PRECISION=precision, **options,
    )  # fmt: skip
    return T_out, tau_out
