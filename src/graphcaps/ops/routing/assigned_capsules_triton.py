r"""Output capsules of votes with a given assignment, in fused kernels.

The last iteration of :mod:`graphcaps.ops.routing.route_triton` with assignments c that are an input:

.. math::
    G_j = \textstyle\sum_i c_{ij} h_i, \quad m_j = \sum_i c_{ij}, \quad
    u_j = \mathrm{squash}(W_j^\top G_j + m_j e_j + r)

Backward, one pass over the rows gives :math:`\bar c_{ij} = h_i \cdot \bar G_j + \bar m_j` and
:math:`\bar h_i = \sum_j c_{ij} \bar G_j`. There are 2 launches forward and 4 backward.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import product, tile_width
from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.ragged.ragged_triton import chunk_bounds, rows_per_chunk
from graphcaps.ops.routing.capsule_update_triton import final_capsules, parameter_gradients
from graphcaps.ops.routing.route_gradient_triton import capsule_and_mass_gradients
from graphcaps.ops.routing.weighted_sum_triton import Rows
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.types import Segments

__all__ = ["capsules_of_assignment"]


def capsules_of_assignment(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    assignment: Tensor,
    residual: Tensor | None = None,
    epsilon: float = RELEASED_EPSILON,
) -> Tensor:
    """As :func:`graphcaps.ops.routing.iterations.capsules_of_assignment`, for the sizes of the routing kernels."""
    V, B, lead = segments.num_rows, segments.num_graphs, h.shape[:-2]
    J, d, e = weight.shape[-3:]
    L = lead.numel()
    rows = Rows(segments.ptr.reshape(-1, B + 1).contiguous(), segments.max_size or 1, L, V, B, fixed=False)
    u: Tensor = _Capsules.apply(
        h.reshape(L, V, d),
        weight.reshape(L, J, d, e),
        bias.reshape(L, J, e),
        None if residual is None else residual.reshape(L, B, e),
        assignment.reshape(L, V, J),
        rows,
        epsilon,
    )
    return u.reshape(*lead, B, J, e)


class _Capsules(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        c: Tensor,
        rows: Rows,
        epsilon: float,
    ) -> Tensor:
        precision = dot_precision()
        h, weight, bias, c = h.contiguous(), weight.contiguous(), bias.contiguous(), c.contiguous()
        residual = None if residual is None else residual.contiguous()
        L, J, D, _ = weight.shape
        G, m = h.new_empty(rows.parts, L, J, rows.B, D), h.new_empty(rows.parts, L, J, rows.B)
        _sums_kernel[(rows.B, L, rows.parts)](
            h, c, rows.ptr, G, m, rows.V, rows.B, L, J, rows_per_chunk(rows.parts, rows.V), D,
            JP=tile_width(J), DP=tile_width(D), ROWS=rows.height, PRECISION=precision, num_warps=4, num_stages=2,
        )  # fmt: skip
        need = any(ctx.needs_input_grad)
        u, s, G, mass = final_capsules(G, m, weight, bias, residual, rows, epsilon, need, precision)
        if need:
            ctx.save_for_backward(h, weight, bias, c, s, G, mass, rows.ptr)
            ctx.rows, ctx.epsilon, ctx.precision = (rows.size, L, rows.V, rows.B, False), epsilon, precision
        return u

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, du: Tensor) -> Any:
        h, weight, bias, c, s, G, m, ptr = ctx.saved_tensors
        rows = Rows(ptr, *ctx.rows)
        ds, dG, dm = capsule_and_mass_gradients(weight, bias, du.contiguous(), s, rows, ctx)
        for_h, for_weight, for_bias, for_residual, for_c, *_ = ctx.needs_input_grad
        dh = dc = None
        if for_h or for_c:
            dh, dc = torch.empty_like(h), torch.empty_like(c)
            J, D = weight.shape[-3:-1]
            # One more program per replica and chunk writes the padding rows.
            _rows_kernel[(rows.B + 1, rows.L, rows.parts)](
                h, c, dG, dm, ptr, dh, dc, rows.V, rows.B, J, rows_per_chunk(rows.parts, rows.V), D,
                JP=tile_width(J), DP=tile_width(D), KB=min(tile_width(D), 128 if J <= 32 else 64), ROWS=rows.height,
                PRECISION=ctx.precision, num_warps=4, num_stages=2 if J <= 32 else 1,
            )  # fmt: skip
        dW, dbias = (
            parameter_gradients(G, m, ds, rows, ctx.precision) if for_weight or for_bias else (None, None)
        )
        return dh, dW, dbias, ds.sum(1) if for_residual else None, dc, None, None


@triton.jit(do_not_specialize=["V", "B", "L", "J", "ROWS_PER_CHUNK"])
def _sums_kernel(  # type: ignore[no-untyped-def]
    h, c, ptr, G, m, V, B, L, J, ROWS_PER_CHUNK, D,
    JP: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """G = Σ c h and m = Σ c of a chunk (program 2) of a graph (0) of a replica (1)."""
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    d = tl.arange(0, DP)
    start, end = chunk_bounds(ptr, B, r, b, part, 0, ROWS_PER_CHUNK)
    # The first chunk is written even for an empty graph, the others only if they have rows.
    if (part == 0) | (start < end):
        total = tl.zeros((JP, DP), tl.float32)
        mass = tl.zeros((JP,), tl.float32)
        x_of = h + (r * V + start) * D
        c_of = c + (r * V + start) * J
        for first in range(0, end - start, ROWS):
            rows = first + tl.arange(0, ROWS)
            real = rows < end - start
            held = real[None, :] & (j < J)[:, None]
            weight = tl.load(c_of + rows[None, :] * J + j[:, None], mask=held, other=0.0)
            inside = real[:, None] & (d < D)[None, :]
            x = tl.load(x_of + rows[:, None] * D + d[None, :], mask=inside, other=0.0)
            total = product(weight, x, total, PRECISION)
            mass += tl.sum(weight, 1)
        offset = (part * L + r) * J * B + b
        wide = (j < J)[:, None] & (d < D)[None, :]
        tl.store(G + offset * D + (j * B)[:, None] * D + d[None, :], total, mask=wide)
        tl.store(m + offset + j * B, mass, mask=j < J)


@triton.jit(do_not_specialize=["V", "B", "J", "ROWS_PER_CHUNK"])
def _rows_kernel(  # type: ignore[no-untyped-def]
    h, c, dG, dm, ptr, dh, dc, V, B, J, ROWS_PER_CHUNK, D,
    JP: tl.constexpr, DP: tl.constexpr, KB: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of the rows of h and c of a chunk of a graph, KB columns at a time: more exceed the shared memory."""
    b = tl.program_id(0)
    r = tl.program_id(1).to(tl.int64)
    part = tl.program_id(2)
    j = tl.arange(0, JP)
    if b < B:
        start, end = chunk_bounds(ptr, B, r, b, part, 0, ROWS_PER_CHUNK)
        if start < end:
            of_graph = (r * J * B + b) * D + (j * B)[:, None] * D
            shared = tl.load(dm + r * J * B + b + j * B, mask=j < J, other=0.0)
            for first in range(0, end - start, ROWS):
                rows = first + tl.arange(0, ROWS)
                real = rows < end - start
                held = real[:, None] & (j < J)[None, :]
                narrow = (r * V + start) * J + rows[:, None] * J + j[None, :]
                weight = tl.load(c + narrow, mask=held, other=0.0)
                grad = tl.zeros((ROWS, JP), tl.float32) + shared[None, :]
                for k in tl.static_range(0, DP, KB):
                    d = k + tl.arange(0, KB)
                    wide = (j < J)[:, None] & (d < D)[None, :]
                    grad_G = tl.load(dG + of_graph + d[None, :], mask=wide, other=0.0)
                    inside = real[:, None] & (d < D)[None, :]
                    deep = (r * V + start) * D + rows[:, None] * D + d[None, :]
                    x = tl.load(h + deep, mask=inside, other=0.0)
                    grad = product(x, tl.trans(grad_G), grad, PRECISION)
                    change = product(weight, grad_G, tl.zeros((ROWS, KB), tl.float32), PRECISION)
                    tl.store(dh + deep, change, mask=inside)
                tl.store(dc + narrow, grad, mask=held)
    else:
        tail = tl.load(ptr + r * (B + 1) + B).to(tl.int32) + part * ROWS
        for first in range(tail, V, tl.num_programs(2) * ROWS):
            rows = first + tl.arange(0, ROWS)
            outside = rows < V
            d = tl.arange(0, DP)
            deep = (r * V + rows)[:, None] * D + d[None, :]
            tl.store(dh + deep, tl.zeros((ROWS, DP), tl.float32), mask=outside[:, None] & (d < D)[None, :])
            narrow = (r * V + rows)[:, None] * J + j[None, :]
            tl.store(dc + narrow, tl.zeros((ROWS, JP), tl.float32), mask=outside[:, None] & (j < J)[None, :])
