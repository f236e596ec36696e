"""The clamp of the coarse adjacency in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["clamp_adjacency"]

_NUMBERS = 1024
"""Numbers of a program."""


def clamp_adjacency(adjacency: Tensor) -> Tensor:
    """As :func:`graphcaps.ops.clamp_adjacency`, without gradient."""
    adjacency = adjacency.contiguous()
    clamped, J = torch.empty_like(adjacency), adjacency.size(-1)
    _clamp_kernel[(triton.cdiv(adjacency.numel(), _NUMBERS),)](
        adjacency, clamped, adjacency.numel(), J, SIZE=_NUMBERS, num_warps=4
    )
    return clamped


@triton.jit(do_not_specialize=["count", "J"])
def _clamp_kernel(adjacency, clamped, count, J, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    value = tl.load(adjacency + at, mask=at < count, other=0.0)
    entry = at % (J * J)
    value = tl.where(value > 1, 1.0, value)  # NaN stays
    tl.store(clamped + at, tl.where(entry // J == entry % J, 0.0, value), mask=at < count)
