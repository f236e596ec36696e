"""Routing by agreement in fused kernels: R passes over h, and no stored logits.

The algorithm of :mod:`graphcaps.ops.routing.factored`. The sums over rows are in
:mod:`graphcaps.ops.routing.weighted_sum_triton`, the steps between them in
:mod:`graphcaps.ops.routing.agreement_triton`, and what follows the last one in
:mod:`graphcaps.ops.routing.capsule_update_triton`. There are 2 R + 1 launches forward (one more if graphs are split in
chunks) and 4 backward. With gradient through the assignments the backward pass is that of
:mod:`graphcaps.ops.routing.route_gradient_triton`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.precision import dot_precision
from graphcaps.ops.routing.agreement_triton import agreement_matrices, update_agreement
from graphcaps.ops.routing.capsule_update_triton import (
    capsule_gradients,
    final_capsules,
    parameter_gradients,
)
from graphcaps.ops.routing.route_gradient_triton import RouteWithGradient
from graphcaps.ops.routing.weighted_sum_triton import Rows, assign_and_sum, input_gradient, sum_rows
from graphcaps.ops.squash import RELEASED_EPSILON
from graphcaps.types import Routing, Segments

__all__ = ["route_dense_triton", "route_triton"]


def route_triton(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    segments: Segments,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
) -> Routing:
    """Same arguments and result as :func:`graphcaps.ops.routing.factored.route_factored`.

    The dispatch table states the sizes that are supported.
    """
    V, B = segments.num_rows, segments.num_graphs
    lead, J = h.shape[:-2], weight.size(-3)
    size = segments.max_size or 1
    shape = (segments.ptr.reshape(-1, B + 1), segments.index.reshape(-1, V), size, lead.numel(), V, B)
    u, c = _run(h, weight, bias, residual, shape, iterations, detach, epsilon)
    return Routing(u.reshape(*lead, B, J, -1), c.reshape(*lead, V, J))


def route_dense_triton(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    iterations: int,
    residual: Tensor | None = None,
    detach: bool = True,
    epsilon: float = RELEASED_EPSILON,
    sums: Tensor | None = None,
) -> Routing:
    """Same arguments and result as :func:`graphcaps.ops.routing.factored.route_dense_factored`, under the same
    conditions as :func:`route_triton`."""
    *lead, B, n, _ = h.shape
    J = weight.size(-3)
    # Kernels do not read ``ptr`` here, but need a valid pointer.
    unused = torch.empty(1, dtype=torch.long, device=h.device)
    shape = (unused, None, n, torch.Size(lead).numel(), B * n, B)
    u, c = _run(h, weight, bias, residual, shape, iterations, detach, epsilon, sums)
    return Routing(u.reshape(*lead, B, J, -1), c.reshape(*lead, B, n, J))


def _run(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    residual: Tensor | None,
    shape: tuple[Tensor, Tensor | None, int, int, int, int],
    iterations: int,
    detach: bool,
    epsilon: float,
    sums: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Folds the leading axes into one."""
    *_, L, V, B = shape
    J, d, e = weight.shape[-3:]
    flat = None if residual is None else residual.reshape(L, B, e)
    inputs = (h.reshape(L, V, d), weight.reshape(L, J, d, e), bias.reshape(L, J, e), flat)
    need_grad = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in inputs
    )
    if need_grad and not detach and iterations > 1:  # a single iteration has constant assignments
        u, c = RouteWithGradient.apply(*inputs, shape, iterations, epsilon)
    else:
        sums = None if sums is None else sums.detach().reshape(L, B, d)
        u, c = _Route.apply(*inputs, shape, iterations, epsilon, need_grad, sums)
    return u, c


class _Route(torch.autograd.Function):
    """All iterations. The assignments c are constants for the gradient, so only the last sum carries one."""

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
        need_grad: bool,
        sums: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        precision = dot_precision()
        ptr, index, size, L, V, B = shape
        h, weight, bias = h.contiguous(), weight.contiguous(), bias.contiguous()
        residual = None if residual is None else residual.contiguous()
        rows = Rows(ptr.contiguous(), size, L, V, B, fixed=index is None)
        # First iteration: c = 1/J, and one sum for all output capsules.
        m = T = tau = c = None
        G = sum_rows(h, rows) if sums is None else sums.contiguous()
        agreement = agreement_matrices(weight, bias, precision) if iterations > 1 else None
        for iteration in range(1, iterations):
            assert agreement is not None
            T, tau = update_agreement(G, m, agreement, T, tau, rows, epsilon, precision)
            G, m, c = assign_and_sum(h, T, tau, rows, iteration == iterations - 1, precision)
        u, s, G, m = final_capsules(G, m, weight, bias, residual, rows, epsilon, need_grad, precision)
        if c is None:
            J = weight.size(1)
            if index is None:
                c = h.new_full((L, V, J), 1 / J)
            else:
                c = ((index < B).to(h.dtype) / J).unsqueeze(-1).expand(L, V, J).contiguous()
        if need_grad:
            ctx.save_for_backward(weight, s, G, m, c, rows.ptr)
            ctx.rows, ctx.epsilon, ctx.precision = (size, L, V, B, index is None), epsilon, precision
        ctx.mark_non_differentiable(c)
        ctx.set_materialize_grads(False)  # autograd would fill zeros of the size of c
        return u, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, du: Tensor, _: Tensor) -> Any:
        weight, s, G, m, c, ptr = ctx.saved_tensors
        rows = Rows(ptr, *ctx.rows)
        for_h, for_weight, for_bias, for_residual, *_ = ctx.needs_input_grad
        ds, dG = capsule_gradients(s, du.contiguous(), weight, ctx.epsilon, ctx.precision)
        dh = dres = None
        if for_h:
            dh, dres = input_gradient(c, dG, rows, ctx.precision, ds if for_residual else None)
        elif for_residual:
            dres = ds.sum(1)
        dW, dbias = (
            parameter_gradients(G, m, ds, rows, ctx.precision) if for_weight or for_bias else (None, None)
        )
        return dh, dW, dbias, dres, *[None] * 5
