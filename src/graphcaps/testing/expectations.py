"""The error of a model that breaks its contract, and comparisons that raise it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["ContractError", "expect", "expect_equal"]

_TOLERANCE = 1e-9


class ContractError(AssertionError):
    """A model that breaks its contract."""


def expect(condition: bool, problem: str) -> None:
    """Raises with the description of the problem unless the condition holds."""
    if not condition:
        raise ContractError(problem)


def expect_equal(
    actual: Tensor | np.ndarray, expected: Tensor | np.ndarray, what: str, tolerance: float = _TOLERANCE
) -> None:
    """Raises unless shapes are equal, and values up to ``tolerance`` times the largest expected one (at least 1).

    With a tolerance of 0 all bits of the values must agree.
    """
    actual, expected = torch.as_tensor(actual).detach(), torch.as_tensor(expected).detach()
    expect(
        actual.shape == expected.shape,
        f"{what} must have the shape {list(expected.shape)}, got {list(actual.shape)}",
    )
    if not expected.numel():
        return
    error = float((actual.double() - expected.double()).abs().max())
    scale = max(1.0, float(expected.double().abs().max()))
    expect(error <= tolerance * scale, f"{what} must be equal, but differs by {error:.3g}")
