r"""The steps of routing between two passes over the rows, and their gradients.

After the last pass the sums G and m become output capsules. So they do in all other iterations, if these have a
gradient, and then the next T and τ (without one, see :mod:`graphcaps.ops.routing.agreement_triton`):

.. math::
    s_j &= W_j^\top G_j + m_j e_j, \quad u_j = \mathrm{squash}(s_j) \\
    T_j &\leftarrow T_j + W_j u_j, \quad \tau_j \leftarrow \tau_j + e_j \cdot u_j

One program per output capsule, replica and one or more tiles of graphs, which share the weight of the capsule that it
reads; u stays in shared memory between the two products. A program is a chain of reads that wait for each other, so
these are few: what is read once is read first, and blocks of the weight are loaded ahead. The gradient of the last
iteration needs two kernels: one for s and G, and one for the weight and the bias, which sums over the graphs in order.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment"

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import product, tile_width
from graphcaps.ops.ragged.ragged_triton import CHUNK
from graphcaps.ops.routing.weighted_sum_triton import Rows

__all__ = [
    "UpdateTiles",
    "WeightTiles",
    "add_chunks",
    "capsule_gradients",
    "final_capsules",
    "graph_sizes",
    "launch_update",
    "outer_products",
    "parameter_gradients",
    "size_products",
    "squash_factor",
    "statistics_tables",
    "times_transposed",
    "times_weights",
    "weight_programs",
]

_POINTERS = (
    "residual",
    "T",
    "tau",
    "T_out",
    "tau_out",
    "G_out",
    "m_out",
    "s_out",
    "u_out",
    "means",
    "squares",
    "counts",
)
_FLAGS = ("T", "m_out", "s_out", "residual")  # ADD, JOIN, KEEP, RESIDUAL


@dataclass(frozen=True)
class WeightTiles:
    """How programs divide the gradient of a weight ``[d, d']``, which is a sum over graphs.

    What is best depends on the GPU; ``dataclasses.replace`` makes another one to compare.

    Args:
        groups (int): Tiles of a program, below each other: they share what is read for their columns.
        registers (int): Limit of registers of a thread, so that 65536 / (32 · warps · registers) programs fit.
        rows (int): Rows of a tile. With 64 and four or more warps, wgmma is used, as in :class:`UpdateTiles`.
        columns (int): Columns of a tile.
        step (int): Graphs of a step. They are loaded ahead of their product.
        stages (int): One more than the number of steps that are loaded ahead.
        warps (int): Warps of a program.
    """

    groups: int
    registers: int
    rows: int = 32
    columns: int = 128
    step: int = 32
    stages: int = 3
    warps: int = 4

    def options(self, D: int, E: int, precision: str) -> dict[str, int]:
        """Launch options for widths d and d': tiles no larger than needed, and two programs or more for a large weight.

        tf32x3 holds each operand twice, and widths that are not a multiple of 16 are read one number at a time: both
        need registers, and so have smaller tiles or steps.
        """
        aligned = (D | E) % 16 == 0
        DB = min(self.rows, tile_width(D))
        EB = min(self.columns if aligned else self.columns // 2, tile_width(E))
        groups, step, stages = min(self.groups, triton.cdiv(D, 2 * DB)), self.step, self.stages
        if precision == "tf32x3":
            step, stages = max(16, step // 2), 2 * stages - 1
        options = {
            "GROUPS": groups if aligned and precision != "tf32x3" else 1,
            **{"DB": DB, "EB": EB, "KB": step, "STAGES": stages},
            **{"num_warps": self.warps, "num_stages": stages},
        }
        limit = max(self.registers, 168) if precision == "tf32x3" else self.registers
        return options | {"maxnreg": limit} if aligned else options


WEIGHT_TILES = WeightTiles(groups=2, columns=64, registers=128)
"""Of the gradient of the last iteration."""


@dataclass(frozen=True)
class UpdateTiles:
    """How programs divide the B graphs of an output capsule, whose weight ``[d, d']`` all of them read.

    What is best depends on the GPU; ``dataclasses.replace`` makes another one to compare.

    Args:
        groups (int): Tiles of graphs of a program, which share each block of weights, if d or d' is above 64. With
            tf32x3 there is one: it holds each operand twice.
        graphs (int): Graphs of a tile. With 64, another instruction (wgmma) would be used, which needs transposed
            weights.
        step (int): Rows of the weight in a step of the product x W.
        columns (int): Rows of the weight, and columns of the result, in a step of the product x Wᵀ.
        stages (int): One more than the number of steps that are loaded ahead.
        warps (int): Warps of a program with several tiles.
        warps_single (int): Warps of a program with a single tile.
        registers (int): Limit of registers of a thread, so that 65536 / (32 · warps · registers) programs fit.
        programs (int): With fewer programs than this (a GPU has 132 multiprocessors), each has a single tile, and if
            they are still fewer, one of 16 graphs.
    """

    groups: int = 1
    graphs: int = 32
    step: int = 32
    columns: int = 16
    stages: int = 3
    warps: int = 8
    warps_single: int = 4
    registers: int = 128
    programs: int = 132

    def options(self, B: int, capsules: int, D: int, E: int, precision: str) -> dict[str, int]:
        """Launch options for B graphs and a number of output capsules of all replicas, of widths d and d'.

        Widths that are not a multiple of 16 are read one number at a time: with many threads and few steps ahead, their
        addresses fit into registers. bf16 needs registers to convert operands.
        """
        DP, EP = (tile_width(width) for width in (D, E))
        large, aligned, split = max(DP, EP) >= 128, (D | E) % 16 == 0, precision == "tf32x3"
        groups = self.groups if large and aligned and not split else 1
        BB = 16 if B <= 16 else self.graphs
        if capsules * triton.cdiv(B, groups * BB) < self.programs:
            groups = 1
        if capsules * triton.cdiv(B, groups * BB) < self.programs:
            BB = 16
        options = {
            **{"GROUPS": groups, "BB": BB, "DP": DP, "EP": EP},
            "KB": min(max(16, self.step // 2) if split else self.step, DP),
            "NB": min(self.columns, DP),
            "STAGES": min(self.stages, 2 if not aligned else 3 if precision == "bfloat16" else self.stages),
            "num_warps": 8 if not aligned else self.warps if groups > 1 else self.warps_single,
        }
        if aligned:
            options["maxnreg"] = max(self.registers, 168) if split or not large else self.registers
        return options

    def grid(self, B: int, J: int, L: int, options: dict[str, int]) -> tuple[int, int, int]:
        """Programs of B graphs, J output capsules and L replicas."""
        return triton.cdiv(B, options["GROUPS"] * options["BB"]), J, L


FORWARD_TILES = UpdateTiles()
"""Of the output capsules and the agreement."""
BACKWARD_TILES = UpdateTiles()
"""Of the gradient of the last iteration."""


@triton.jit
def graph_sizes(ptr, B, r, b, inside, SIZE):  # type: ignore[no-untyped-def]
    """Rows of the graphs ``b``, 0 outside: ``SIZE``, or as ``ptr`` states if that is 0."""
    ragged = inside & (SIZE == 0)
    start = tl.load(ptr + r * (B + 1) + b, mask=ragged, other=0)
    size = (tl.load(ptr + r * (B + 1) + b + 1, mask=ragged, other=0) - start).to(tl.int32)
    return tl.where(ragged, size, tl.where(inside, SIZE, 0))


@triton.jit
def squash_factor(q, epsilon):  # type: ignore[no-untyped-def]
    """f of squash(s) = f(q) s with q = |s|², and its derivative; both 0 if q + epsilon is 0."""
    inner = q + epsilon
    some = inner > 0
    safe = tl.where(some, inner, 1.0)
    root = tl.where(some, 1 / ((1 + q) * tl.sqrt(safe)), 0.0)
    return q * root, root * (1 / (1 + q) - 0.5 * (q / safe))


@triton.jit
def add_chunks(  # type: ignore[no-untyped-def]
    out, sums, past, size, stride, base, B, D, S, CHUNK, ADD, BB: tl.constexpr, DP: tl.constexpr
):
    """Stores the sums of S chunks, ``stride`` numbers apart, of BB graphs, added in order, plus ``past`` if ``ADD``."""
    b, d = base + tl.arange(0, BB), tl.arange(0, DP)
    here = (b < B)[:, None] & (d < D)[None, :]
    offsets = b[:, None] * D + d[None, :]
    total = tl.load(sums + offsets, mask=here, other=0.0)
    before = tl.load(past + offsets, mask=here & (ADD != 0), other=0.0)
    for chunk in range(1, S):
        also = here & (size > chunk * CHUNK)[:, None]
        total += tl.load(sums + chunk * stride + offsets, mask=also, other=0.0)
    tl.store(out + offsets, total + before, mask=here)


@triton.jit
def times_weights(  # type: ignore[no-untyped-def]
    x, weights, base, B, D, E,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, EP: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """x W of the graphs from ``base`` on, as ``GROUPS`` tiles ``[BB, EP]``.

    Only products use what is loaded here, so that its layout in shared memory is that of an operand.
    """
    e = tl.arange(0, EP)
    total = ()
    for _ in tl.static_range(GROUPS):
        total += (tl.zeros((BB, EP), tl.float32),)
    for first in tl.range(0, D, KB, num_stages=STAGES):
        d = first + tl.arange(0, KB)
        deep = d < D
        w = tl.load(weights + d[:, None] * E + e[None, :], mask=deep[:, None] & (e < E)[None, :], other=0.0)
        sums = ()
        for i in tl.static_range(GROUPS):
            b = base + i * BB + tl.arange(0, BB)
            here = (b < B)[:, None] & deep[None, :]
            left = tl.load(x + b[:, None] * D + d[None, :], mask=here, other=0.0)
            sums += (product(left, w, total[i], PRECISION),)
        total = sums
    return total


@triton.jit
def times_transposed(  # type: ignore[no-untyped-def]
    u, weights, out, past, base, B, D, E, ADD,
    GROUPS: tl.constexpr, BB: tl.constexpr, NB: tl.constexpr, EP: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Stores u Wᵀ, with ``past`` added if ``ADD``, of the graphs from ``base`` on; u are ``GROUPS`` tiles ``[BB, EP]``.

    A step reads ``NB`` rows of W, which are columns of the result. u stays in shared memory.
    """
    e = tl.arange(0, EP)
    for first in tl.range(0, D, NB, num_stages=STAGES):
        d = first + tl.arange(0, NB)
        deep = d < D
        w = tl.load(weights + d[:, None] * E + e[None, :], mask=deep[:, None] & (e < E)[None, :], other=0.0)
        for i in tl.static_range(GROUPS):
            b = base + i * BB + tl.arange(0, BB)
            here = (b < B)[:, None] & deep[None, :]
            offsets = b[:, None] * D + d[None, :]
            before = tl.load(past + offsets, mask=here & (ADD != 0), other=0.0)
            total = product(u[i], tl.trans(w), tl.zeros((BB, NB), tl.float32), PRECISION)
            tl.store(out + offsets, before + total, mask=here)


# Flags are arguments, not constants, so that all iterations but the last and all widths up to EP share one compiled
# kernel.
@triton.jit(
    do_not_specialize=[
        "B", "L", "J", "S", "SIZE", "CHUNK", "FIRST", "ADD", "JOIN", "KEEP", "RESIDUAL",
    ]
)  # fmt: skip
def _forward_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, W, W_again, bias, residual, T, tau, T_out, tau_out, G_out, m_out, s_out, u_out, means, squares, counts,
    B, L, J, S, SIZE, CHUNK, D, E, epsilon, FIRST, ADD, JOIN, KEEP, RESIDUAL,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, NB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    STAGES: tl.constexpr, LAST: tl.constexpr, CUT: tl.constexpr, STATISTICS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * BB)
    e = tl.arange(0, EP)
    narrow = e < E
    capsule = r * J + j
    weights = W + capsule * D * E
    # First iteration: c = 1/J, and one sum for all output capsules.
    source = G + tl.where(FIRST != 0, r, capsule) * B * D
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)
    # All that is read once per graph is read first, not when it is needed.
    lift = tl.load(bias + capsule * E + e, mask=narrow, other=0.0)
    size = ()
    mass = ()
    before = ()
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        inside = b < B
        size += (graph_sizes(ptr, B, r, b, inside, SIZE),)
        mass += (tl.load(m + capsule * B + b, mask=inside & (FIRST == 0), other=0.0),)
        before += (tl.load(tau + capsule * B + b, mask=inside & (ADD != 0), other=0.0),)
    if CUT:
        largest = 0
        for i in tl.static_range(GROUPS):
            largest = tl.maximum(largest, tl.max(size[i], 0))
        chunks = tl.minimum(S, tl.cdiv(largest, CHUNK))
        stride = L.to(tl.int64) * J * B
        joined = G_out + capsule * B * D
        # Graphs of several chunks are rare: most programs read the sums where they are.
        several = (chunks > 1) | (JOIN != 0)
        if several:
            for i in tl.static_range(GROUPS):
                add_chunks(
                    joined, source, source, size[i], stride * D, base + i * BB, B, D, chunks, CHUNK, 0, BB, DP
                )
        tl.debug_barrier()  # the product reads what was just stored
        source = tl.where(several, joined, source)
    s = times_weights(source, weights, base, B, D, E, GROUPS, BB, KB, EP, STAGES, PRECISION)
    u = ()
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        inside = b < B
        block = inside[:, None] & narrow[None, :]
        wide = b[:, None] * E
        weight = mass[i]  # type: ignore[var-annotated]
        if CUT:
            for chunk in range(1, chunks):
                also = inside & (size[i] > chunk * CHUNK)
                weight += tl.load(m + chunk * stride + capsule * B + b, mask=also, other=0.0)
            tl.store(m_out + capsule * B + b, weight, mask=inside & (JOIN != 0))
        weight = tl.where(FIRST != 0, size[i].to(tl.float32), weight)
        v = share * (s[i] + weight[:, None] * lift[None, :])
        if LAST:  # noqa: SIM102 (a constant, and an argument)
            if RESIDUAL != 0:
                v += tl.load(residual + r * B * E + wide + e[None, :], mask=block, other=0.0)
        f, _ = squash_factor(tl.sum(v * v, 1), epsilon)
        capsules = v * f[:, None]
        if KEEP != 0:
            tl.store(s_out + capsule * B * E + wide + e[None, :], v, mask=block)
        if LAST:
            tl.store(u_out + (r * B * J + j) * E + wide * J + e[None, :], capsules, mask=block)
            if STATISTICS:  # of the graphs with rows
                real = size[i] > 0
                count = tl.sum(real.to(tl.float32), 0)
                mean = tl.sum(tl.where(real[:, None], capsules, 0.0), 0) / tl.maximum(count, 1.0)
                deviation = tl.where(real[:, None], capsules - mean[None, :], 0.0)
                part = (capsule * tl.num_programs(0) + tl.program_id(0)) * GROUPS + i
                tl.store(means + part * E + e, mean, mask=narrow)
                tl.store(squares + part * E + e, tl.sum(deviation * deviation, 0), mask=narrow)
                tl.store(counts + part, count)
        else:
            if KEEP != 0:
                tl.store(u_out + capsule * B * E + wide + e[None, :], capsules, mask=block)
            agreement = tl.sum(capsules * lift[None, :], 1)
            tl.store(tau_out + capsule * B + b, before[i] + agreement, mask=inside)
            u += (capsules,)
    if not LAST:
        T_of, out = T + capsule * B * D, T_out + capsule * B * D
        again = W_again + capsule * D * E
        times_transposed(u, again, out, T_of, base, B, D, E, ADD, GROUPS, BB, NB, EP, STAGES, PRECISION)


