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

from graphcaps.ops._triton.arithmetic import product, tile_width
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.ragged.ragged_triton import CHUNK, chunk_bounds, rows_per_chunk
from graphcaps.ops.routing.capsule_update_triton import (
    UpdateTiles,
    WeightTiles,
    add_chunks,
    graph_sizes,
    launch_update,
    outer_products,
    size_products,
    squash_factor,
    times_transposed,
    times_weights,
    weight_programs,
)
from graphcaps.ops.routing.weighted_sum_triton import Rows, assign_and_sum, sum_rows, tile_options

__all__ = ["RouteWithGradient"]

PARAMETER_TILES = WeightTiles(groups=1, registers=128)
"""Of the gradient of the weights. With all iterations there is more to read than with the last, so tiles are wider."""
GRADIENT_TILES = UpdateTiles(warps_single=8, stages=5)
"""Of the gradients of the output capsules of an iteration, which need more registers than the output capsules."""


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
                tensors = {"T_out": T[r], "tau_out": tau[r], "s_out": s[r], "u_out": u[r]}
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
    options = GRADIENT_TILES.options(B, L * J, D, E, ctx.precision)
    part, part_tau = (du, du) if sums is None else sums
    _capsule_kernel[GRADIENT_TILES.grid(B, J, L, options)](
        # Unused pointers must be valid, too. The weights are passed twice for the reason given in launch_update.
        du, part, part_tau, dT[r + 1] if add else du, dtau[r + 1] if add else du, rows.ptr, weight, weight, bias, s[r],
        ds[r], dG[r], dm[r], du if last else dT[r], du if last else dtau[r],
        B, L, J, rows.parts, rows.fixed_size, CHUNK, D, E, ctx.epsilon, int(add),
        LAST=last, CUT=rows.parts > 1, PRECISION=ctx.precision, **options,
    )  # fmt: skip


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
        JP=tile_width(J), DP=tile_width(D), ROWS=rows.height, PRECISION=ctx.precision, num_warps=4, num_stages=2,
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
    options = PARAMETER_TILES.options(D, E, ctx.precision)
    _parameter_kernel[(weight_programs(D, E, options), J, L)](
        G_first, G, m, rows.ptr, ds, dT, dtau, u, dW, dbias, B, L, J, later, rows.fixed_size, D, E,
        PRECISION=ctx.precision, **options,
    )  # fmt: skip
    return dW, dbias


