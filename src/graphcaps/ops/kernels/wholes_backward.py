"""The gradient of the last round's products with the weights and of squash: :mod:`graphcaps.ops.kernels.wholes`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from graphcaps.ops.kernels.routing import Rows
from graphcaps.ops.kernels.wholes import blocks, graph_sizes, squash_slope

__all__ = ["weights_backward", "wholes_backward"]


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    s_in, du_in, W, ds_out, dG, B, epsilon,
    J: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BB: tl.constexpr, DB: tl.constexpr, EP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    b = tl.program_id(0) * BB + tl.arange(0, BB)
    e = tl.arange(0, EP)
    inside = b < B
    narrow = e < E
    block = inside[:, None] & narrow[None, :]
    whole = (r * J + j) * B + b
    s = tl.load(s_in + whole[:, None] * E + e[None, :], mask=block, other=0.0)
    du = tl.load(du_in + ((r * B + b) * J + j)[:, None] * E + e[None, :], mask=block, other=0.0)
    f, slope = squash_slope(tl.sum(s * s, 1), epsilon)
    ds = f[:, None] * du + (2 * slope * tl.sum(s * du, 1))[:, None] * s
    tl.store(ds_out + whole[:, None] * E + e[None, :], ds, mask=block)
    for first in range(0, D, DB):
        d = first + tl.arange(0, DB)
        w = tl.load(
            W + (r * J + j) * (D * E) + d[:, None] * E + e[None, :],
            mask=(d < D)[:, None] & narrow[None, :],
            other=0.0,
        )
        found = tl.dot(ds, tl.trans(w), input_precision=PRECISION)
        here = inside[:, None] & (d < D)[None, :]
        tl.store(dG + whole[:, None] * D + d[None, :], found, mask=here)


@triton.jit
def _weights_kernel(  # type: ignore[no-untyped-def]
    G, m, ptr, ds_in, dW, dbias, B, SIZE,
    J: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BB: tl.constexpr, DB: tl.constexpr, EP: tl.constexpr,
    FIRST: tl.constexpr, FIXED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    d = tl.program_id(0) * DB + tl.arange(0, DB)
    e = tl.arange(0, EP)
    narrow = e < E
    total = tl.zeros((DB, EP), tl.float32)
    lift = tl.zeros((EP,), tl.float32)
    for first in range(0, B, BB):
        b = first + tl.arange(0, BB)
        inside = b < B
        whole = (r * J + j) * B + b
        ds = tl.load(
            ds_in + whole[:, None] * E + e[None, :], mask=inside[:, None] & narrow[None, :], other=0.0
        )
        here = (d < D)[:, None] & inside[None, :]  # G is read transposed, [DB, BB]
        if FIRST:
            g = tl.load(G + (r * B + b)[None, :] * D + d[:, None], mask=here, other=0.0) / J
            mass = graph_sizes(ptr, B, r, b, inside, SIZE, FIXED).to(tl.float32) / J
        else:
            g = tl.load(G + whole[None, :] * D + d[:, None], mask=here, other=0.0)
            mass = tl.load(m + whole, mask=inside, other=0.0)
        total = tl.dot(g, ds, total, input_precision=PRECISION)
        lift += tl.sum(mass[:, None] * ds, 0)
    place = (r * J + j) * (D * E) + d[:, None] * E + e[None, :]
    tl.store(dW + place, total, mask=(d < D)[:, None] & narrow[None, :])
    if tl.program_id(0) == 0:
        tl.store(dbias + (r * J + j) * E + e, lift, mask=narrow)


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
    BB, DB, EP = blocks(B, D, E)
    _backward_kernel[(triton.cdiv(B, BB), J, L)](
        s, du, weight, ds, dG, B, epsilon,
        J=J, D=D, E=E, BB=BB, DB=DB, EP=EP, PRECISION=precision, num_warps=4, num_stages=2,
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
        precision (str): Of the products, as ``tl.dot`` names it. (default: "tf32x3")

    Returns:
        tuple: dW ``[L, J, d, d']`` and de ``[L, J, d']``.
    """
    L, J, B, E = ds.shape
    D = G.size(-1)
    dW, dbias = ds.new_empty(L, J, D, E), ds.new_empty(L, J, E)
    BB, DB, EP = blocks(B, D, E)
    _weights_kernel[(triton.cdiv(D, DB), J, L)](
        G, G if m is None else m, G if rows.ptr is None else rows.ptr, ds, dW, dbias, B, rows.size,
        J=J, D=D, E=E, BB=BB, DB=DB, EP=EP, FIRST=m is None, FIXED=rows.ptr is None,
        PRECISION=precision, num_warps=4, num_stages=2,
    )  # fmt: skip
    return dW, dbias
