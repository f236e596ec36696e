"""Squash: a vector's direction kept, its length brought between 0 and 1."""

from __future__ import annotations

from torch import Tensor

__all__ = ["RELEASED_EPSILON", "squash"]

RELEASED_EPSILON = 1e-7
"""What the released program adds to the squared norm inside the square root."""


def squash(z: Tensor, epsilon: float = RELEASED_EPSILON) -> Tensor:
    r"""Squashes vectors along the last axis (HGCN, Eq. 3).

    .. math:: \mathrm{squash}(z) = \frac{\|z\|^2}{1 + \|z\|^2} \frac{z}{\sqrt{\|z\|^2 + \epsilon}}

    Args:
        z (Tensor): Vectors, ``[…, d]``.
        epsilon (float): Added inside the root as the released program does; with 0 the paper's formula,
            completed by squash(0) = 0 with gradient 0. (default: 1e-7)

    Returns:
        Tensor: Vectors of length below 1, ``[…, d]``.
    """
    squared = z.square().sum(-1, keepdim=True)
    if epsilon > 0:
        return z * (squared / ((1 + squared) * (squared + epsilon).sqrt()))
    # The root has no finite slope at zero, the product has: keep zero out of the root.
    zero = squared == 0
    length = squared.masked_fill(zero, 1).sqrt()
    return z * (length / (1 + squared)).masked_fill(zero, 0)
