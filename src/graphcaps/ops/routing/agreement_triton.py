r"""T and τ of the next iteration with one product per output capsule, by the Gram matrix of its weight.

An iteration that is not the last uses its output capsules for T and τ alone. With :math:`K_j = W_j W_j^\top`,
:math:`k_j = W_j e_j` and the factor f of squash, :math:`u_j = f(|s_j|^2)\, s_j`,

.. math::
    |s_j|^2 &= G_j \cdot K_j G_j + m_j (2\, k_j \cdot G_j + m_j |e_j|^2) \\
    T_j &\leftarrow T_j + f\, (K_j G_j + m_j k_j), \quad
    \tau_j \leftarrow \tau_j + f\, (k_j \cdot G_j + m_j |e_j|^2)

so that neither s nor u is needed: one product in place of two that wait for each other, and half as much of the
weights is read. K is computed once for all iterations, which pays off if there are many graphs for each output capsule
(:data:`GRAM_FROM`). It is symmetric, so that it is an operand of the warp-group instruction (wgmma) as it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import product
from graphcaps.ops.ragged.ragged_triton import CHUNK
from graphcaps.ops.routing.capsule_update_triton import add_chunks, graph_sizes, squash_factor
from graphcaps.ops.routing.weighted_sum_triton import Rows, padded

__all__ = ["GRAM_FROM", "agree", "gram_matrices"]

GRAM_FROM = 128
"""Number of graphs of a batch from which the Gram matrices are used, for routing of nodes: above the nodes there are
too few output capsules to gain from it."""


@dataclass(frozen=True)
class AgreementTiles:
    """How programs divide the graphs of an output capsule; what is best depends on the GPU.

    Args:
        graphs (int): Graphs of a program. With 64 and four or more warps, wgmma is used.
        step (int): Rows of the Gram matrix in a step of the product.
        warps (int): Warps of a program.
        stages (int): One more than the number of steps that are loaded ahead.
        registers (int): Limit of registers of a thread, so that 65536 / (32 · warps · registers) programs fit.
    """

    graphs: int = 64
    step: int = 32
    warps: int = 8
    stages: int = 3
    registers: int = 128

    def options(self, D: int, precision: str) -> dict[str, int]:
        """Launch options for capsules of width d; tf32x3 holds each operand twice, and so has smaller tiles."""
        split, aligned = precision == "tf32x3", D % 16 == 0
        options = {
            "BB": self.graphs // 2 if split else self.graphs,
            "KB": min(max(16, self.step // 2) if split else self.step, padded(D)),
            **{"DP": padded(D), "num_warps": self.warps, "num_stages": self.stages},
        }
        return options | {"maxnreg": self.registers} if aligned else options


TILES = AgreementTiles()


class Gram(NamedTuple):
    """K ``[L, J, d, d]``, k ``[L, J, d]`` and |e|² ``[L, J]`` of each output capsule."""

    matrices: Tensor
    lifts: Tensor
    squares: Tensor


def gram_matrices(weight: Tensor, bias: Tensor, precision: str) -> Gram:
    """The Gram matrices of the weights ``[L, J, d, d']`` and of the biases ``[L, J, d']``."""
    L, J, D, E = weight.shape
    gram = Gram(weight.new_empty(L, J, D, D), weight.new_empty(L, J, D), weight.new_empty(L, J))
    rows = min(64, padded(D))
    split = precision == "tf32x3"
    _gram_kernel[(triton.cdiv(D, rows), L * J)](
        weight, bias, *gram, D, E, ROWS=rows, DP=padded(D), EP=padded(E), KB=min(32, padded(E)),
        PRECISION=precision, num_warps=8 if split else 4, num_stages=2 if split else 3,
    )  # fmt: skip
    return gram


def agree(
    G: Tensor,
    m: Tensor | None,
    gram: Gram,
    T: Tensor | None,
    tau: Tensor | None,
    rows: Rows,
    epsilon: float,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """As :func:`graphcaps.ops.routing.capsule_update_triton.update_agreement`, from the Gram matrices."""
    L, J, D, _ = gram.matrices.shape
    B, options = rows.B, TILES.options(D, precision)
    T_out, tau_out = G.new_empty(L, J, B, D), G.new_empty(L, J, B)
    cut = m is not None and rows.parts > 1
    joined = G.new_empty(L, J, B, D) if cut else G  # written for graphs of several chunks only
    _agreement_kernel[(triton.cdiv(B, options["BB"]), J, L)](
        G, G if m is None else m, rows.ptr, *gram, G if T is None else T, G if tau is None else tau, joined, T_out,
        tau_out, B, L, J, rows.parts if cut else 1, rows.fixed_size, CHUNK, D, epsilon, int(m is None),
        int(T is not None), CUT=rows.parts > 1, PRECISION=precision, **options,
    )  # fmt: skip
    return T_out, tau_out


@triton.jit
def _gram_kernel(  # type: ignore[no-untyped-def]
    W, bias, matrices, lifts, squares, D, E,
    ROWS: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, KB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of rows of K and k of an output capsule, and |e|²."""
    capsule = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, DP)
    weights = W + capsule * D * E
    total = tl.zeros((ROWS, DP), tl.float32)
    for first in range(0, E, KB):
        k = first + tl.arange(0, KB)
        left = tl.load(
            weights + rows[:, None] * E + k[None, :], mask=(rows < D)[:, None] & (k < E)[None, :], other=0.0
        )
        right = tl.load(
            weights + d[:, None] * E + k[None, :], mask=(d < D)[:, None] & (k < E)[None, :], other=0.0
        )
        total = product(left, tl.trans(right), total, PRECISION)
    tl.store(
        matrices + capsule * D * D + rows[:, None] * D + d[None, :],
        total,
        mask=(rows < D)[:, None] & (d < D)[None, :],
    )
    e = tl.arange(0, EP)
    shift = tl.load(bias + capsule * E + e, mask=e < E, other=0.0)
    own = tl.load(
        weights + rows[:, None] * E + e[None, :], mask=(rows < D)[:, None] & (e < E)[None, :], other=0.0
    )
    tl.store(lifts + capsule * D + rows, tl.sum(own * shift[None, :], 1), mask=rows < D)
    if tl.program_id(0) == 0:
        tl.store(squares + capsule, tl.sum(shift * shift, 0))


