r"""The steps of routing between two passes over the rows, and their gradients.

After each pass the sums G and m become output capsules, and in all but the last iteration the next T and τ:

.. math::
    s_j &= W_j^\top G_j + m_j e_j, \quad u_j = \mathrm{squash}(s_j) \\
    T_j &\leftarrow T_j + W_j u_j, \quad \tau_j \leftarrow \tau_j + e_j \cdot u_j

One program per output capsule, replica and one or two tiles of graphs; it reads the weight of its capsule once per
tile. The gradient of the last iteration needs two kernels: one for s and G, and one for the weight and the bias, which
sums over the graphs in order.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops._triton.arithmetic import product
from graphcaps.ops._triton.kernel import await_inputs, kernel
from graphcaps.ops.ragged.ragged_triton import CHUNK
from graphcaps.ops.routing.weighted_sum_triton import Rows

__all__ = [
    "STAGES",
    "block_sizes",
    "capsule_gradients",
    "final_capsules",
    "graph_sizes",
    "launch_options",
    "launch_update",
    "parameter_gradients",
    "squash_factor",
    "times_transposed",
    "update_agreement",
]

_PAIRS = True
"""Whether a program computes two tiles of graphs if there are that many: weights are then read half as often."""
STAGES = 4
"""One more than the number of blocks of weights that are loaded ahead."""
_POINTERS = ("residual", "T", "tau", "T_out", "tau_out", "G_out", "m_out", "s_out", "u_out", "v_out")
_FLAGS = ("u_out", "T", "G_out", "s_out", "residual", "v_out")  # LAST, ADD, JOIN, KEEP, RESIDUAL, BOTH


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
def times_transposed(  # type: ignore[no-untyped-def]
    x, weights, base, B, D, E,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x Wᵀ of the graphs from ``base`` on, as ``GROUPS`` tiles ``[BB, DP]``; x was just stored by this program.

    It is read back in blocks of columns: a single operand of d' columns would exceed the registers.
    """
    tl.debug_barrier()
    d = tl.arange(0, DP)
    total = ()
    for _ in tl.static_range(GROUPS):
        total += (tl.zeros((BB, DP), tl.float32),)
    for first in range(0, E, KB):
        e = first + tl.arange(0, KB)
        narrow = (e < E)[None, :]
        w = tl.load(weights + d[:, None] * E + e[None, :], mask=(d < D)[:, None] & narrow, other=0.0)
        sums = ()
        for i in tl.static_range(GROUPS):
            b = base + i * BB + tl.arange(0, BB)
            left = tl.load(x + b[:, None] * E + e[None, :], mask=(b < B)[:, None] & narrow, other=0.0)
            sums += (product(left, tl.trans(w), total[i], PRECISION),)
        total = sums
    return total


