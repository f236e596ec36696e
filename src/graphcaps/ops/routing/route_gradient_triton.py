r"""Routing with gradient through all iterations, as in the formulation of the paper, in fused kernels.

The forward pass is that of :mod:`graphcaps.ops.routing.route_triton`; it keeps the values of every iteration. With r
from 1 to R − 1, h\ :sub:`i` the input capsules and a bar for gradients, the backward pass goes from the last iteration
to the first:

.. math::
    \bar s^r_j &= \mathrm{squash}'(s^r_j)\, \bar u^r_j, \quad
    \bar G^r_j = W_j \bar s^r_j, \quad \bar m^r_j = e_j \cdot \bar s^r_j \\
    \bar c^r_{ij} &= h_i \cdot \bar G^r_j + \bar m^r_j, \quad
    \bar b^r_{ij} = c^r_{ij} \Big(\bar c^r_{ij} - \textstyle\sum_k c^r_{ik} \bar c^r_{ik}\Big) \\
    \bar T^r_j &= \bar T^{r+1}_j + \textstyle\sum_i \bar b^r_{ij} h_i, \quad
    \bar \tau^r_j = \bar \tau^{r+1}_j + \sum_i \bar b^r_{ij} \\
    \bar u^{r-1}_j &= W_j^\top \bar T^r_j + \bar \tau^r_j e_j

where the gradient of the assignments is added to :math:`\bar c^{R-1}`, and :math:`\bar T^R = 0`. In iteration 0 all c
are 1/J. At the end

.. math::
    \bar h_i &= \textstyle\sum_{r \ge 1} \sum_j \big(c^r_{ij} \bar G^r_j + \bar b^r_{ij} T^r_j\big)
        + \frac1J \sum_j \bar G^0_j \\
    \bar W_j &= \textstyle\sum_b \Big(\sum_r G^r_j (\bar s^r_j)^\top
        + \sum_{r \ge 1} \bar T^r_j (u^{r-1}_j)^\top\Big), \quad
    \bar e_j = \sum_b \Big(\sum_r m^r_j \bar s^r_j + \sum_{r \ge 1} \bar \tau^r_j u^{r-1}_j\Big)

A pass over the rows reads h and the assignments once per iteration (:func:`_assignment_kernel`); h gets its gradient in
one more pass, at the end. There are 2 R + 2 launches backward. Sums have a fixed order.
"""

# Kernels keep tiles in growing tuples, which mypy cannot type.
# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import product
from graphcaps.ops._triton.kernel import await_inputs, kernel
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.ragged.ragged_triton import CHUNK, chunk_bounds, rows_per_chunk
from graphcaps.ops.routing.capsule_update_triton import (
    STAGES,
    block_sizes,
    graph_sizes,
    launch_options,
    launch_update,
    squash_factor,
    times_transposed,
)
from graphcaps.ops.routing.weighted_sum_triton import Rows, assign_and_sum, padded, sum_rows, tile_options

__all__ = ["RouteWithGradient", "capsule_and_mass_gradients"]