# Flags are arguments, not constants, so that all iterations share one compiled kernel.
@triton.jit(do_not_specialize=["B", "L", "J", "S", "SIZE", "CHUNK", "FIRST", "ADD"])
def _agreement_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, matrices, lifts, squares, T, tau, joined, T_out, tau_out,
    B, L, J, S, SIZE, CHUNK, D, epsilon, FIRST, ADD,
    BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, CUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile of graphs of an output capsule."""
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    capsule = r * J + j
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    inside = b < B
    # First iteration: c = 1/J, and one sum for all output capsules.
    source = G + tl.where(FIRST != 0, r, capsule) * B * D
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)
    # All that is read once per graph is read first, not when it is needed.
    size = graph_sizes(ptr, B, r, b, inside, SIZE)
    mass = tl.load(m + capsule * B + b, mask=inside & (FIRST == 0), other=0.0)
    past = tl.load(tau + capsule * B + b, mask=inside & (ADD != 0), other=0.0)
    square = tl.load(squares + capsule)
    if CUT:
        chunks = tl.minimum(S, tl.cdiv(tl.max(size, 0), CHUNK))
        stride = L.to(tl.int64) * J * B
        own = joined + capsule * B * D
        if chunks > 1:  # rare: most programs read the sums where they are
            add_chunks(
                own, source, source, size, stride * D, tl.program_id(0) * BB, B, D, chunks, CHUNK, 0, BB, DP
            )
        tl.debug_barrier()  # the product reads what was just stored
        source = tl.where(chunks > 1, own, source)
        for chunk in range(1, chunks):
            also = inside & (size > chunk * CHUNK)
            mass += tl.load(m + chunk * stride + capsule * B + b, mask=also, other=0.0)
    mass = tl.where(FIRST != 0, size.to(tl.float32), mass) * share
    d = tl.arange(0, DP)
    wide = d < D
    matrix = matrices + capsule * D * D
    z = tl.zeros((BB, DP), tl.float32)
    for first in range(0, D, KB):
        k = first + tl.arange(0, KB)
        left = tl.load(
            source + b[:, None] * D + k[None, :], mask=inside[:, None] & (k < D)[None, :], other=0.0
        )
        # Columns of a symmetric matrix are read as its rows.
        right = tl.load(
            matrix + d[:, None] * D + k[None, :], mask=wide[:, None] & (k < D)[None, :], other=0.0
        )
        z = product(left, tl.trans(right), z, PRECISION)
    here = inside[:, None] & wide[None, :]
    offsets = b[:, None] * D + d[None, :]
    lift = tl.load(lifts + capsule * D + d, mask=wide, other=0.0)
    g = tl.load(source + offsets, mask=here, other=0.0) * share
    z *= share
    along = tl.sum(g * lift[None, :], 1)
    agreement = along + mass * square
    squared = tl.sum(g * z, 1) + mass * (along + agreement)
    # Not below 0 by rounding; NaN stays.
    f, _ = squash_factor(tl.where(squared < 0, 0.0, squared), epsilon)
    before = tl.load(T + capsule * B * D + offsets, mask=here & (ADD != 0), other=0.0)
    change = f[:, None] * (z + mass[:, None] * lift[None, :])
    tl.store(T_out + capsule * B * D + offsets, before + change, mask=here)
    tl.store(tau_out + capsule * B + b, past + f * agreement, mask=inside)