# Flags are arguments, not constants, so that all iterations and all widths up to EP share one compiled kernel.
@kernel(
    do_not_specialize=[
        "B", "L", "J", "S", "SIZE", "CHUNK", "FIRST", "LAST", "ADD", "JOIN", "KEEP", "RESIDUAL", "BOTH",
    ]
)  # fmt: skip
def _forward_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, W, bias, residual, T, tau, T_out, tau_out, G_out, m_out, s_out, u_out, v_out,
    B, L, J, S, SIZE, CHUNK, D, E, epsilon, FIRST, LAST, ADD, JOIN, KEEP, RESIDUAL, BOTH,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    CUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    await_inputs()
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * BB)
    e = tl.arange(0, EP)
    narrow = e < E
    capsule = r * J + j
    weights = W + capsule * D * E
    # First iteration: c = 1/J, and one sum for all output capsules.
    source = tl.where(FIRST != 0, r, capsule) * B
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)
    s = ()
    size = ()
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        s += (tl.zeros((BB, EP), tl.float32),)
        size += (graph_sizes(ptr, B, r, b, b < B, SIZE),)
    for first in range(0, D, KB):
        d = first + tl.arange(0, KB)
        w = tl.load(weights + d[:, None] * E + e[None, :], mask=(d < D)[:, None] & narrow[None, :], other=0.0)
        sums = ()
        for i in tl.static_range(GROUPS):
            b = base + i * BB + tl.arange(0, BB)
            here = (b < B)[:, None] & (d < D)[None, :]
            deep = b[:, None] * D + d[None, :]  # offsets within an output capsule fit into 32 bits
            g = tl.load(G + source * D + deep, mask=here, other=0.0)
            if CUT:
                for part in range(1, S):
                    also = here & (size[i] > part * CHUNK)[:, None]
                    g += tl.load(G + ((part * L + r) * J + j) * B * D + deep, mask=also, other=0.0)
                if JOIN != 0:
                    tl.store(G_out + capsule * B * D + deep, g, mask=here)
            sums += (product(g, w, s[i], PRECISION),)
        s = sums
    lift = tl.load(bias + capsule * E + e, mask=narrow, other=0.0)
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        inside = b < B
        block = inside[:, None] & narrow[None, :]
        wide = b[:, None] * E
        mass = tl.load(m + capsule * B + b, mask=inside & (FIRST == 0), other=0.0)
        if CUT:
            for part in range(1, S):
                also = inside & (size[i] > part * CHUNK)
                mass += tl.load(m + ((part * L + r) * J + j) * B + b, mask=also, other=0.0)
            if JOIN != 0:
                tl.store(m_out + capsule * B + b, mass, mask=inside)
        mass = tl.where(FIRST != 0, size[i].to(tl.float32), mass)
        v = share * (s[i] + mass[:, None] * lift[None, :])
        v += tl.load(residual + r * B * E + wide + e[None, :], mask=block & (RESIDUAL != 0), other=0.0)
        f, _ = squash_factor(tl.sum(v * v, 1), epsilon)
        u = v * f[:, None]
        if LAST != 0:
            tl.store(u_out + (r * B * J + j) * E + wide * J + e[None, :], u, mask=block)
            tl.store(s_out + capsule * B * E + wide + e[None, :], v, mask=block & (KEEP != 0))
        else:
            tl.store(s_out + capsule * B * E + wide + e[None, :], u, mask=block)
            tl.store(v_out + capsule * B * E + wide + e[None, :], v, mask=block & (BOTH != 0))
            more = tl.sum(u * lift[None, :], 1)
            more += tl.load(tau + capsule * B + b, mask=inside & (ADD != 0), other=0.0)
            tl.store(tau_out + capsule * B + b, more, mask=inside)
    if LAST == 0:
        toward = times_transposed(
            s_out + capsule * B * E, weights, base, B, D, E, GROUPS, BB, KB, DP, PRECISION
        )
        k = tl.arange(0, DP)
        for i in tl.static_range(GROUPS):
            b = base + i * BB + tl.arange(0, BB)
            here = (b < B)[:, None] & (k < D)[None, :]
            offsets = capsule * B * D + b[:, None] * D + k[None, :]
            past = tl.load(T + offsets, mask=here & (ADD != 0), other=0.0)
            tl.store(T_out + offsets, past + toward[i], mask=here)