class RouteWithGradient(torch.autograd.Function):
    """All of at least two iterations; arguments as in :mod:`graphcaps.ops.routing.route_triton`.

    ``index`` is ``None`` if every graph has ``size`` rows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        shape: tuple[Tensor, Tensor | None, int, int, int, int],
        iterations: int,
        epsilon: float,
    ) -> tuple[Tensor, Tensor]:
        precision = dot_precision()
        ptr, index, size, L, V, B = shape
        h, weight, bias = h.contiguous(), weight.contiguous(), bias.contiguous()
        residual = None if residual is None else residual.contiguous()
        rows = Rows(ptr.contiguous(), size, L, V, B, fixed=index is None)
        _, J, D, E = weight.shape
        later = iterations - 1  # all but the first, whose assignments are constant
        G_first = sum_rows(h, rows)
        G, m = h.new_empty(later, L, J, B, D), h.new_empty(later, L, J, B)
        T, tau = torch.empty_like(G), torch.empty_like(m)
        c = h.new_empty(later, L, V, J)
        s, u = h.new_empty(iterations, L, J, B, E), h.new_empty(later, L, J, B, E)
        capsules = h.new_empty(L, B, J, E)
        chunked = rows.parts > 1
        sums, mass = G_first, None
        for r in range(iterations):
            tensors: dict[str, Tensor | None]
            if r == later:
                tensors = {"residual": residual, "s_out": s[r], "u_out": capsules}
            else:
                tensors = {"T_out": T[r], "tau_out": tau[r], "s_out": u[r], "v_out": s[r]}
                if r:
                    tensors |= {"T": T[r - 1], "tau": tau[r - 1]}
            if r and chunked:
                tensors |= {"G_out": G[r - 1], "m_out": m[r - 1]}
            launch_update(sums, mass, weight, bias, rows, epsilon, precision, tensors)
            if r < later:
                out = (None, None, c[r]) if chunked else (G[r].unsqueeze(0), m[r].unsqueeze(0), c[r])
                sums, mass, _ = assign_and_sum(h, T[r], tau[r], rows, True, precision, out)
        ctx.save_for_backward(h, weight, bias, G_first, G, m, T, c, s, u, rows.ptr)
        ctx.rows, ctx.epsilon, ctx.precision = (size, L, V, B, index is None), epsilon, precision
        ctx.set_materialize_grads(False)  # a gradient of the assignments is rare, and as large as they are
        return capsules, c[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, du: Tensor | None, dc: Tensor | None) -> Any:
        h, weight, bias, G_first, G, m, T, c, s, u, ptr = ctx.saved_tensors
        rows = Rows(ptr, *ctx.rows)
        iterations, L, J, B, _ = s.shape
        later, D = iterations - 1, weight.size(-2)
        du = s.new_zeros(L, B, J, s.size(-1)) if du is None else du.contiguous()
        dc = None if dc is None else dc.contiguous()
        ds = torch.empty_like(s)
        dG, dm = s.new_empty(iterations, L, J, B, D), s.new_empty(iterations, L, J, B)
        dT, dtau = torch.empty_like(G), torch.empty_like(m)
        db = torch.empty_like(c)
        sums = None
        for r in range(later, -1, -1):
            _capsule_gradients(weight, bias, du, s, ds, dG, dm, dT, dtau, sums, r, rows, ctx)
            if r:
                sums = _assignment_gradients(h, c, dG, dm, dc if r == later else None, db, r, rows, ctx)
        for_h, for_weight, for_bias, for_residual, *_ = ctx.needs_input_grad
        dh = _input_gradient(c, db, dG, T, rows, ctx) if for_h else None
        dW, dbias = (
            _parameter_gradients(G_first, G, m, ds, dT, dtau, u, rows, ctx)
            if for_weight or for_bias
            else (None, None)
        )
        dres = ds[later].sum(1) if for_residual else None
        return dh, dW, dbias, dres, None, None, None


def _capsule_gradients(
    weight: Tensor,
    bias: Tensor,
    du: Tensor,
    s: Tensor,
    ds: Tensor,
    dG: Tensor,
    dm: Tensor,
    dT: Tensor,
    dtau: Tensor,
    sums: tuple[Tensor, Tensor] | None,
    r: int,
    rows: Rows,
    ctx: Any,
) -> None:
    """Gradients of s, G and m of iteration r; before the last one also those of T and τ of the next iteration.

    ``sums`` are the parts of the latter that the pass over the rows of the next iteration gave.
    """
    L, J, D, E = weight.shape
    last, B = sums is None, rows.B
    add = not last and r + 2 < s.size(0)
    sizes = block_sizes(B, D, E, pairs=ctx.precision != "tf32x3")
    part, part_tau = (du, du) if sums is None else sums
    _capsule_kernel[(triton.cdiv(B, sizes["GROUPS"] * sizes["BB"]), J, L)](
        # Unused pointers must be valid, too.
        du, part, part_tau, dT[r + 1] if add else du, dtau[r + 1] if add else du, rows.ptr, weight, bias, s[r],
        ds[r], dG[r], dm[r], du if last else dT[r], du if last else dtau[r],
        B, L, J, rows.parts, rows.fixed_size, CHUNK, D, E, ctx.epsilon, int(last), int(add),
        CUT=rows.parts > 1, PRECISION=ctx.precision, **sizes, **launch_options(sizes, D, E), num_stages=STAGES,
    )  # fmt: skip


def capsule_and_mass_gradients(
    weight: Tensor, bias: Tensor, du: Tensor, s: Tensor, rows: Rows, ctx: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of s ``[L, J, B, d']``, G ``[L, J, B, d]`` and m ``[L, J, B]``, from that of u ``[L, B, J, d']``."""
    L, J, D, E = weight.shape
    ds, dG, dm = s.new_empty(L, J, rows.B, E), s.new_empty(L, J, rows.B, D), s.new_empty(L, J, rows.B)
    # There is no later iteration, whose T and τ would have a gradient.
    _capsule_gradients(weight, bias, du, s[None], ds[None], dG[None], dm[None], dm, dm, None, 0, rows, ctx)
    return ds, dG, dm


