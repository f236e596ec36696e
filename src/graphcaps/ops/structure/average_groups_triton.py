"""Every row replaced by the mean over its group, one program per group: no list of members is gathered or scattered.

The map is linear and symmetric, so that its gradient is the map itself.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.types import CoarseLevel

__all__ = ["average_groups"]


def average_groups(x: Tensor, level: CoarseLevel) -> Tensor:
    """As :func:`graphcaps.ops.structure.pool_members.average_groups`, in float32."""
    members = level.members
    averaged: Tensor = _AverageGroups.apply(x, members.source.contiguous(), members.segments.ptr.contiguous())
    return averaged


class _AverageGroups(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, source: Tensor, ptr: Tensor) -> Tensor:
        ctx.save_for_backward(source, ptr)
        x = x.contiguous()
        out = torch.zeros_like(x)  # padding rows belong to no group
        V, d = x.shape[-2:]
        groups = ptr.size(-1) - 1
        if x.numel() and groups:
            replicas = x.numel() // (V * d)
            width = min(128, max(2, triton.next_power_of_2(d)))
            _average_kernel[(groups, replicas, triton.cdiv(d, width))](
                x, source, ptr, out, V, groups, source.size(-1), d, ROWS=8, WIDTH=width, num_warps=1
            )
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _AverageGroups.apply(grad, *ctx.saved_tensors), None, None


@triton.jit(do_not_specialize=["V", "groups", "P", "d"])
def _average_kernel(  # type: ignore[no-untyped-def]
    x, source, ptr, out, V, groups, P, d, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """A group (program 0) of a replica (1), a block of columns (2)."""
    replica = tl.program_id(1).to(tl.int64)
    begin = ptr + replica * (groups + 1) + tl.program_id(0)
    first = tl.load(begin).to(tl.int32)
    end = tl.load(begin + 1).to(tl.int32)
    columns = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    x += replica * V * d
    out += replica * V * d
    source += replica * P
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for member in range(first, end, ROWS):
        at = member + tl.arange(0, ROWS)
        row = tl.load(source + at, mask=at < end, other=0)
        inside = (at < end)[:, None] & (columns < d)[None, :]
        total += tl.load(x + row[:, None] * d + columns[None, :], mask=inside, other=0.0)
    mean = tl.sum(total, 0) / tl.maximum(end - first, 1)
    for member in range(first, end, ROWS):
        at = member + tl.arange(0, ROWS)
        row = tl.load(source + at, mask=at < end, other=0)
        inside = (at < end)[:, None] & (columns < d)[None, :]
        values = tl.zeros([ROWS, WIDTH], tl.float32) + mean[None, :]
        tl.store(out + row[:, None] * d + columns[None, :], values, mask=inside)
