r"""Routing whose assignments are constants for the gradient, as one autograd function.

The iterations are those of :mod:`graphcaps.ops.routing.factored`. Only the last sum carries a gradient:

.. math::
    G_j = \textstyle\sum_i c_{ij} h_i, \quad m_j = \sum_i c_{ij}, \quad
    s_j = W_j^\top G_j + m_j e_j + r, \quad u_j = \mathrm{squash}(s_j)

so that with :math:`g_j`, the gradient in :math:`s_j`,

.. math::
    dW_j = \textstyle\sum_b G_j g_j^\top, \quad de_j = \sum_b m_j g_j, \quad dr = \sum_j g_j, \quad
    dh_i = \sum_j c_{ij} W_j g_j

Steps of a small model take as long as their operations are many: autograd would record each of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphcaps.ops._triton.dispatch import needs_plain_operations
from graphcaps.ops.ragged.tiles import Tiles, from_tiles, graphs_to_tiles, sum_tiles, to_tiles
from graphcaps.ops.squash import plain_squash, squash, squash_backward, squash_with_derivative
from graphcaps.types import Routing

__all__ = ["capsules_of_assignment", "is_detached_form", "route_detached"]


def is_detached_form(h: Tensor, detach: bool) -> bool:
    """Whether :func:`route_detached` serves: on a CPU, with constant assignments."""
    return detach and h.device.type == "cpu" and not needs_plain_operations()


def route_detached(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    tiles: Tiles | None,
    iterations: int,
    residual: Tensor | None,
    epsilon: float,
) -> Routing:
    """Routes input capsules, ``h [*lead, V, d]`` in tiles, or ``[*lead, B, n, d]`` without; others as in ``route``."""
    u, c = _RouteDetached.apply(h, weight, bias, residual, tiles, iterations, epsilon)
    return Routing(u, c)


class _RouteDetached(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor]:
        h, weight, bias, residual, tiles, iterations, epsilon = inputs
        lead = weight.shape[:-3]
        J = weight.size(-3)
        single = lead.numel() == 1  # without an axis of one replica, products of three axes need no reshaping
        H = to_tiles(pad(h, (0, 1), value=1), tiles)
        W = torch.cat([weight, bias.unsqueeze(-2)], -2)  # [*lead, J, d + 1, d']
        r = None if residual is None else residual.transpose(-3, -2)  # [*lead, 1, B, d']
        if single:
            H, W = H.reshape(H.shape[-3:]), W.reshape(W.shape[-3:])
            r = None if r is None else r.reshape(r.shape[-3:])
        Wt, Ht = W.mT, H.mT
        G = _to_graphs(H.sum(-2), tiles, lead, single) / J  # of assignments 1 / J
        G = G.unsqueeze(-3)  # [*lead, 1, B, d + 1]
        if single:
            G = G.expand(J, -1, -1)
        T = c = None
        for _ in range(iterations - 1):
            u = plain_squash(_product(G, W), epsilon)
            if T is None:
                T = _product(u, Wt)
            elif single:
                T.baddbmm_(u, Wt)
            else:
                T += u @ Wt
            c = _product(_to_tiles(T.transpose(-3, -2), tiles, lead, single), Ht).softmax(-2)
            G = _to_graphs(_product(c, H), tiles, lead, single).transpose(-3, -2)  # [*lead, J, B, d + 1]
        if r is None:
            s = _product(G, W)
        elif single:
            s = torch.baddbmm(r, G, W)
        else:
            s = (G @ W).add_(r)
        last = squash_with_derivative(s, epsilon)
        B = s.size(-2)
        ctx.save_for_backward(h, weight, bias, residual, G, c, s, last.factor, last.derivative)
        ctx.tiles, ctx.iterations, ctx.epsilon, ctx.single = tiles, iterations, epsilon, single
        assignment = _assignment(c, h, tiles, J)
        ctx.mark_non_differentiable(assignment)
        return last.u.transpose(-3, -2).reshape(*lead, B, J, -1), assignment

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        h, weight, bias, residual, G, c, s, factor, derivative = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *_second_derivative(ctx, grad), None, None, None
        tiles: Tiles | None = ctx.tiles
        lead, d = weight.shape[:-3], weight.size(-2)
        needs_h, _, _, needs_residual = ctx.needs_input_grad[:4]
        grad = grad.transpose(-3, -2)
        W = weight
        if ctx.single:
            grad, W = grad.reshape(grad.shape[-3:]), W.reshape(W.shape[-3:])
        g = squash_backward(s, factor, derivative, grad)  # [*lead, J, B, d']
        dweight = _product(G[..., :d].mT, g).reshape(weight.shape)
        dbias = _product(G[..., d:].mT, g).reshape(bias.shape)
        dresidual = g.sum(-3).reshape(residual.shape) if needs_residual else None
        dh = None
        if needs_h:
            dG = _to_tiles(_product(g, W.mT).transpose(-3, -2), tiles, lead, ctx.single)  # [*lead, N, J, d]
            if c is None:
                height = _tile_shape(h, tiles)[-1]
                dh = (dG.sum(-2, keepdim=True) / W.size(-3)).expand(*dG.shape[:-2], height, d)
            else:
                dh = _product(c.mT, dG)  # [*lead, N, t, d]
            dh = from_tiles(dh, tiles).reshape(h.shape)
        return dh, dweight, dbias, dresidual, None, None, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A batched product, without the views that ``@`` makes of tensors of three axes."""
    return torch.bmm(a, b) if a.dim() == 3 and b.dim() == 3 else a @ b