@kernel(do_not_specialize=["B", "J"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    s_in, du_in, W, ds_out, dG, B, J, D, E, epsilon,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    await_inputs()
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * BB)
    e = tl.arange(0, EP)
    capsule = r * J + j
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        block = (b < B)[:, None] & (e < E)[None, :]
        wide = b[:, None] * E
        s = tl.load(s_in + capsule * B * E + wide + e[None, :], mask=block, other=0.0)
        du = tl.load(du_in + (r * B * J + j) * E + wide * J + e[None, :], mask=block, other=0.0)
        f, derivative = squash_factor(tl.sum(s * s, 1), epsilon)
        ds = f[:, None] * du + (2 * derivative * tl.sum(s * du, 1))[:, None] * s
        tl.store(ds_out + capsule * B * E + wide + e[None, :], ds, mask=block)
    dG_tiles = times_transposed(
        ds_out + capsule * B * E, W + capsule * D * E, base, B, D, E, GROUPS, BB, KB, DP, PRECISION
    )
    d = tl.arange(0, DP)
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        here = (b < B)[:, None] & (d < D)[None, :]
        tl.store(dG + capsule * B * D + b[:, None] * D + d[None, :], dG_tiles[i], mask=here)


@kernel(do_not_specialize=["B", "J", "SIZE", "FIRST"])
def _weights_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, ds_in, dW, dbias, B, J, SIZE, D, E, FIRST,
    GROUPS: tl.constexpr, DB: tl.constexpr, KB: tl.constexpr, EP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    await_inputs()
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * DB)
    e = tl.arange(0, EP)
    narrow = e < E
    capsule = r * J + j
    source = tl.where(FIRST != 0, r, capsule) * B
    total = ()
    for _ in tl.static_range(GROUPS):
        total += (tl.zeros((DB, EP), tl.float32),)
    lift = tl.zeros((EP,), tl.float32)
    for first in range(0, B, KB):
        b = first + tl.arange(0, KB)
        inside = b < B
        ds = tl.load(
            ds_in + capsule * B * E + b[:, None] * E + e[None, :],
            mask=inside[:, None] & narrow[None, :],
            other=0.0,
        )
        sums = ()
        for i in tl.static_range(GROUPS):
            d = base + i * DB + tl.arange(0, DB)
            here = inside[:, None] & (d < D)[None, :]
            g = tl.load(G + source * D + b[:, None] * D + d[None, :], mask=here, other=0.0)
            sums += (product(tl.trans(g), ds, total[i], PRECISION),)
        total = sums
        mass = tl.load(m + capsule * B + b, mask=inside & (FIRST == 0), other=0.0)
        size = graph_sizes(ptr, B, r, b, inside & (FIRST != 0), SIZE)
        lift += tl.sum((mass + size.to(tl.float32))[:, None] * ds, 0)
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)  # first iteration: c = 1/J, one sum for all
    for i in tl.static_range(GROUPS):
        d = base + i * DB + tl.arange(0, DB)
        offsets = capsule * D * E + d[:, None] * E + e[None, :]
        tl.store(dW + offsets, share * total[i], mask=(d < D)[:, None] & narrow[None, :])
    if tl.program_id(0) == 0:
        tl.store(dbias + capsule * E + e, share * lift, mask=narrow)


