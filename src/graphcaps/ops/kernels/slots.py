"""Which node of the store each slot of a batch holds, in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["slots"]

_BLOCK = 64


@triton.jit
def _slots_kernel(  # type: ignore[no-untyped-def]
    node_ptr, graphs, ptr, index, node, first, B, V, BLOCK: tl.constexpr, GRAPHS: tl.constexpr
):
    f = tl.program_id(1).to(tl.int64)
    b = tl.arange(0, GRAPHS)
    graph = tl.load(graphs + f * B + b, mask=b < B, other=-1)
    real = graph >= 0
    start = tl.load(node_ptr + graph, mask=real, other=0)
    # A batch has fewer slots than 32 bits count, and sums of those are the fast ones.
    size = (tl.load(node_ptr + graph + 1, mask=real, other=0) - start).to(tl.int32)
    end = tl.cumsum(size, 0)
    if tl.program_id(0) == 0:
        tl.store(ptr + f * (B + 1) + b + 1, end, mask=b < B)
        tl.store(ptr + f * (B + 1), 0)
    v = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # A graph lies before a slot where it ends at it or earlier; those graphs also say where the slot's begins.
    before = end[None, :] <= v[:, None]
    inside = b[None, :] < B
    own = tl.sum((before & inside).to(tl.int32), 1)
    begin = tl.sum(tl.where(before & inside, size[None, :], 0), 1)
    outside = own >= B
    base = tl.load(graphs + f * B + own, mask=~outside, other=0)
    base = tl.load(node_ptr + base, mask=~outside, other=0)
    place = f * V + v
    tl.store(index + place, own, mask=v < V)
    tl.store(node + place, tl.where(outside, -1, base + v - begin), mask=v < V)
    tl.store(first + place, tl.where(outside, 0, begin), mask=v < V)


def slots(node_ptr: Tensor, graphs: Tensor, num_slots: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Offsets ``[*lead, B + 1]`` of the graphs ``[*lead, B]``; graph, node and first slot, ``[*lead, V]`` each."""
    *lead, B = graphs.shape
    graphs = graphs.contiguous()
    ptr = graphs.new_empty(*lead, B + 1)
    index, node, first = (graphs.new_empty(*lead, num_slots) for _ in range(3))
    F = torch.Size(lead).numel()
    grid = (triton.cdiv(num_slots, _BLOCK), F)
    _slots_kernel[grid](
        node_ptr, graphs, ptr, index, node, first, B, num_slots,
        BLOCK=_BLOCK, GRAPHS=triton.next_power_of_2(B),
    )  # fmt: skip
    return ptr, index, node, first