def _to_graphs(x: Tensor, tiles: Tiles | None, lead: torch.Size, single: bool) -> Tensor:
    """:func:`sum_tiles`, also of tensors without an axis of one replica."""
    if tiles is None or tiles.single or not single:
        return sum_tiles(x, tiles)
    total = sum_tiles(x.reshape(*lead, *x.shape), tiles)
    return total.reshape(total.shape[len(lead) :])


def _to_tiles(x: Tensor, tiles: Tiles | None, lead: torch.Size, single: bool) -> Tensor:
    """:func:`graphs_to_tiles`, also of tensors without an axis of one replica."""
    if tiles is None or tiles.single or not single:
        return graphs_to_tiles(x, tiles)
    copied = graphs_to_tiles(x.reshape(*lead, *x.shape), tiles)
    return copied.reshape(copied.shape[len(lead) :])


def _tile_shape(h: Tensor, tiles: Tiles | None) -> torch.Size:
    """``[*lead, N, t]``, or without tiles ``[*lead, B, n]``."""
    return h.shape[:-1] if tiles is None else tiles.rows.shape


def _assignment(c: Tensor | None, h: Tensor, tiles: Tiles | None, J: int) -> Tensor:
    """c of every row, ``[*lead, V, J]`` or ``[*lead, B, n, J]``; 0 at padding, 1 / J after a single iteration."""
    c = h.new_full((*_tile_shape(h, tiles), J), 1 / J) if c is None else c.mT
    return from_tiles(c, tiles).reshape(*h.shape[:-1], J)


def capsules_of_assignment(
    h: Tensor,
    weight: Tensor,
    bias: Tensor,
    tiles: Tiles | None,
    assignment: Tensor,
    residual: Tensor | None,
    epsilon: float,
) -> Tensor:
    """Output capsules, ``[*lead, B, J, d']``, of input capsules whose assignment is known, ``[*lead, V, J]``.

    Other arguments are those of :func:`route_detached`. The gradient is that of the operations, of any order.
    """
    C = to_tiles(assignment, tiles)  # [*lead, N, t, J]
    G, m = sum_tiles(C.mT @ to_tiles(h, tiles), tiles), sum_tiles(C.sum(-2), tiles)
    s = torch.einsum("...bjd,...jde->...bje", G, weight) + m.unsqueeze(-1) * bias.unsqueeze(-3)
    return squash(s if residual is None else s + residual, epsilon)


def _second_derivative(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients with a graph of their own; the assignments are constants, those of this forward pass."""
    h, weight, bias, residual, _, c, *_ = ctx.saved_tensors
    assignment = _assignment(c, h, ctx.tiles, weight.size(-3))
    u = capsules_of_assignment(h, weight, bias, ctx.tiles, assignment, residual, ctx.epsilon)
    inputs = [
        x for x, needed in zip((h, weight, bias, residual), ctx.needs_input_grad, strict=False) if needed
    ]
    grads = iter(torch.autograd.grad(u, inputs, grad, create_graph=True))
    return tuple(next(grads) if needed else None for needed in ctx.needs_input_grad[:4])
