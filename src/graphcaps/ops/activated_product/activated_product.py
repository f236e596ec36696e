r"""A linear map of one or two tensors side by side, followed by a normalised activation, as one operation.

.. math::
    y = h + \mathrm{ReLU}\big(\mathrm{BN}([x_1, x_2]\, W)\big) \quad\text{or}\quad
    y = h + \mathrm{ReLU}(a) \odot \sigma(g), \quad [a, g] = \mathrm{BN}([x_1, x_2]\, W)

where the residual h of a residual layer is one of the tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import autocast_enabled
from graphcaps.ops.batch_norm.batch_norm import Running, batch_norm

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
        mask, weight, bias, running, training, momentum, epsilon: As in
            :func:`graphcaps.ops.batch_norm.batch_norm.batch_norm`, for the columns of W.
        residual (Tensor, optional): h, ``[*lead, V, C]``. (default: 0)
        gated (bool): Whether the second half of the columns of W gives gates g of the first, a. (default: False)

    Returns:
        Tensor: ``[*lead, V, C]``; at padding rows, the residual.

    Raises:
        ShapeError: If there are not one or two parts of equal shape, the matrix does not fit them or the norm, or the
            residual does not fit the result.
    """
    _check_shapes(parts, matrix, weight, residual, gated)
    form = select("activated_product", _activated_product, parts[0], parts[-1], matrix, weight, residual)
    if autocast_enabled(matrix):
        form = _activated_product  # torch decides the precision of the product
    return form(
        parts, matrix, mask, weight, bias, running, residual,
        gated=gated, training=training, momentum=momentum, epsilon=epsilon,
    )  # fmt: skip


def _check_shapes(parts: Parts, matrix: Tensor, weight: Tensor, residual: Tensor | None, gated: bool) -> None:
    operation, shapes = "activated_product", [list(part.shape) for part in parts]
    if not 1 <= len(parts) <= 2 or shapes[0] != shapes[-1]:
        raise ShapeError(operation, "parts", "be one tensor, or two of equal shape", shapes)
    depth, columns = len(parts) * parts[0].size(-1), weight.size(-1)
    if list(matrix.shape[-2:]) != [depth, columns]:
        raise ShapeError(operation, "matrix", f"end with the axes {[depth, columns]}", list(matrix.shape))
    if gated and columns % 2:
        raise ShapeError(operation, "matrix", "have an even number of columns", list(matrix.shape))
    expected = [*shapes[0][:-1], columns // 2 if gated else columns]
    if residual is not None and list(residual.shape) != expected:
        raise ShapeError(operation, "residual", f"have the shape {expected}", list(residual.shape))


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
    y = batch_norm(x, mask, weight, bias, running, training=training, momentum=momentum, epsilon=epsilon)
    if gated:
        a, g = y.chunk(2, -1)
        y = a.relu() * g.sigmoid()
    else:
        y = y.relu()
    return y if residual is None else residual + y
