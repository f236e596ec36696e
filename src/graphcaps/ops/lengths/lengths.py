"""Euclidean lengths of capsules, which are class scores."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select

__all__ = ["lengths"]


def lengths(u: Tensor) -> Tensor:
    """Euclidean lengths of capsules ``u [*lead, d]``, ``[*lead]``; the gradient at length 0 is 0."""
    return select("lengths", _lengths, u)(u)


def _lengths(u: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(u, dim=-1)
    return norms
