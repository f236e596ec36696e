"""Lengths of rows and their gradient, a launch each."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["lengths"]


def lengths(u: Tensor) -> Tensor:
    """Euclidean lengths of ``u [*lead, d]``, ``[*lead]``; the gradient of a length 0 is 0."""
    found: Tensor = _Lengths.apply(u)
    return found


class _Lengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        u = u.contiguous()
        found = u.new_empty(u.shape[:-1])
        if found.numel():
            _lengths_kernel[_grid(u)](u, found, found.numel(), u.size(-1), **_options(u))
        ctx.save_for_backward(u, found)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        u, found = ctx.saved_tensors
        du = torch.empty_like(u)
        if found.numel():
            _slope_kernel[_grid(u)](u, found, grad.contiguous(), du, found.numel(), u.size(-1), **_options(u))
        return du


def _options(u: Tensor) -> dict[str, Any]:
    width = max(16, triton.next_power_of_2(u.size(-1)))
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
def _slope_kernel(  # type: ignore[no-untyped-def]
    u, length, grad, du, N, d, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    inside = (row < N)[:, None] & (k < d)[None, :]
    place = row.to(tl.int64)[:, None] * d + k[None, :]
    x = tl.load(u + place, mask=inside, other=0.0)
    long = tl.load(length + row, mask=row < N, other=1.0)
    slope = tl.load(grad + row, mask=row < N, other=0.0)
    # Not `long > 0`: a length that is no number has to spoil the slope.
    change = tl.where(long == 0, 0.0, slope / tl.where(long == 0, 1.0, long))
    tl.store(du + place, x * change[:, None], mask=inside)