def _assignment_gradients(
    h: Tensor,
    c: Tensor,
    dG: Tensor,
    dm: Tensor,
    dc: Tensor | None,
    db: Tensor,
    r: int,
    rows: Rows,
    ctx: Any,
) -> tuple[Tensor, Tensor]:
    """The pass over the rows of iteration r: the gradient of its logits, and what they give to those of T and τ."""
    L, V, D = h.shape
    J, B = c.size(-1), rows.B
    part, part_tau = h.new_empty(rows.parts, L, J, B, D), h.new_empty(rows.parts, L, J, B)
    _assignment_kernel[(B, L, rows.parts)](
        h, rows.ptr, c[r - 1], h if dc is None else dc, dG[r], dm[r], db[r - 1], part, part_tau,
        V, B, L, J, rows.fixed_size, rows_per_chunk(rows.parts, V), int(dc is not None), D,
        PRECISION=ctx.precision, num_stages=1, **tile_options(J, D, rows.height, ctx.precision),
    )  # fmt: skip
    return part, part_tau


def _input_gradient(c: Tensor, db: Tensor, dG: Tensor, T: Tensor, rows: Rows, ctx: Any) -> Tensor:
    """Gradient of h, ``[L, V, d]``; padding rows are 0."""
    later, L, V, J = c.shape
    D = T.size(-1)
    dh = c.new_empty(L, V, D)
    # One more program per replica and chunk writes the padding rows.
    _input_kernel[(rows.B + int(not rows.fixed), L, rows.parts)](
        c, db, dG, T, rows.ptr, dh, V, rows.B, L, J, later, rows.fixed_size, rows_per_chunk(rows.parts, V), D,
        JP=padded(J), DP=padded(D), ROWS=rows.height, PRECISION=ctx.precision, num_warps=4, num_stages=2,
    )  # fmt: skip
    return dh


def _parameter_gradients(
    G_first: Tensor,
    G: Tensor,
    m: Tensor,
    ds: Tensor,
    dT: Tensor,
    dtau: Tensor,
    u: Tensor,
    rows: Rows,
    ctx: Any,
) -> tuple[Tensor, Tensor]:
    """Gradients of the weights ``[L, J, d, d']`` and biases ``[L, J, d']``, summed over iterations and graphs."""
    later, L, J, B, D = G.shape
    E = u.size(-1)
    dW, dbias = G.new_empty(L, J, D, E), G.new_empty(L, J, E)
    sizes = block_sizes(D, D, E, pairs=ctx.precision != "tf32x3")
    DB, GROUPS = sizes["BB"], sizes["GROUPS"]
    _parameter_kernel[(triton.cdiv(D, GROUPS * DB), J, L)](
        G_first, G, m, rows.ptr, ds, dT, dtau, u, dW, dbias, B, L, J, later, rows.fixed_size, D, E,
        GROUPS=GROUPS, DB=DB, KB=16, EP=sizes["EP"], PRECISION=ctx.precision,
        **launch_options(sizes, D, E), num_stages=STAGES - 1,
    )  # fmt: skip
    return dW, dbias


