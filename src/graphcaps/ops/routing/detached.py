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
from graphcaps.ops.ragged.tiles import Tiles, graphs_to_tiles, sum_tiles, to_tiles
from graphcaps.ops.squash import plain_squash, squash, squash_backward, squash_with_derivative
from graphcaps.types import Routing

__all__ = ["is_detached_form", "route_detached"]


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
        J, d = weight.shape[-3:-1]
        single = lead.numel() == 1  # without an axis of one replica, products of three axes need no reshaping
        H = pad(h, (0, 1), value=1)
        if tiles is not None:
            rows = H.view(-1, d + 1).index_select(0, tiles.to_tile[0]).index_fill_(0, tiles.to_tile[1], 0)
            H = rows.view(*tiles.rows.shape, d + 1)
        W = torch.cat([weight, bias.unsqueeze(-2)], -2)  # [*lead, J, d + 1, d']
        r = None if residual is None else residual.transpose(-3, -2)  # [*lead, 1, B, d']
        if single:
            H, W = H.reshape(H.shape[-3:]), W.reshape(W.shape[-3:])
            r = None if r is None else r.reshape(r.shape[-3:])
        Wt, Ht = W.mT, H.mT
        G = H.sum(-2) if tiles is None else _to_graphs(H.sum(-2), tiles, lead, single)
        G = (G / J).unsqueeze(-3)  # [*lead, 1, B, d + 1], of assignments 1 / J
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
            b = T.transpose(-3, -2)
            c = _product(b if tiles is None else _to_tiles(b, tiles, lead, single), Ht).softmax(-2)
            G = _product(c, H)  # [*lead, N, J, d + 1]
            G = (G if tiles is None else _to_graphs(G, tiles, lead, single)).transpose(-3, -2)
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
            dG = _product(g, W.mT).transpose(-3, -2)  # [*lead, B, J, d]
            dG = dG if tiles is None else _to_tiles(dG, tiles, lead, ctx.single)
            if c is None:
                dh = (dG.sum(-2, keepdim=True) / W.size(-3)).expand(*dG.shape[:-2], _height(h, tiles), d)
            else:
                dh = _product(c.mT, dG)  # [*lead, N, t, d]
            if tiles is not None:
                rows = dh.reshape(-1, d).index_select(0, tiles.to_row[0])
                dh = rows if tiles.to_row[1] is None else rows.index_fill_(0, tiles.to_row[1], 0)
            dh = dh.reshape(h.shape)
        return dh, dweight, dbias, dresidual, None, None, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A batched product, without the views that ``@`` makes of tensors of three axes."""
    return torch.bmm(a, b) if a.dim() == 3 and b.dim() == 3 else a @ b


def _to_graphs(x: Tensor, tiles: Tiles, lead: torch.Size, single: bool) -> Tensor:
    """:func:`sum_tiles`, also of tensors without an axis of one replica."""
    if tiles.single or not single:
        return sum_tiles(x, tiles)
    total = sum_tiles(x.reshape(*lead, *x.shape), tiles)
    return total.reshape(total.shape[len(lead) :])


def _to_tiles(x: Tensor, tiles: Tiles, lead: torch.Size, single: bool) -> Tensor:
    """:func:`graphs_to_tiles`, also of tensors without an axis of one replica."""
    if tiles.single or not single:
        return graphs_to_tiles(x, tiles)
    copied = graphs_to_tiles(x.reshape(*lead, *x.shape), tiles)
    return copied.reshape(copied.shape[len(lead) :])


def _height(h: Tensor, tiles: Tiles | None) -> int:
    return h.size(-2) if tiles is None else tiles.height


def _assignment(c: Tensor | None, h: Tensor, tiles: Tiles | None, J: int) -> Tensor:
    """c of every row, ``[*lead, V, J]`` or ``[*lead, B, n, J]``; 0 at padding, 1 / J after a single iteration."""
    if tiles is None:
        shape = (*h.shape[:-1], J)
        return h.new_full(shape, 1 / J) if c is None else c.mT.reshape(shape)
    index, padding = tiles.to_row
    n = index.numel()
    rows = h.new_full((n, J), 1 / J) if c is None else c.mT.reshape(-1, J).index_select(0, index)
    if padding is not None:
        rows.index_fill_(0, padding, 0)
    return rows.view(*tiles.position.shape, J)


def _second_derivative(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients with a graph of their own, through operations that autograd records.

    The assignments are constants, so they are those of this forward pass.
    """
    h, weight, bias, residual, _, c, *_ = ctx.saved_tensors
    tiles: Tiles | None = ctx.tiles
    J = weight.size(-3)
    if c is None:
        rows = h.new_full((), 1 / J).expand(*h.shape[:-1], J)
    elif tiles is None:
        rows = c.mT.reshape(*h.shape[:-1], J)
    else:
        rows = _assignment(c, h, tiles, J)
    if tiles is None:
        G, m = rows.mT @ h, rows.sum(-2)
    else:
        C = to_tiles(rows.contiguous(), tiles)
        G, m = sum_tiles(C.mT @ to_tiles(h, tiles), tiles), sum_tiles(C.sum(-2), tiles)
    s = torch.einsum("...bjd,...jde->...bje", G, weight) + m.unsqueeze(-1) * bias.unsqueeze(-3)
    u = squash(s if residual is None else s + residual, ctx.epsilon)
    inputs = [
        x for x, needed in zip((h, weight, bias, residual), ctx.needs_input_grad, strict=False) if needed
    ]
    grads = iter(torch.autograd.grad(u, inputs, grad, create_graph=True))
    return tuple(next(grads) if needed else None for needed in ctx.needs_input_grad[:4])
