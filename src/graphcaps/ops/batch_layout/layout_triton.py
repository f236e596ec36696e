"""The layout of a batch in one kernel.

One program per graph and replica: it sums the sizes of the graphs before its own and writes its rows.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphcaps.types import BatchLayout

__all__ = ["layout_batch"]

_BLOCK = 128
_GRAPHS = 512
"""Graphs that a program sums the sizes of, at least: few batches need a kernel of their own."""


@triton.jit(do_not_specialize=["stride", "B", "V"])
def _layout_kernel(  # type: ignore[no-untyped-def]
    node_ptr, order, cursor, classes, graphs, ptr, index, node, first, mask, graph_mask, y, active, stride, B, V,
    MOVES: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr, GRAPHS: tl.constexpr,
):  # fmt: skip
    """Writes the rows of one graph, and its part of the padding rows."""
    position = tl.program_id(0)
    f = tl.program_id(1).to(tl.int64)
    order += f * stride
    if MOVES:
        order += tl.load(cursor) * B
    b = tl.arange(0, GRAPHS)
    graph = tl.load(order + b, mask=b < B, other=-1)
    start = tl.load(node_ptr + graph, mask=graph >= 0, other=0)
    # A batch has fewer than 2³¹ rows, and sums of 32-bit integers are the fast ones.
    size = (tl.load(node_ptr + graph + 1, mask=graph >= 0, other=0) - start).to(tl.int32)
    begin = tl.sum(tl.where(b < position, size, 0), 0)
    n = tl.sum(tl.where(b == position, size, 0), 0)
    source = tl.sum(tl.where(b == position, start, 0), 0)
    total = tl.sum(size, 0)
    graph_id = tl.load(order + position)
    tl.store(graphs + f * B + position, graph_id)
    tl.store(ptr + f * (B + 1) + position + 1, (begin + n).to(tl.int64))
    tl.store(graph_mask + f * B + position, (n > 0).to(tl.int8))
    if CLASSES:
        tl.store(y + f * B + position, tl.load(classes + graph_id, mask=graph_id >= 0, other=-1))
    if position == 0:
        tl.store(ptr + f * (B + 1), tl.zeros((), tl.int64))
        tl.store(active + f, (tl.max(graph, 0) >= 0).to(tl.int8))
    lane = tl.arange(0, BLOCK)
    for at in range(0, n, BLOCK):
        inside = at + lane < n
        place = f * V + begin + at + lane
        tl.store(index + place, tl.full((BLOCK,), 0, tl.int64) + position, mask=inside)
        tl.store(node + place, source + at + lane, mask=inside)
        tl.store(first + place, tl.full((BLOCK,), 0, tl.int64) + begin, mask=inside)
        tl.store(mask + place, tl.full((BLOCK,), 1, tl.int8), mask=inside)
    # The padding rows behind the last graph are shared among all programs.
    for at in range(total + position * BLOCK, V, tl.num_programs(0) * BLOCK):
        inside = at + lane < V
        place = f * V + at + lane
        tl.store(index + place, tl.full((BLOCK,), 0, tl.int64) + B, mask=inside)
        tl.store(node + place, tl.full((BLOCK,), -1, tl.int64), mask=inside)
        tl.store(first + place, tl.full((BLOCK,), 0, tl.int64), mask=inside)
        tl.store(mask + place, tl.full((BLOCK,), 0, tl.int8), mask=inside)


def layout_batch(
    node_ptr: Tensor,
    order: Tensor,
    num_rows: int,
    *,
    classes: Tensor | None = None,
    cursor: Tensor | None = None,
    batch_size: int | None = None,
) -> BatchLayout:
    """As :func:`graphcaps.ops.batch_layout.layout.layout_batch`."""
    order = order.contiguous()
    *lead, stride = order.shape
    B = stride if batch_size is None else batch_size
    graphs, ptr = order.new_empty(*lead, B), order.new_empty(*lead, B + 1)
    index, node, first = (order.new_empty(*lead, num_rows) for _ in range(3))
    shapes = (*lead, num_rows), (*lead, B), lead
    mask, graph_mask, active = (order.new_empty(shape, dtype=torch.bool) for shape in shapes)
    y = None if classes is None else graphs.new_empty(graphs.shape)
    mask_bytes, graph_bytes, active_bytes = (each.view(torch.int8) for each in (mask, graph_mask, active))
    _layout_kernel[(B, torch.Size(lead).numel())](
        node_ptr, order, order if cursor is None else cursor, order if classes is None else classes, graphs,
        ptr, index, node, first, mask_bytes, graph_bytes, graphs if y is None else y, active_bytes,
        stride, B, num_rows, MOVES=cursor is not None, CLASSES=y is not None,
        BLOCK=_BLOCK, GRAPHS=max(_GRAPHS, triton.next_power_of_2(B)), num_warps=4,
    )  # fmt: skip
    return BatchLayout(graphs, ptr, index, node, first, mask, graph_mask, y, active)
