r"""Batch normalisation, activation and residual connection of a layer, as one operation.

.. math:: y = h + \mathrm{ReLU}(\mathrm{BN}(x)) \quad\text{or}\quad
    y = h + \mathrm{ReLU}(a) \odot \sigma(g), \quad [a, g] = \mathrm{BN}(x)
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.batch_norm.batch_norm import Running, batch_norm

__all__ = ["activated_norm", "check_residual"]


def activated_norm(
    x: Tensor,
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
    r"""Normalises rows, activates them and adds a residual.

    Args:
        x, mask, weight, bias, running, training, momentum, epsilon: As in
            :func:`graphcaps.ops.batch_norm.batch_norm.batch_norm`, with C columns, or 2 C if ``gated``.
        residual (Tensor, optional): h, ``[*lead, V, C]``. (default: 0)
        gated (bool): Whether the second half of the columns are gates g of the first, a. (default: False)

    Returns:
        Tensor: ``[*lead, V, C]``; at padding rows, h.

    Raises:
        ShapeError: If ``residual`` has another shape than the result, or gates are not half of the columns.
    """
    if gated and x.size(-1) % 2:
        raise ShapeError("activated_norm", "x", "have an even number of columns", list(x.shape))
    check_residual("activated_norm", residual, x.shape, gated)
    form = select("activated_norm", _activated_norm, x, weight)
    return form(
        x, mask, weight, bias, running, residual,
        gated=gated, training=training, momentum=momentum, epsilon=epsilon,
    )  # fmt: skip


def check_residual(operation: str, residual: Tensor | None, shape: torch.Size, gated: bool) -> None:
    """Raises a :class:`~graphcaps.errors.ShapeError` unless a residual fits rows of this shape."""
    expected = [*shape[:-1], shape[-1] // 2 if gated else shape[-1]]
    if residual is not None and list(residual.shape) != expected:
        raise ShapeError(operation, "residual", f"have the shape {expected}", list(residual.shape))


def _activated_norm(
    x: Tensor,
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
    y = batch_norm(x, mask, weight, bias, running, training=training, momentum=momentum, epsilon=epsilon)
    if gated:
        a, g = y.chunk(2, -1)
        y = a.relu() * g.sigmoid()
    else:
        y = y.relu()
    return y if residual is None else residual + y
