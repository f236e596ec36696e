"""Euclidean lengths of capsules, which are class scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import needs_plain_operations, select

__all__ = ["lengths"]


def lengths(u: Tensor) -> Tensor:
    """Euclidean lengths of capsules ``u [*lead, d]``, ``[*lead]``; the gradient at length 0 is 0."""
    return select("lengths", _lengths, u)(u)


def _lengths(u: Tensor) -> Tensor:
    if needs_plain_operations():
        norms: Tensor = torch.linalg.vector_norm(u, dim=-1)
        return norms
    norms = _Lengths.apply(u)
    return norms


class _Lengths(torch.autograd.Function):
    """Lengths, and their gradient written out."""

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(u, dim=-1)
        ctx.save_for_backward(u, norms)
        return norms

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        u, norms = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            return torch.autograd.grad(torch.linalg.vector_norm(u, dim=-1), u, grad, create_graph=True)[0]
        # Where a length is 0, u is too.
        return u * (grad / norms.masked_fill(norms == 0, 1)).unsqueeze(-1)
