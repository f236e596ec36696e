"""From projected features to capsules: ReLU, dropout and squash of the rows of a ragged batch."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import needs_plain_operations, select
from graphcaps.ops.activation.hashed_dropout import HashedDropout, apply_dropout, dropout_factors
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.squash import RELEASED_EPSILON, squash, squash_backward, squash_with_derivative

__all__ = ["BiasPosition", "activate", "relu_with_bias"]

BiasPosition = Literal["inside", "outside"]
"""Whether the bias is added before or after the ReLU."""


@full_precision
def activate(
    z: Tensor,
    bias: Tensor,
    *,
    dropout: HashedDropout | None = None,
    bias_position: BiasPosition = "inside",
    epsilon: float = RELEASED_EPSILON,
    mask: Tensor | None = None,
) -> Tensor:
    r"""ReLU, dropout and squash.

    .. math:: u = \mathrm{squash}\big(\mathrm{dropout}(\mathrm{ReLU}(z + e))\big)

    or with :math:`\mathrm{ReLU}(z) + e` where the bias is outside. The released formulation of HGCN has it inside,
    the paper's outside.

    Args:
        z (Tensor): Projected features, ``[*lead, V, d]``; finite, also at padding rows.
        bias (Tensor): e, ``[*lead, d]``.
        dropout (HashedDropout, optional): The dropout of this step. (default: none)
        bias_position (str): ``"inside"`` the ReLU or ``"outside"``. (default: "inside")
        epsilon (float): As in :func:`graphcaps.ops.squash`.
        mask (Tensor, optional): True at real rows, ``[*lead, V]``. (default: all are real)

    Returns:
        Tensor: ``[*lead, V, d]``, zero at padding rows.
    """
    form = select("activate", _activate, z, bias)
    return form(z, bias, dropout=dropout, bias_position=bias_position, epsilon=epsilon, mask=mask)


def _activate(
    z: Tensor,
    bias: Tensor,
    *,
    dropout: HashedDropout | None,
    bias_position: BiasPosition,
    epsilon: float,
    mask: Tensor | None,
) -> Tensor:
    if bias_position == "inside" and z.device.type == "cpu" and not needs_plain_operations():
        factors = None if dropout is None else dropout_factors(z.shape, dropout, mask, z.dtype)
        if factors is None and mask is not None:
            factors = mask.unsqueeze(-1).to(z.dtype)
        u: Tensor = _Activate.apply(z, bias, factors, epsilon)
        return u
    return _activate_reference(z, bias, dropout, bias_position, epsilon, mask)


def _activate_reference(
    z: Tensor,
    bias: Tensor,
    dropout: HashedDropout | None,
    bias_position: BiasPosition,
    epsilon: float,
    mask: Tensor | None,
) -> Tensor:
    """Standard operations, one after another."""
    z = relu_with_bias(z, bias, bias_position)
    if dropout is not None:
        z = apply_dropout(z, dropout, mask)
    elif mask is not None:
        z = z.masked_fill(~mask.unsqueeze(-1), 0)
    return squash(z, epsilon)


class _Activate(torch.autograd.Function):
    """squash(k ReLU(z + e)) with constant factors k ≥ 0, and its gradient written out."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor, factors: Tensor | None, epsilon: float) -> Tensor:
        a = (z + bias.unsqueeze(-2)).relu_()
        if factors is not None:
            a *= factors
        squashed = squash_with_derivative(a, epsilon)
        ctx.save_for_backward(z, bias, factors, a, squashed.factor, squashed.derivative)
        ctx.epsilon = epsilon
        return squashed.u

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        z, bias, factors, a, factor, derivative = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            kept = (z + bias.unsqueeze(-2)).relu()
            u = squash(kept if factors is None else kept * factors, ctx.epsilon)
            return *torch.autograd.grad(u, (z, bias), grad, create_graph=True), None, None
        # Where a is 0, the number is dropped or the ReLU is 0.
        dz = torch.ops.aten.threshold_backward(squash_backward(a, factor, derivative, grad), a, 0)
        if factors is not None:
            dz *= factors
        return dz, dz.sum(-2), None, None


def relu_with_bias(z: Tensor, bias: Tensor, position: BiasPosition) -> Tensor:
    """ReLU(z + e) with the bias inside, ReLU(z) + e with the bias outside."""
    e = bias.unsqueeze(-2)
    return (z + e).relu() if position == "inside" else z.relu() + e