@triton.jit(do_not_specialize=["B", "L", "J", "S", "SIZE", "CHUNK", "ADD"])
def _capsule_kernel(  # type: ignore[no-untyped-def]
    du_in, part, part_tau, T_next, tau_next, ptr, W, W_again, bias, s_in, ds_out, dG, dm, T_out, tau_out,
    B, L, J, S, SIZE, CHUNK, D, E, epsilon, ADD,
    GROUPS: tl.constexpr, BB: tl.constexpr, KB: tl.constexpr, NB: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    STAGES: tl.constexpr, LAST: tl.constexpr, CUT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From the gradient of u, or before the last iteration that of T and τ, those of s, G and m."""
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    base = tl.program_id(0) * (GROUPS * BB)
    e = tl.arange(0, EP)
    narrow = e < E
    capsule = r * J + j
    lift = tl.load(bias + capsule * E + e, mask=narrow, other=0.0)
    if not LAST:
        chunks = S if CUT else 1
        stride = L.to(tl.int64) * J * B
        total_of = T_out + capsule * B * D
        mass = ()
        for i in tl.static_range(GROUPS):
            b = base + i * BB + tl.arange(0, BB)
            inside = b < B
            size = graph_sizes(ptr, B, r, b, inside, SIZE)
            add_chunks(
                total_of, part + capsule * B * D, T_next + capsule * B * D, size, stride * D,
                base + i * BB, B, D, chunks, CHUNK, ADD, BB, DP,
            )  # fmt: skip
            total = tl.load(part_tau + capsule * B + b, mask=inside, other=0.0)
            if CUT:
                for chunk in range(1, S):
                    also = inside & (size > chunk * CHUNK)
                    total += tl.load(part_tau + chunk * stride + capsule * B + b, mask=also, other=0.0)
            total += tl.load(tau_next + capsule * B + b, mask=inside & (ADD != 0), other=0.0)
            tl.store(tau_out + capsule * B + b, total, mask=inside)
            mass += (total,)
        tl.debug_barrier()  # the product reads what was just stored
        du = times_weights(
            total_of, W + capsule * D * E, base, B, D, E, GROUPS, BB, KB, EP, STAGES, PRECISION
        )
    grad = ()
    for i in tl.static_range(GROUPS):
        b = base + i * BB + tl.arange(0, BB)
        inside = b < B
        block = inside[:, None] & narrow[None, :]
        wide = b[:, None] * E
        s = tl.load(s_in + capsule * B * E + wide + e[None, :], mask=block, other=0.0)
        if LAST:
            upper = tl.load(du_in + (r * B * J + j) * E + wide * J + e[None, :], mask=block, other=0.0)
        else:
            upper = du[i] + mass[i][:, None] * lift[None, :]
        f, derivative = squash_factor(tl.sum(s * s, 1), epsilon)
        ds = f[:, None] * upper + (2 * derivative * tl.sum(s * upper, 1))[:, None] * s
        tl.store(ds_out + capsule * B * E + wide + e[None, :], ds, mask=block)
        tl.store(dm + capsule * B + b, tl.sum(ds * lift[None, :], 1), mask=inside)
        grad += (ds,)
    out = dG + capsule * B * D
    again = W_again + capsule * D * E
    times_transposed(grad, again, out, out, base, B, D, E, 0, GROUPS, BB, NB, EP, STAGES, PRECISION)


@triton.jit(do_not_specialize=["V", "B", "L", "J", "SIZE", "ROWS_PER_CHUNK", "GIVEN"])
def _assignment_kernel(  # type: ignore[no-untyped-def]
    h, ptr, c, dc_in, dG, dm, db, dT, dtau, V, B, L, J, SIZE, ROWS_PER_CHUNK, GIVEN, D,
    JP: tl.constexpr, DP: tl.constexpr, KB: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of the logits of a chunk of rows of a graph, and its sums; ``GIVEN``: c has a gradient of its own."""
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


@triton.jit(do_not_specialize=["V", "B", "L", "J", "LATER", "SIZE", "ROWS_PER_CHUNK"])
def _input_kernel(  # type: ignore[no-untyped-def]
    c, db, dG, T, ptr, dh, V, B, L, J, LATER, SIZE, ROWS_PER_CHUNK, D,
    JP: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradient of a chunk of rows of a graph, over all iterations."""
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
            stride = L.to(tl.int64) * J * B * D
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
                    grad_G = tl.load(dG + (i + 1) * stride + of_graph, mask=wide, other=0.0)
                    total = product(weight, grad_G, total, PRECISION)
                    logits = tl.load(db + at, mask=held, other=0.0)
                    toward = tl.load(T + i * stride + of_graph, mask=wide, other=0.0)
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
def _mass_products(  # type: ignore[no-untyped-def]
    total, mass, right, mass_after, right_after, turn, count, stride, column, B, E,
    EB: tl.constexpr, KB: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Adds mass · right to a tile ``[KB, EB]``, over the blocks of graphs of :func:`outer_products`."""
    e = column + tl.arange(0, EB)
    steps = tl.cdiv(B, KB)
    for step in tl.range(0, count * steps, num_stages=STAGES):
        block = step // steps
        after = block >= turn
        offset = tl.where(after, block - turn, block) * stride
        b = step % steps * KB + tl.arange(0, KB)
        inside = b < B
        right_of = tl.where(after, right_after, right) + offset * E
        grad = tl.load(
            right_of + b[:, None] * E + e[None, :], mask=inside[:, None] & (e < E)[None, :], other=0.0
        )
        mass_of = tl.where(after, mass_after, mass) + offset
        total += tl.load(mass_of + b, mask=inside, other=0.0)[:, None] * grad
    return total


@triton.jit(do_not_specialize=["B", "L", "J", "LATER", "SIZE"])
def _parameter_kernel(  # type: ignore[no-untyped-def]
    G_first, G, m, ptr, ds, dT, dtau, u, dW, dbias, B, L, J, LATER, SIZE, D, E,
    GROUPS: tl.constexpr, DB: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles of the gradient of a weight, or in one more program for each block of columns that of the bias."""
    j = tl.program_id(1)
    r = tl.program_id(2).to(tl.int64)
    tiles = tl.cdiv(D, GROUPS * DB)
    row = tl.program_id(0) % (tiles + 1) * (GROUPS * DB)
    column = tl.program_id(0) // (tiles + 1) * EB
    e = column + tl.arange(0, EB)
    narrow = e < E
    capsule = r * J + j
    stride = L.to(tl.int64) * J * B  # graphs of an iteration
    share = 1.0 / J  # iteration 0: c = 1/J, one sum for all output capsules
    ds_first = ds + capsule * B * E
    ds_later = ds_first + stride * E
    u_of = u + capsule * B * E
    if row < D:
        total = ()
        for _ in tl.static_range(GROUPS):
            total += (tl.zeros((DB, EB), tl.float32),)
        source = G_first + r * B * D
        first = outer_products(
            total, source, ds_first, source, ds_first, 1, 1, 0,
            row, column, B, D, E, GROUPS, DB, EB, KB, PRECISION,
        )  # fmt: skip
        total = ()
        for i in tl.static_range(GROUPS):
            total += (share * first[i],)
        total = outer_products(
            total, G + capsule * B * D, ds_later, dT + capsule * B * D, u_of, LATER, 2 * LATER, stride,
            row, column, B, D, E, GROUPS, DB, EB, KB, PRECISION,
        )  # fmt: skip
        for i in tl.static_range(GROUPS):
            d = row + i * DB + tl.arange(0, DB)
            offsets = capsule * D * E + d[:, None] * E + e[None, :]
            tl.store(dW + offsets, total[i], mask=(d < D)[:, None] & narrow[None, :])
    else:
        lift = tl.zeros((KB, EB), tl.float32)
        lift = share * size_products(lift, m, ptr, ds_first, r, column, B, E, SIZE, 1, EB, KB, STAGES)
        lift = _mass_products(
            lift, m + capsule * B, ds_later, dtau + capsule * B, u_of, LATER, 2 * LATER, stride,
            column, B, E, EB, KB, STAGES,
        )  # fmt: skip
        tl.store(dbias + capsule * E + e, tl.sum(lift, 0), mask=narrow)