def update_agreement(
    G: Tensor,
    m: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    T: Tensor | None,
    tau: Tensor | None,
    rows: Rows,
    epsilon: float,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """The end of an iteration that is not the last: u = squash(WᵀG + m e), T + W u and τ + e·u.

    Args:
        G (Tensor): ``[S, L, J, B, d]``, or in the first iteration, where c = 1/J, the sum of all
            input capsules ``[L, B, d]``.
        m (Tensor, optional): ``[S, L, J, B]``; ``None`` in the first iteration.
        weight (Tensor): W, ``[L, J, d, d']``.
        bias (Tensor): e, ``[L, J, d']``.
        T (Tensor, optional): ``[L, J, B, d]``; ``None`` stands for 0.
        tau (Tensor, optional): ``[L, J, B]``; ``None`` stands for 0.
        rows (Rows): Which row belongs to which graph.
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        precision (str): Of the products, as in :func:`graphcaps.ops._triton.precision.dot_precision`.

    Returns:
        tuple: The new T and τ.
    """
    L, J, D, E = weight.shape
    T_out, tau_out = weight.new_empty(L, J, rows.B, D), weight.new_empty(L, J, rows.B)
    u = weight.new_empty(L, J, rows.B, E)  # u, read back by the program that wrote it
    tensors = {"T": T, "tau": tau, "T_out": T_out, "tau_out": tau_out, "s_out": u}
    launch_update(G, m, weight, bias, rows, epsilon, precision, tensors)
    return T_out, tau_out


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
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """The end of the last iteration: u = squash(s) with s = WᵀG + m e + residual.

    Arguments as in :func:`update_agreement`; ``residual [L, B, d']``; ``keep``: whether s is stored for the gradient.

    Returns:
        tuple: u ``[L, B, J, d']``, s ``[L, J, B, d']`` or ``None``, and G and m with their chunks added up.
    """
    L, J, D, E = weight.shape
    u = weight.new_empty(L, rows.B, J, E)
    s = weight.new_empty(L, J, rows.B, E) if keep else None
    tensors = {"residual": residual, "s_out": s, "u_out": u}
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
    """The end of an iteration, of the last one if there is ``u_out``; arguments as in :func:`update_agreement`.

    ``tensors`` are what is added (``residual``, and ``T`` and ``tau`` of the iteration before) and what is written:
    ``T_out`` and ``tau_out``; ``G_out`` and ``m_out``, with their chunks added up; ``u_out [L, B, J, d']``; and
    ``[L, J, B, d']`` ``s_out``, which is s in the last iteration and u before, and ``v_out``, which is s before.
    """
    L, J, D, E = weight.shape
    sizes = block_sizes(rows.B, D, E, pairs=precision != "tf32x3")  # two tiles spill registers with tf32x3
    pointers = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    flags = [int(flag) for flag in (m is None, *(name in pointers for name in _FLAGS))]
    _forward_kernel[(triton.cdiv(rows.B, sizes["GROUPS"] * sizes["BB"]), J, L)](
        # Unused pointers must be valid, too.
        G, G if m is None else m, rows.ptr, weight, bias, *(pointers.get(name, G) for name in _POINTERS),
        rows.B, L, J, 1 if m is None else rows.parts, rows.fixed_size, CHUNK, D, E, epsilon, *flags,
        CUT=rows.parts > 1, PRECISION=precision, **sizes, **launch_options(sizes, D, E), num_stages=STAGES,
    )  # fmt: skip


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
    sizes = block_sizes(B, D, E)
    _backward_kernel[(triton.cdiv(B, sizes["GROUPS"] * sizes["BB"]), J, L)](
        s, du, weight, ds, dG, B, J, D, E, epsilon,
        PRECISION=precision, **sizes, **launch_options(sizes, D, E), num_stages=STAGES,
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
    # The sum is over the graphs, so tiles are blocks of d instead of blocks of graphs.
    sizes = block_sizes(D, D, E)
    DB, GROUPS = sizes["BB"], sizes["GROUPS"]
    _weights_kernel[(triton.cdiv(D, GROUPS * DB), J, L)](
        G, G if m is None else m, rows.ptr, ds, dW, dbias, B, J, rows.fixed_size, D, E, int(m is None),
        GROUPS=GROUPS, DB=DB, KB=16, EP=sizes["EP"], PRECISION=precision,
        **launch_options(sizes, D, E), num_stages=STAGES - 1,
    )  # fmt: skip
    return dW, dbias


def block_sizes(B: int, D: int, E: int, pairs: bool = True) -> dict[str, int]:
    """Tile sizes: graphs of a tile, tiles of a program, step of the products, and d and d' rounded up to powers of two.

    Two tiles share each block of weights. A single tile of 64 graphs would use another instruction (wgmma), which
    needs transposed weights.
    """
    DP, EP = (max(16, int(triton.next_power_of_2(width))) for width in (D, E))
    BB, large = 16 if B <= 16 else 32, max(DP, EP) >= 128
    GROUPS = 2 if _PAIRS and pairs and large and B > BB and (D | E) % 16 == 0 else 1
    return {"GROUPS": GROUPS, "BB": BB, "KB": 16 if large and BB > 16 else 32, "DP": DP, "EP": EP}


def launch_options(sizes: dict[str, int], D: int, E: int) -> dict[str, int]:
    """Warps and register limit: eight warps for large tiles, with registers for two programs at a time, unspilled.

    Widths that are not a multiple of 16 are read one number at a time, which needs more registers.
    """
    if sizes["BB"] * max(sizes["DP"], sizes["EP"]) < 4096:
        return {"num_warps": 4}
    return {"num_warps": 8} if (D | E) % 16 else {"num_warps": 8, "maxnreg": 128}