@triton.jit(do_not_specialize=["B", "J"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    s_in, du_in, W, ds_out, dG, B, J, D, E, epsilon,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, NB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * BB)
    e = tl.arange(0, EP)
    capsule = r * J + j
    grad = ()
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        block = (b < B)[:, None] & (e < E)[None, :]
        wide = b[:, None] * E
        s = tl.load(s_in + capsule * B * E + wide + e[None, :], mask=block, other=0.0)
        du = tl.load(du_in + (r * B * J + j) * E + wide * J + e[None, :], mask=block, other=0.0)
        f, derivative = squash_factor(tl.sum(s * s, 1), epsilon)
        ds = f[:, None] * du + (2 * derivative * tl.sum(s * du, 1))[:, None] * s
        tl.store(ds_out + capsule * B * E + wide + e[None, :], ds, mask=block)
        grad += (ds,)
    weights, out = W + capsule * D * E, dG + capsule * B * D
    times_transposed(grad, weights, out, out, base, B, D, E, 0, GROUPS, BB, NB, EP, STAGES, PRECISION)


@triton.jit
def outer_products(  # type: ignore[no-untyped-def]
    total, left, right, left_after, right_after, turn, count, stride, row, column, B, D, E,
    GROUPS: tl.constexpr, DB: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds Σ left rightᵀ over ``count`` blocks of B graphs to tiles ``[DB, EB]`` from ``row`` and ``column`` on.

    Blocks are ``stride`` graphs apart; from block ``turn`` on they are those of ``left_after`` and ``right_after``.
    They are one loop, because nothing is loaded ahead of the first step of a loop.
    """
    e, k = column + tl.arange(0, EB), tl.arange(0, KB)
    steps = tl.cdiv(B, KB)
    for step in range(0, count * steps):
        block = step // steps
        after = block >= turn
        first = step % steps * KB
        offset = tl.where(after, block - turn, block) * stride + first
        inside = k < B - first
        right_of = tl.where(after, right_after, right) + offset * E
        grad = tl.load(
            right_of + (k[:, None] * E + e[None, :]), mask=inside[:, None] & (e < E)[None, :], other=0.0
        )
        left_of = tl.where(after, left_after, left) + offset * D
        sums = ()
        for i in tl.static_range(GROUPS):
            # Loaded as [DB, KB]: what tl.trans changes is copied to shared memory one number at a time.
            d = row + i * DB + tl.arange(0, DB)
            here = (d < D)[:, None] & inside[None, :]
            g = tl.load(left_of + (d[:, None] + k[None, :] * D), mask=here, other=0.0)
            sums += (product(g, grad, total[i], PRECISION),)
        total = sums
    return total


@triton.jit
def size_products(  # type: ignore[no-untyped-def]
    total, m, ptr, right, r, column, B, E, SIZE, FIRST,
    EB: tl.constexpr, KB: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Adds m · right of B graphs, or if ``FIRST`` the number of their rows · right, to a tile ``[KB, EB]``.

    Its rows are to be summed after the last step: a sum in each step would need barriers.
    """
    e = column + tl.arange(0, EB)
    for first in tl.range(0, B, KB, num_stages=STAGES):
        b = first + tl.arange(0, KB)
        inside = b < B
        grad = tl.load(
            right + b[:, None] * E + e[None, :], mask=inside[:, None] & (e < E)[None, :], other=0.0
        )
        mass = tl.load(m + b, mask=inside & (FIRST == 0), other=0.0)
        size = graph_sizes(ptr, B, r, b, inside & (FIRST != 0), SIZE)
        total += (mass + size.to(tl.float32))[:, None] * grad
    return total


@triton.jit(do_not_specialize=["B", "J", "SIZE", "FIRST"])
def _weights_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, ds_in, dW, dbias, B, J, SIZE, D, E, FIRST,
    GROUPS: tl.constexpr, DB: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles of the gradient of a weight, or in one more program for each block of columns that of the bias.

    In the programs of the weight, ds is read as the operand of a product only: otherwise its layout in shared memory
    would not be that of an operand.
    """
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    tiles = tl.cdiv(D, GROUPS * DB)
    row = tl.program_id(0) % (tiles + 1) * (GROUPS * DB)
    column = tl.program_id(0) // (tiles + 1) * EB
    e = column + tl.arange(0, EB)
    narrow = e < E
    capsule = r * J + j
    ds = ds_in + capsule * B * E
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)  # first iteration: c = 1/J, one sum for all
    if row < D:
        source = G + tl.where(FIRST != 0, r, capsule) * B * D
        total = ()
        for _ in tl.static_range(GROUPS):
            total += (tl.zeros((DB, EB), tl.float32),)
        total = outer_products(
            total, source, ds, source, ds, 1, 1, 0, row, column, B, D, E, GROUPS, DB, EB, KB, PRECISION
        )
        for i in tl.static_range(GROUPS):
            d = row + i * DB + tl.arange(0, DB)
            offsets = capsule * D * E + d[:, None] * E + e[None, :]
            tl.store(dW + offsets, share * total[i], mask=(d < D)[:, None] & narrow[None, :])
    else:
        lift = tl.zeros((KB, EB), tl.float32)
        lift = size_products(lift, m + capsule * B, ptr, ds, r, column, B, E, SIZE, FIRST, EB, KB, STAGES)
        tl.store(dbias + capsule * E + e, share * tl.sum(lift, 0), mask=narrow)


def final_capsules(
    G: Tensor,
    m: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    rows: Rows,
    epsilon: float,
    keep: bool,
    precision: str,
    statistics: dict[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """The end of the last iteration: u = squash(s) with s = WᵀG + m e + residual.

    Args:
        G (Tensor): ``[S, L, J, B, d]``, or after a single iteration, where c = 1/J, the sum of all
            input capsules ``[L, B, d]``.
        m (Tensor, optional): ``[S, L, J, B]``; ``None`` after a single iteration.
        weight (Tensor): W, ``[L, J, d, d']``.
        bias (Tensor): e, ``[L, J, d']``.
        residual (Tensor, optional): ``[L, B, d']``.
        rows (Rows): Which row belongs to which graph.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        keep (bool): Whether s is stored for the gradient.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.
        statistics (dict, optional): From :func:`statistics_tables`, to be filled.

    Returns:
        tuple: u ``[L, B, J, d']``, s ``[L, J, B, d']`` or ``None``, and G and m with their chunks added up.
    """
    L, J, D, E = weight.shape
    u = weight.new_empty(L, rows.B, J, E)
    s = weight.new_empty(L, J, rows.B, E) if keep else None
    tensors = {"residual": residual, "s_out": s, "u_out": u, **(statistics or {})}
    joined, mass = (G, None) if m is None else (G[0], m[0])
    if m is not None and rows.parts > 1 and keep:
        joined, mass = weight.new_empty(L, J, rows.B, D), weight.new_empty(L, J, rows.B)
        tensors |= {"G_out": joined, "m_out": mass}
    launch_update(G, m, weight, bias, rows, epsilon, precision, tensors)
    return u, s, joined, mass


def launch_update(
    G: Tensor,
    m: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    rows: Rows,
    epsilon: float,
    precision: str,
    tensors: dict[str, Tensor | None],
) -> None:
    """The end of an iteration, of the last one if there is no ``T_out``; arguments as in :func:`final_capsules`.

    ``tensors`` are what is added (``residual``, and ``T`` and ``tau`` of the iteration before) and what is written:
    ``T_out`` and ``tau_out``, except in the last iteration; ``G_out`` and ``m_out``, with their chunks added up;
    ``s_out [L, J, B, d']``; and ``u_out``, ``[L, B, J, d']`` in the last iteration and ``[L, J, B, d']``, together with
    ``s_out``, before.
    """
    L, J, D, E = weight.shape
    options = FORWARD_TILES.options(rows.B, L * J, D, E, precision)
    pointers = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if m is not None and rows.parts > 1 and "G_out" not in pointers:
        pointers["G_out"] = weight.new_empty(L, J, rows.B, D)  # written for graphs of several chunks only
    flags = [int(flag) for flag in (m is None, *(name in pointers for name in _FLAGS))]
    _forward_kernel[FORWARD_TILES.grid(rows.B, J, L, options)](
        # Unused pointers must be valid, too. With one pointer to the weights for both products, addresses of the first
        # would stay in registers.
        G, G if m is None else m, rows.ptr, weight, weight, bias, *(pointers.get(name, G) for name in _POINTERS),
        rows.B, L, J, 1 if m is None else rows.parts, rows.fixed_size, CHUNK, D, E, epsilon, *flags,
        LAST="T_out" not in pointers, CUT=rows.parts > 1, STATISTICS="counts" in pointers, PRECISION=precision,
        **options,
    )  # fmt: skip


def statistics_tables(weight: Tensor, rows: Rows, precision: str) -> dict[str, Tensor]:
    """Tables for mean, squared deviations and number of the output capsules of each part of the graphs.

    Graphs without rows do not count. Parts are those that :func:`final_capsules` divides the graphs into, of all
    output capsules: ``[L, parts, d']``, ``[L, parts, d']`` and ``[L, parts]``.
    """
    L, J, D, E = weight.shape
    options = FORWARD_TILES.options(rows.B, L * J, D, E, precision)
    parts = FORWARD_TILES.grid(rows.B, J, L, options)[0] * options["GROUPS"] * J
    means, squares = weight.new_empty(L, parts, E), weight.new_empty(L, parts, E)
    return {"means": means, "squares": squares, "counts": weight.new_empty(L, parts)}


def capsule_gradients(
    s: Tensor, du: Tensor, weight: Tensor, epsilon: float, precision: str
) -> tuple[Tensor, Tensor]:
    """Gradients of s and of G from that of u: ``s [L, J, B, d']``, ``du [L, B, J, d']``.

    Returns:
        tuple: ds ``[L, J, B, d']`` and dG = W ds ``[L, J, B, d]``.
    """
    L, J, B, E = s.shape
    D = weight.size(-2)
    ds, dG = s.new_empty(L, J, B, E), s.new_empty(L, J, B, D)
    options = BACKWARD_TILES.options(B, L * J, D, E, precision)
    _backward_kernel[BACKWARD_TILES.grid(B, J, L, options)](
        s, du, weight, ds, dG, B, J, D, E, epsilon, PRECISION=precision, **options,
    )  # fmt: skip
    return ds, dG


def parameter_gradients(
    G: Tensor, m: Tensor | None, ds: Tensor, rows: Rows, precision: str
) -> tuple[Tensor, Tensor]:
    """Gradients of the weights and biases, summed over the graphs in order.

    Args:
        G (Tensor): ``[L, J, B, d]``, or ``[L, B, d]`` after a single iteration.
        m (Tensor, optional): ``[L, J, B]``; ``None`` after a single iteration.
        ds (Tensor): ``[L, J, B, d']``.
        rows (Rows): Which row belongs to which graph.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.

    Returns:
        tuple: dW ``[L, J, d, d']`` and de ``[L, J, d']``.
    """
    L, J, B, E = ds.shape
    D = G.size(-1)
    dW, dbias = ds.new_empty(L, J, D, E), ds.new_empty(L, J, E)
    options = WEIGHT_TILES.options(D, E, precision)
    _weights_kernel[(weight_programs(D, E, options), J, L)](
        G, G if m is None else m, rows.ptr, ds, dW, dbias, B, J, rows.fixed_size, D, E, int(m is None),
        PRECISION=precision, **options,
    )  # fmt: skip
    return dW, dbias


def weight_programs(D: int, E: int, options: dict[str, int]) -> int:
    """Programs for a weight and, one for each block of columns, for its bias."""
    return (triton.cdiv(D, options["GROUPS"] * options["DB"]) + 1) * triton.cdiv(E, options["EB"])
