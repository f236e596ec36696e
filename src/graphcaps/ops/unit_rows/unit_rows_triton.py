"""Rows scaled to length 1 and their gradient, one launch each."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops._triton.arithmetic import tile_width

__all__ = ["unit_rows"]


def unit_rows(x: Tensor) -> Tensor:
    """As :func:`graphcaps.ops.unit_rows.unit_rows.unit_rows`."""
    y: Tensor = _UnitRows.apply(x)
    return y


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        y, inverse = torch.empty_like(x), x.new_empty(x.shape[:-1])
        _scale_kernel[_grid(x)](x, y, inverse, inverse.numel(), x.size(-1), **_options(x))
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, inverse = ctx.saved_tensors
        dx = torch.empty_like(y)
        _gradient_kernel[_grid(y)](
            y, inverse, grad.contiguous(), dx, inverse.numel(), y.size(-1), **_options(y)
        )
        return dx


def _options(x: Tensor) -> dict[str, Any]:
    width = tile_width(x.size(-1))
    return {"ROWS": max(1, 2048 // width), "WIDTH": width, "num_warps": 4}


def _grid(x: Tensor) -> tuple[int]:
    return (triton.cdiv(x.numel() // x.size(-1), _options(x)["ROWS"]),)


@triton.jit(do_not_specialize=["N"])
def _scale_kernel(x, y, inverses, N, d, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    inside = (row < N)[:, None] & (k < d)[None, :]
    offsets = row.to(tl.int64)[:, None] * d + k[None, :]
    value = tl.load(x + offsets, mask=inside, other=0.0)
    inverse = 1 / tl.maximum(tl.sqrt(tl.sum(value * value, 1)), 1e-12)
    tl.store(y + offsets, value * inverse[:, None], mask=inside)
    tl.store(inverses + row, inverse, mask=row < N)


@triton.jit(do_not_specialize=["N"])
def _gradient_kernel(  # type: ignore[no-untyped-def]
    y, inverses, grad, dx, N, d, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, WIDTH)
    inside = (row < N)[:, None] & (k < d)[None, :]
    offsets = row.to(tl.int64)[:, None] * d + k[None, :]
    value = tl.load(y + offsets, mask=inside, other=0.0)
    g = tl.load(grad + offsets, mask=inside, other=0.0)
    inverse = tl.load(inverses + row, mask=row < N, other=0.0)
    change = (g - value * tl.sum(g * value, 1)[:, None]) * inverse[:, None]
    tl.store(dx + offsets, change, mask=inside)
