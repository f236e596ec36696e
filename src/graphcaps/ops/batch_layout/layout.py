"""Graphs of a store laid out one after another as the rows of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import select
from graphcaps.types import BatchLayout

__all__ = ["layout_batch"]


def layout_batch(
    node_ptr: Tensor,
    order: Tensor,
    num_rows: int,
    *,
    classes: Tensor | None = None,
    cursor: Tensor | None = None,
    batch_size: int | None = None,
) -> BatchLayout:
    """Lays graphs out one after another, by index arithmetic on the device.

    Args:
        node_ptr (Tensor): First node of each graph of the store, and the end of the last, ``[G + 1]``.
        order (Tensor): Graphs, −1 for none, ``[*lead, B]``; with a cursor those of many steps, ``[*lead, ≥ B]``.
        num_rows (int): V; at least the number of nodes of each replica's graphs.
        classes (Tensor, optional): Class of each graph of the store, ``[G]``.
        cursor (Tensor, optional): Number of the step, ``[]``; the graphs are those from ``cursor · B`` on.
        batch_size (int, optional): B, with a cursor.
    """
    form = select("layout_batch", _layout_batch, order)
    return form(node_ptr, order, num_rows, classes=classes, cursor=cursor, batch_size=batch_size)


def _layout_batch(
    node_ptr: Tensor,
    order: Tensor,
    num_rows: int,
    *,
    classes: Tensor | None = None,
    cursor: Tensor | None = None,
    batch_size: int | None = None,
) -> BatchLayout:
    graphs = order
    if cursor is not None and batch_size is not None:
        columns = cursor * batch_size + torch.arange(batch_size, device=order.device)
        graphs = order.index_select(-1, columns)
    *lead, B = graphs.shape
    graph, none = graphs.clamp_min(0), graphs < 0
    start = node_ptr[graph]
    sizes = (node_ptr[graph + 1] - start).masked_fill(none, 0)
    ptr = torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))  # [*lead, B + 1]
    row = torch.arange(num_rows, device=graphs.device).expand(*lead, num_rows).contiguous()
    index = torch.searchsorted(ptr[..., 1:].contiguous(), row, right=True)  # B after the last graph
    graph_of_row = index.clamp_max(B - 1)
    padding = index == B
    first = ptr[..., :-1].gather(-1, graph_of_row)
    node = (start.gather(-1, graph_of_row) + row - first).masked_fill_(padding, -1)
    y = None if classes is None else classes[graph].masked_fill(none, -1)
    return BatchLayout(
        graphs, ptr, index, node, first.masked_fill_(padding, 0), ~padding, sizes > 0, y, ~none.all(-1)
    )