@kernel(do_not_specialize=["B", "L", "J", "S", "SIZE", "CHUNK", "LAST", "ADD"])
def _capsule_kernel(  # type: ignore[no-untyped-def]
    du_in, part, part_tau, T_next, tau_next, ptr, W, bias, s_in, ds_out, dG, dm, T_out, tau_out,
    B, L, J, S, SIZE, CHUNK, D, E, epsilon, LAST, ADD,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    CUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From the gradient of u, or before the last iteration (LAST = 0) that of T and τ, those of s, G and m."""
    await_inputs()
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * BB)
    e = tl.arange(0, EP)
    narrow = e < E
    capsule = r * J + j
    weights = W + capsule * D * E
    du = ()
    size = ()
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        du += (tl.zeros((BB, EP), tl.float32),)
        size += (graph_sizes(ptr, B, r, b, b < B, SIZE),)
    # Bounds of a loop are no branch: the last iteration has none of its steps.
    for first in range(0, tl.where(LAST != 0, 0, D), KB):
        d = first + tl.arange(0, KB)
        w = tl.load(weights + d[:, None] * E + e[None, :], mask=(d < D)[:, None] & narrow[None, :], other=0.0)
        sums = ()
        for i in tl.static_range(GROUPS):
            b = base + i * BB + tl.arange(0, BB)
            here = (b < B)[:, None] & (d < D)[None, :]
            deep = b[:, None] * D + d[None, :]
            g = tl.load(part + capsule * B * D + deep, mask=here, other=0.0)
            if CUT:
                for chunk in range(1, S):
                    also = here & (size[i] > chunk * CHUNK)[:, None]
                    g += tl.load(part + ((chunk * L + r) * J + j) * B * D + deep, mask=also, other=0.0)
            g += tl.load(T_next + capsule * B * D + deep, mask=here & (ADD != 0), other=0.0)
            tl.store(T_out + capsule * B * D + deep, g, mask=here)
            sums += (product(g, w, du[i], PRECISION),)
        du = sums
    lift = tl.load(bias + capsule * E + e, mask=narrow, other=0.0)
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        inside = b < B
        before = inside & (LAST == 0)
        mass = tl.load(part_tau + capsule * B + b, mask=before, other=0.0)
        if CUT:
            for chunk in range(1, S):
                also = before & (size[i] > chunk * CHUNK)
                mass += tl.load(part_tau + ((chunk * L + r) * J + j) * B + b, mask=also, other=0.0)
        mass += tl.load(tau_next + capsule * B + b, mask=before & (ADD != 0), other=0.0)
        tl.store(tau_out + capsule * B + b, mass, mask=before)
        block = inside[:, None] & narrow[None, :]
        wide = b[:, None] * E
        upper = tl.load(
            du_in + (r * B * J + j) * E + wide * J + e[None, :], mask=block & (LAST != 0), other=0.0
        )
        grad = upper + du[i] + mass[:, None] * lift[None, :]
        s = tl.load(s_in + capsule * B * E + wide + e[None, :], mask=block, other=0.0)
        f, derivative = squash_factor(tl.sum(s * s, 1), epsilon)
        ds = f[:, None] * grad + (2 * derivative * tl.sum(s * grad, 1))[:, None] * s
        tl.store(ds_out + capsule * B * E + wide + e[None, :], ds, mask=block)
        tl.store(dm + capsule * B + b, tl.sum(ds * lift[None, :], 1), mask=inside)
    toward = times_transposed(ds_out + capsule * B * E, weights, base, B, D, E, GROUPS, BB, KB, DP, PRECISION)
    k = tl.arange(0, DP)
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        here = (b < B)[:, None] & (k < D)[None, :]
        tl.store(dG + capsule * B * D + b[:, None] * D + k[None, :], toward[i], mask=here)


@kernel(do_not_specialize=["V", "B", "L", "J", "SIZE", "ROWS_PER_CHUNK", "GIVEN"])
def _assignment_kernel(  # type: ignore[no-untyped-def]
    h, ptr, c, dc_in, dG, dm, db, dT, dtau, V, B, L, J, SIZE, ROWS_PER_CHUNK, GIVEN, D,
    JP: tl.constexpr, DP: tl.constexpr, KB: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of the logits of a chunk of rows of a graph, and its sums; ``GIVEN``: c has a gradient of its own."""
    await_inputs()
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    d = tl.arange(0, KB)
    start, end = chunk_bounds(ptr, B, r, b, part, SIZE, ROWS_PER_CHUNK)
    # The first chunk is written even for an empty graph, the others only if they have rows.
    if (part == 0) | (start < end):
        dG_of = dG + (r * J * B + b) * D + (j * B)[:, None] * D
        dG_tiles = ()
        total = ()
        for k in tl.static_range(0, DP, KB):
            wide = (j < J)[:, None] & (k + d < D)[None, :]
            dG_tiles += (tl.load(dG_of + (k + d)[None, :], mask=wide, other=0.0),)
            total += (tl.zeros((JP, KB), tl.float32),)
        shared = tl.load(dm + r * J * B + b + j * B, mask=j < J, other=0.0)
        mass = tl.zeros((JP,), tl.float32)
        x_of = h + (r * V + start) * D
        at = (r * V + start) * J
        for first in range(0, end - start, ROWS):
            rows = first + tl.arange(0, ROWS)
            real = rows < end - start
            x = ()
            for k in tl.static_range(0, DP, KB):
                inside = real[:, None] & (k + d < D)[None, :]
                values = tl.load(x_of + rows[:, None] * D + (k + d)[None, :], mask=inside, other=0.0)
                x += (values,)
            stored = real[None, :] & (j < J)[:, None]
            offsets = rows[None, :] * J + j[:, None]
            weight = tl.load(c + at + offsets, mask=stored, other=0.0)
            grad = tl.zeros((JP, ROWS), tl.float32)
            for k in tl.static_range(DP // KB):
                grad = product(dG_tiles[k], tl.trans(x[k]), grad, PRECISION)
            grad += shared[:, None]
            grad += tl.load(dc_in + at + offsets, mask=stored & (GIVEN != 0), other=0.0)
            # Outside, the weight is 0.
            grad = weight * (grad - tl.sum(weight * grad, 0)[None, :])
            sums = ()
            for k in tl.static_range(DP // KB):
                sums += (product(grad, x[k], total[k], PRECISION),)
            total = sums
            mass += tl.sum(grad, 1)
            tl.store(db + at + offsets, grad, mask=stored)
        offset = (part * L + r) * J * B + b
        dT_of = dT + offset * D + (j * B)[:, None] * D
        for k in tl.static_range(DP // KB):
            wide = (j < J)[:, None] & (k * KB + d < D)[None, :]
            tl.store(dT_of + (k * KB + d)[None, :], total[k], mask=wide)
        tl.store(dtau + offset + j * B, mass, mask=j < J)


@kernel(do_not_specialize=["V", "B", "L", "J", "LATER", "SIZE", "ROWS_PER_CHUNK"])
def _input_kernel(  # type: ignore[no-untyped-def]
    c, db, dG, T, ptr, dh, V, B, L, J, LATER, SIZE, ROWS_PER_CHUNK, D,
    JP: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of a chunk of rows of a graph, over all iterations."""
    await_inputs()
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    d = tl.arange(0, DP)
    if b < B:
        start, end = chunk_bounds(ptr, B, r, b, part, SIZE, ROWS_PER_CHUNK)
        if start < end:
            wide = (j < J)[:, None] & (d < D)[None, :]
            of_graph = (r * J * B + b) * D + (j * B)[:, None] * D + d[None, :]
            # Iteration 0: c = 1/J for all rows.
            common = tl.sum(tl.load(dG + of_graph, mask=wide, other=0.0), 0) / J
            dh_of = dh + (r * V + start) * D
            for first in range(0, end - start, ROWS):
                rows = first + tl.arange(0, ROWS)
                real = rows < end - start
                held = real[:, None] & (j < J)[None, :]
                total = tl.zeros((ROWS, DP), tl.float32) + common[None, :]
                for i in range(0, LATER):
                    at = ((i * L + r) * V + start) * J + rows[:, None] * J + j[None, :]
                    weight = tl.load(c + at, mask=held, other=0.0)
                    grad_G = tl.load(dG + (i + 1) * L * J * B * D + of_graph, mask=wide, other=0.0)
                    total = product(weight, grad_G, total, PRECISION)
                    logits = tl.load(db + at, mask=held, other=0.0)
                    toward = tl.load(T + i * L * J * B * D + of_graph, mask=wide, other=0.0)
                    total = product(logits, toward, total, PRECISION)
                inside = real[:, None] & (d < D)[None, :]
                tl.store(dh_of + rows[:, None] * D + d[None, :], total, mask=inside)
    else:
        tail = tl.load(ptr + r * (B + 1) + B).to(tl.int32) + part * ROWS
        for first in range(tail, V, tl.num_programs(2) * ROWS):
            rows = first + tl.arange(0, ROWS)
            inside = (rows < V)[:, None] & (d < D)[None, :]
            tl.store(
                dh + (r * V + rows)[:, None] * D + d[None, :], tl.zeros((ROWS, DP), tl.float32), mask=inside
            )


@triton.jit
def _outer_products(  # type: ignore[no-untyped-def]
    left, mass, right, total, lift, count, stride, base, B, D, E,
    GROUPS: tl.constexpr, DB: tl.constexpr, KB: tl.constexpr, EP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Adds Σ left rightᵀ and Σ mass right over ``count`` iterations, ``stride`` graphs apart, and B graphs."""
    e = tl.arange(0, EP)
    steps = tl.cdiv(B, KB)
    for step in range(0, count * steps):
        b = step % steps * KB + tl.arange(0, KB)
        inside = b < B
        at = (step // steps) * stride + b
        grad = tl.load(
            right + at[:, None] * E + e[None, :], mask=inside[:, None] & (e < E)[None, :], other=0.0
        )
        sums = ()
        for i in tl.static_range(GROUPS):
            d = base + i * DB + tl.arange(0, DB)
            here = inside[:, None] & (d < D)[None, :]
            g = tl.load(left + at[:, None] * D + d[None, :], mask=here, other=0.0)
            sums += (product(tl.trans(g), grad, total[i], PRECISION),)
        total = sums
        lift += tl.sum(tl.load(mass + at, mask=inside, other=0.0)[:, None] * grad, 0)
    return total, lift


@kernel(do_not_specialize=["B", "L", "J", "LATER", "SIZE"])
def _parameter_kernel(  # type: ignore[no-untyped-def]
    G_first, G, m, ptr, ds, dT, dtau, u, dW, dbias, B, L, J, LATER, SIZE, D, E,
    GROUPS: tl.constexpr, DB: tl.constexpr, KB: tl.constexpr, EP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of a block of rows of a weight, and of its bias."""
    await_inputs()
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * DB)
    e = tl.arange(0, EP)
    narrow = e < E
    capsule = r * J + j
    total = ()
    for _ in tl.static_range(GROUPS):
        total += (tl.zeros((DB, EP), tl.float32),)
    lift = tl.zeros((EP,), tl.float32)
    for first in range(0, B, KB):  # iteration 0: c = 1/J, one sum for all output capsules
        b = first + tl.arange(0, KB)
        inside = b < B
        block = inside[:, None] & narrow[None, :]
        grad = tl.load(ds + capsule * B * E + b[:, None] * E + e[None, :], mask=block, other=0.0) / J
        sums = ()
        for i in tl.static_range(GROUPS):
            d = base + i * DB + tl.arange(0, DB)
            here = inside[:, None] & (d < D)[None, :]
            g = tl.load(G_first + r * B * D + b[:, None] * D + d[None, :], mask=here, other=0.0)
            sums += (product(tl.trans(g), grad, total[i], PRECISION),)
        total = sums
        lift += tl.sum(graph_sizes(ptr, B, r, b, inside, SIZE).to(tl.float32)[:, None] * grad, 0)
    stride = L.to(tl.int64) * J * B  # graphs of an iteration
    total, lift = _outer_products(
        G + capsule * B * D, m + capsule * B, ds + (stride + capsule * B) * E, total, lift,
        LATER, stride, base, B, D, E, GROUPS, DB, KB, EP, PRECISION,
    )  # fmt: skip
    total, lift = _outer_products(
        dT + capsule * B * D, dtau + capsule * B, u + capsule * B * E, total, lift,
        LATER, stride, base, B, D, E, GROUPS, DB, KB, EP, PRECISION,
    )  # fmt: skip
    for i in tl.static_range(GROUPS):
        d = base + i * DB + tl.arange(0, DB)
        offsets = capsule * D * E + d[:, None] * E + e[None, :]
        tl.store(dW + offsets, total[i], mask=(d < D)[:, None] & narrow[None, :])
    if tl.program_id(0) == 0:
        tl.store(dbias + capsule * E + e, lift, mask=narrow)
