"""Exact scalar products of rows of fixed-point numbers, for kernels whose bits may not depend on other rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FIXED_POINT_BITS", "exact_products", "to_fixed_point"]

FIXED_POINT_BITS = 24
"""Bits after the binary point."""

_UNIT = 2.0**-FIXED_POINT_BITS


def to_fixed_point(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest multiples of 2⁻²⁴."""
    rounded: NDArray[np.float64] = np.rint(values / _UNIT) * _UNIT
    return rounded


def exact_products(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Scalar product of each row of ``left`` with each row of ``right``, ``[n, m]``, without rounding.

    A matrix product sums in an order that depends on the number of rows. Products of multiples of 2⁻²⁴ are multiples of
    2⁻⁴⁸, and sums of those below 32 are exact in float64, in any order. Rows of length at most 5 have such sums.

    Args:
        left, right (ndarray): Rows of :func:`to_fixed_point` with a Euclidean norm of at most 5, ``[n, C]`` and
            ``[m, C]``.
    """
    products: NDArray[np.float64] = left @ right.T
    return products
