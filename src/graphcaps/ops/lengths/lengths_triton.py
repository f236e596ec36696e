"""Lengths of rows and their gradient, one launch each."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width

__all__ = ["lengths"]


def lengths(u: Tensor) -> Tensor:
    """Euclidean lengths of ``u [*lead, d]``, ``[*lead]``; the gradient of a length 0 is 0."""
    norms: Tensor = _Lengths.apply(u)
    return norms


class _Lengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        u = u.contiguous()
        norms = u.new_empty(u.shape[:-1])
        if norms.numel():
            _lengths_kernel[_grid(u)](u, norms, norms.numel(), u.size(-1), **_options(u))
        ctx.save_for_backward(u, norms)
        return norms

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        u, norms = ctx.saved_tensors
        du = torch.empty_like(u)
        if norms.numel():
            _gradient_kernel[_grid(u)](
                u, norms, grad.contiguous(), du, norms.numel(), u.size(-1), **_options(u)
            )
        return du


def _options(u: Tensor) -> dict[str, Any]:
    width = tile_width(u.size(-1))
    return {"ROWS": max(1, 2048 // width), "WIDTH": width, "num_warps": 4}


def _grid(u: Tensor) -> tuple[int]:
    return (triton.cdiv(u.numel() // u.size(-1), _options(u)["ROWS"]),)


@triton.jit(do_not_specialize=["N"])
def _lengths_kernel(u, out, N, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    inside = (row < N)[:, None] & (k < d)[None, :]
    x = tl.load(u + row.to(tl.int64)[:, None] * d + k[None, :], mask=inside, other=0.0)
    tl.store(out + row, tl.sqrt(tl.sum(x * x, 1)), mask=row < N)


@triton.jit(do_not_specialize=["N"])
def _gradient_kernel(  # type: ignore[no-untyped-def]
    u, length, grad, du, N, d, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    inside = (row < N)[:, None] & (k < d)[None, :]
    offsets = row.to(tl.int64)[:, None] * d + k[None, :]
    x = tl.load(u + offsets, mask=inside, other=0.0)
    norm = tl.load(length + row, mask=row < N, other=1.0)
    dlength = tl.load(grad + row, mask=row < N, other=0.0)
    # Not `norm > 0`, so that the gradient of a NaN length is NaN.
    factor = tl.where(norm == 0, 0.0, dlength / tl.where(norm == 0, 1.0, norm))
    tl.store(du + offsets, x * factor[:, None], mask=inside)
