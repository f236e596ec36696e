"""What routing does between two readings of the rows: the products with the weights, and squash.

One program per replica, whole j and block of graphs; everything lies as ``[L, J, B, …]``, only the capsules
that leave are ``[L, B, J, d']``. Weights are read in blocks of their rows, so nothing wider than a block of
graphs times d' lives in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.ragged import CHUNK
from graphcaps.ops.kernels.routing import Rows

__all__ = ["agree", "blocks", "finish", "graph_sizes", "squash_slope", "times_transposed", "warps_of"]


@triton.jit
def graph_sizes(ptr, B, r, b, inside, SIZE):  # type: ignore[no-untyped-def]
    """Rows of the graphs ``b``, 0 outside: ``SIZE``, or what ``ptr`` says where that is 0."""
    ragged = inside & (SIZE == 0)
    start = tl.load(ptr + r * (B + 1) + b, mask=ragged, other=0)
    size = (tl.load(ptr + r * (B + 1) + b + 1, mask=ragged, other=0) - start).to(tl.int32)
    return tl.where(ragged, size, tl.where(inside, SIZE, 0))


@triton.jit
def squash_slope(q, epsilon):  # type: ignore[no-untyped-def]
    """f of squash(s) = f(q) s with q = |s|², and its derivative; both 0 where q + epsilon is 0."""
    inner = q + epsilon
    some = inner > 0
    safe = tl.where(some, inner, 1.0)
    root = tl.where(some, 1 / ((1 + q) * tl.sqrt(safe)), 0.0)
    return q * root, root * (1 / (1 + q) - 0.5 * (q / safe))


@triton.jit
def times_transposed(  # type: ignore[no-untyped-def]
    x, weights, b, d, B, D, E,
    BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x Wᵀ of a block of graphs, ``[BB, DP]``; x is what this program has just stored.

    Read back in blocks of columns: as one operand of d' columns it would fill the registers, twice over.
    """
    tl.debug_barrier()
    total = tl.zeros((BB, DP), tl.float32)
    for first in range(0, E, KB):
        e = first + tl.arange(0, KB)
        left = tl.load(x + b[:, None] * E + e[None, :], mask=(b < B)[:, None] & (e < E)[None, :], other=0.0)
        w = tl.load(
            weights + d[:, None] * E + e[None, :], mask=(d < D)[:, None] & (e < E)[None, :], other=0.0
        )
        total = tl.dot(left, tl.trans(w), total, input_precision=PRECISION)
    return total


# Flags are arguments, not constants, so that all rounds of all widths up to EP share one compiled kernel.
@triton.jit(
    do_not_specialize=[
        "B", "L", "J", "S", "SIZE", "CHUNK", "FIRST", "LAST", "ADD", "JOIN", "KEEP", "RESIDUAL",
    ]
)  # fmt: skip
def _forward_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, W, bias, residual, T, tau, T_out, tau_out, G_out, m_out, s_out, u_out,
    B, L, J, S, SIZE, CHUNK, D, E, epsilon, FIRST, LAST, ADD, JOIN, KEEP, RESIDUAL,
    BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, CUT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    e = tl.arange(0, EP)
    inside = b < B
    narrow = e < E
    block = inside[:, None] & narrow[None, :]
    own = r * J + j
    deep = b[:, None] * D  # what belongs to a whole lies together: its offsets fit into 32 bits
    wide = b[:, None] * E
    weights = W + own * D * E
    size = graph_sizes(ptr, B, r, b, inside, SIZE)
    # Round one: c = 1/J, and one sum for all wholes.
    source = tl.where(FIRST != 0, r, own) * B
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)
    s = tl.zeros((BB, EP), tl.float32)
    for first in range(0, D, KB):
        d = first + tl.arange(0, KB)
        here = inside[:, None] & (d < D)[None, :]
        g = tl.load(G + source * D + deep + d[None, :], mask=here, other=0.0)
        if CUT:
            for part in range(1, S):
                also = here & (size > part * CHUNK)[:, None]
                place = ((part * L + r) * J + j) * B
                g += tl.load(G + place * D + deep + d[None, :], mask=also, other=0.0)
            if JOIN != 0:
                tl.store(G_out + own * B * D + deep + d[None, :], g, mask=here)
        w = tl.load(weights + d[:, None] * E + e[None, :], mask=(d < D)[:, None] & narrow[None, :], other=0.0)
        s = tl.dot(g, w, s, input_precision=PRECISION)
    mass = tl.load(m + own * B + b, mask=inside & (FIRST == 0), other=0.0)
    if CUT:
        for part in range(1, S):
            also = inside & (size > part * CHUNK)
            mass += tl.load(m + ((part * L + r) * J + j) * B + b, mask=also, other=0.0)
        if JOIN != 0:
            tl.store(m_out + own * B + b, mass, mask=inside)
    mass = tl.where(FIRST != 0, size.to(tl.float32), mass)
    lift = tl.load(bias + own * E + e, mask=narrow, other=0.0)
    s = share * (s + mass[:, None] * lift[None, :])
    s += tl.load(residual + r * B * E + wide + e[None, :], mask=block & (RESIDUAL != 0), other=0.0)
    f, _ = squash_slope(tl.sum(s * s, 1), epsilon)
    u = s * f[:, None]
    if LAST != 0:
        tl.store(u_out + (r * B * J + j) * E + wide * J + e[None, :], u, mask=block)
        tl.store(s_out + own * B * E + wide + e[None, :], s, mask=block & (KEEP != 0))
    else:
        tl.store(s_out + own * B * E + wide + e[None, :], u, mask=block)
        more = tl.sum(u * lift[None, :], 1)
        more += tl.load(tau + own * B + b, mask=inside & (ADD != 0), other=0.0)
        tl.store(tau_out + own * B + b, more, mask=inside)
        k = tl.arange(0, DP)
        toward = times_transposed(s_out + own * B * E, weights, b, k, B, D, E, BB, KB, DP, PRECISION)
        place = own * B * D + deep + k[None, :]
        here = inside[:, None] & (k < D)[None, :]
        toward += tl.load(T + place, mask=here & (ADD != 0), other=0.0)
        tl.store(T_out + place, toward, mask=here)


