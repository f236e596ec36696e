"""From projected features to capsules: ReLU, dropout and squash of the rows of a ragged batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.activation.hashed_dropout import HashedDropout, apply_dropout
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.squash import RELEASED_EPSILON, squash

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
    z = relu_with_bias(z, bias, bias_position)
    if dropout is not None:
        z = apply_dropout(z, dropout, mask)
    elif mask is not None:
        z = z.masked_fill(~mask.unsqueeze(-1), 0)
    return squash(z, epsilon)


def relu_with_bias(z: Tensor, bias: Tensor, position: BiasPosition) -> Tensor:
    """ReLU(z + e) with the bias inside, ReLU(z) + e with the bias outside."""
    e = bias.unsqueeze(-2)
    return (z + e).relu() if position == "inside" else z.relu() + e
