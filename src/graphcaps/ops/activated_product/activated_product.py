r"""A linear map of one or two tensors side by side, followed by a normalised activation, as one operation.

.. math:: y = h + f\big(\mathrm{BN}([x_1, x_2]\, W)\big)

with the activation f of :mod:`graphcaps.ops.batch_norm.activated_norm`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import autocast_enabled
from graphcaps.ops.batch_norm.activated_norm import activated_norm
from graphcaps.ops.batch_norm.batch_norm import Running

__all__ = ["Parts", "activated_product"]

Parts = tuple[Tensor] | tuple[Tensor, Tensor]
"""One tensor, or two of equal shape, ``[*lead, V, K]``."""


def activated_product(
    parts: Parts,
    matrix: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    residual: Tensor | None = None,
    *,
    gated: bool = False,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    r"""Multiplies rows by a matrix, normalises and activates them, and adds a residual.

    Args:
        parts (tuple): :math:`x_1`, or :math:`x_1` and :math:`x_2`, ``[*lead, V, K]`` each; padding rows are finite.
        matrix (Tensor): W, ``[*lead, K · len(parts), C]``, with 2 C columns if ``gated``.
        mask, weight, bias, running, residual, gated, training, momentum, epsilon: As in
            :func:`graphcaps.ops.batch_norm.activated_norm.activated_norm`.

    Returns:
        Tensor: ``[*lead, V, C]``; at padding rows, the residual.

    Raises:
        ShapeError: If two parts have different shapes, or as in ``activated_norm``.
    """
    if parts[-1].shape != parts[0].shape:
        shape = list(parts[0].shape)
        raise ShapeError("activated_product", "parts", f"have the same shape, {shape}", list(parts[-1].shape))
    form = select("activated_product", _activated_product, parts[0], parts[-1], matrix, weight, residual)
    if autocast_enabled(matrix):
        form = _activated_product  # torch decides the precision of the product
    return form(
        parts, matrix, mask, weight, bias, running, residual,
        gated=gated, training=training, momentum=momentum, epsilon=epsilon,
    )  # fmt: skip


def _activated_product(
    parts: Parts,
    matrix: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    residual: Tensor | None,
    *,
    gated: bool,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    x = (parts[0] if len(parts) == 1 else torch.cat(parts, -1)) @ matrix
    return activated_norm(
        x, mask, weight, bias, running, residual,
        gated=gated, training=training, momentum=momentum, epsilon=epsilon,
    )  # fmt: skip
