"""The gradient of the last round's products with the weights and of squash: :mod:`graphcaps.ops.kernels.wholes`."""

# A kernel keeps its tiles in tuples that grow, for which mypy has no type.
# mypy: disable-error-code="assignment"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.products import product
from graphcaps.ops.kernels.routing import Rows
from graphcaps.ops.kernels.wholes import (
    STAGES,
    blocks,
    graph_sizes,
    launch_of,
    squash_slope,
    times_transposed,
)

__all__ = ["weights_backward", "wholes_backward"]


@triton.jit(do_not_specialize=["B", "J"])
def _backward_kernel(  # type: ignore[no-untyped-def]
    s_in, du_in, W, ds_out, dG, B, J, D, E, epsilon,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * BB)
    e = tl.arange(0, EP)
    own = r * J + j
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        block = (b < B)[:, None] & (e < E)[None, :]
        wide = b[:, None] * E
        s = tl.load(s_in + own * B * E + wide + e[None, :], mask=block, other=0.0)
        du = tl.load(du_in + (r * B * J + j) * E + wide * J + e[None, :], mask=block, other=0.0)
        f, slope = squash_slope(tl.sum(s * s, 1), epsilon)
        ds = f[:, None] * du + (2 * slope * tl.sum(s * du, 1))[:, None] * s
        tl.store(ds_out + own * B * E + wide + e[None, :], ds, mask=block)
    found = times_transposed(
        ds_out + own * B * E, W + own * D * E, base, B, D, E, GROUPS, BB, KB, DP, PRECISION
    )
    d = tl.arange(0, DP)
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        here = (b < B)[:, None] & (d < D)[None, :]
        tl.store(dG + own * B * D + b[:, None] * D + d[None, :], found[i], mask=here)


@triton.jit(do_not_specialize=["B", "J", "SIZE", "FIRST"])
def _weights_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, ds_in, dW, dbias, B, J, SIZE, D, E, FIRST,
    GROUPS: tl.constexpr, DB: tl.constexpr, KB: tl.constexpr, EP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * DB)
    e = tl.arange(0, EP)
    narrow = e < E
    own = r * J + j
    source = tl.where(FIRST != 0, r, own) * B
    total = ()
    for _ in tl.static_range(GROUPS):
        total += (tl.zeros((DB, EP), tl.float32),)
    lift = tl.zeros((EP,), tl.float32)
    for first in range(0, B, KB):
        b = first + tl.arange(0, KB)
        inside = b < B
        ds = tl.load(
            ds_in + own * B * E + b[:, None] * E + e[None, :],
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
        mass = tl.load(m + own * B + b, mask=inside & (FIRST == 0), other=0.0)
        size = graph_sizes(ptr, B, r, b, inside & (FIRST != 0), SIZE)
        lift += tl.sum((mass + size.to(tl.float32))[:, None] * ds, 0)
    share = tl.where(FIRST != 0, 1.0 / J, 1.0)  # round one: c = 1/J, and one sum for all wholes
    for i in tl.static_range(GROUPS):
        d = base + i * DB + tl.arange(0, DB)
        place = own * D * E + d[:, None] * E + e[None, :]
        tl.store(dW + place, share * total[i], mask=(d < D)[:, None] & narrow[None, :])
    if tl.program_id(0) == 0:
        tl.store(dbias + own * E + e, share * lift, mask=narrow)


def wholes_backward(
    s: Tensor, du: Tensor, weight: Tensor, epsilon: float, precision: str = "tf32x3"
) -> tuple[Tensor, Tensor]:
    """Gradients of s and of G from that of u: ``s [L, J, B, d']``, ``du [L, B, J, d']``.

    Returns:
        tuple: ds ``[L, J, B, d']`` and dG = W ds ``[L, J, B, d]``.
    """
    L, J, B, E = s.shape
    D = weight.size(-2)
    ds, dG = s.new_empty(L, J, B, E), s.new_empty(L, J, B, D)
    sizes = blocks(B, D, E)
    _backward_kernel[(triton.cdiv(B, sizes["GROUPS"] * sizes["BB"]), J, L)](
        s, du, weight, ds, dG, B, J, D, E, epsilon,
        PRECISION=precision, **sizes, **launch_of(sizes, D, E), num_stages=STAGES,
    )  # fmt: skip
    return ds, dG


def weights_backward(
    G: Tensor, m: Tensor | None, ds: Tensor, rows: Rows, precision: str = "tf32x3"
) -> tuple[Tensor, Tensor]:
    """Gradients of the weights and biases, summed over the graphs in order.

    Args:
        G (Tensor): ``[L, J, B, d]``, or ``[L, B, d]`` where only round one was run.
        m (Tensor, optional): ``[L, J, B]``; ``None`` where only round one was run.
        ds (Tensor): ``[L, J, B, d']``.
        rows (Rows): Which row belongs to which graph.
        precision (str): Of the products, as :func:`graphcaps.ops.kernels.dot_precision` names it. (default: "tf32x3")

    Returns:
        tuple: dW ``[L, J, d, d']`` and de ``[L, J, d']``.
    """
    L, J, B, E = ds.shape
    D = G.size(-1)
    dW, dbias = ds.new_empty(L, J, D, E), ds.new_empty(L, J, E)
    # The graphs are what is summed over here: blocks of d take the place of blocks of graphs.
    sizes = blocks(D, D, E)
    DB, GROUPS = sizes["BB"], sizes["GROUPS"]
    _weights_kernel[(triton.cdiv(D, GROUPS * DB), J, L)](
        G, G if m is None else m, rows.ptr, ds, dW, dbias, B, J, rows.fixed_size, D, E, int(m is None),
        GROUPS=GROUPS, DB=DB, KB=16, EP=sizes["EP"], PRECISION=precision,
        **launch_of(sizes, D, E), num_stages=STAGES - 1,
    )  # fmt: skip
    return dW, dbias