def agree(
    G: Tensor,
    m: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    T: Tensor | None,
    tau: Tensor | None,
    rows: Rows,
    epsilon: float,
    precision: str = "tf32x3",
) -> tuple[Tensor, Tensor]:
    """The end of a round that is not the last: u = squash(WᵀG + m e), T + W u and τ + e·u.

    Args:
        G (Tensor): ``[S, L, J, B, d]``, or the sum of all parts ``[L, B, d]`` in round one, where c = 1/J.
        m (Tensor, optional): ``[S, L, J, B]``; ``None`` in round one.
        weight (Tensor): W, ``[L, J, d, d']``.
        bias (Tensor): e, ``[L, J, d']``.
        T (Tensor, optional): ``[L, J, B, d]``; ``None`` stands for 0.
        tau (Tensor, optional): ``[L, J, B]``; ``None`` stands for 0.
        rows (Rows): Which row belongs to which graph.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        precision (str): Of the products, as ``tl.dot`` names it. (default: "tf32x3")

    Returns:
        tuple: The new T and τ.
    """
    L, J, D, E = weight.shape
    T_out, tau_out = weight.new_empty(L, J, rows.B, D), weight.new_empty(L, J, rows.B)
    between = weight.new_empty(L, J, rows.B, E)  # where a program leaves u for itself
    known = {"T": T, "tau": tau, "T_out": T_out, "tau_out": tau_out, "s_out": between}
    _forward(G, m, weight, bias, rows, epsilon, precision, known)
    return T_out, tau_out


def finish(
    G: Tensor,
    m: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    rows: Rows,
    epsilon: float,
    keep: bool,
    precision: str = "tf32x3",
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """The end of the last round: u = squash(s) with s = WᵀG + m e + residual.

    Arguments as in :func:`agree`; ``residual [L, B, d']``; ``keep``: whether s is needed again.

    Returns:
        tuple: u ``[L, B, J, d']``, s ``[L, J, B, d']`` or ``None``, and G and m with their chunks added up.
    """
    L, J, D, E = weight.shape
    u = weight.new_empty(L, rows.B, J, E)
    s = weight.new_empty(L, J, rows.B, E) if keep else None
    known = {"residual": residual, "s_out": s, "u_out": u}
    joined, mass = (G, None) if m is None else (G[0], m[0])
    if m is not None and rows.parts > 1 and keep:
        joined, mass = weight.new_empty(L, J, rows.B, D), weight.new_empty(L, J, rows.B)
        known |= {"G_out": joined, "m_out": mass}
    _forward(G, m, weight, bias, rows, epsilon, precision, known)
    return u, s, joined, mass


_POINTERS = ("residual", "T", "tau", "T_out", "tau_out", "G_out", "m_out", "s_out", "u_out")
_FLAGS = ("u_out", "T", "G_out", "s_out", "residual")  # LAST, ADD, JOIN, KEEP, RESIDUAL


def _forward(
    G: Tensor,
    m: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    rows: Rows,
    epsilon: float,
    precision: str,
    known: dict[str, Tensor | None],
) -> None:
    L, J, D, E = weight.shape
    sizes = blocks(rows.B, D, E)
    given = {name: tensor for name, tensor in known.items() if tensor is not None}
    flags = [int(flag) for flag in (m is None, *(name in given for name in _FLAGS))]
    _forward_kernel[(triton.cdiv(rows.B, sizes["BB"]), J, L)](
        # A pointer that a flag leaves unused still has to be one.
        G, G if m is None else m, rows.ptr, weight, bias, *(given.get(name, G) for name in _POINTERS),
        rows.B, L, J, 1 if m is None else rows.parts, rows.fixed_size, CHUNK, D, E, epsilon, *flags,
        CUT=rows.parts > 1, PRECISION=precision, **sizes, num_warps=warps_of(sizes), num_stages=2,
    )  # fmt: skip


def blocks(B: int, D: int, E: int) -> dict[str, int]:
    """Graphs of a block, steps of the products, and d and d' up to a power of two; no register is spilled."""
    DP, EP = (max(16, int(triton.next_power_of_2(width))) for width in (D, E))
    return {"BB": 16 if B <= 16 else 32, "KB": 16 if max(DP, EP) >= 128 else 32, "DP": DP, "EP": EP}


def warps_of(sizes: dict[str, int]) -> int:
    """Eight where a block is large, which leaves room for two programs at a time."""
    return 8 if sizes["BB"] * max(sizes["DP"], sizes["EP"]) >= 4096 else 4
