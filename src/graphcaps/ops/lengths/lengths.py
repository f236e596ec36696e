"""Lengths of capsules: how present what they stand for is."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import kernels_serve

__all__ = ["lengths"]


def lengths(u: Tensor) -> Tensor:
    """Euclidean lengths of capsules ``u [*lead, d]``, ``[*lead]``; the gradient at length 0 is 0."""
    if kernels_serve(u):
        from graphcaps.ops.lengths import lengths_triton as kernel

        return kernel.lengths(u)
    found: Tensor = torch.linalg.vector_norm(u, dim=-1)
    return found
