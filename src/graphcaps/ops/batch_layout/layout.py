"""Graphs laid out one after another: what every slot of a batch holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphcaps.ops._triton.dispatch import kernels_serve

__all__ = ["Slots", "lay_out"]


@dataclass(frozen=True)
class Slots:
    """B graphs in V slots.

    Args:
        graphs (Tensor): Graphs of the store, −1 for none, ``[*lead, B]``.
        ptr (Tensor): First slot of each graph, and the end of the last, ``[*lead, B + 1]``.
        index (Tensor): Graph of each slot, B at padding, ``[*lead, V]``.
        node (Tensor): Node of the store in each slot, −1 at padding, ``[*lead, V]``.
        first (Tensor): First slot of the slot's graph, 0 at padding, ``[*lead, V]``.
        mask (Tensor): True at real slots, ``[*lead, V]``.
        y (Tensor, optional): Class of each graph, −1 for none, ``[*lead, B]``.
        active (Tensor): Whether there is a graph, ``[*lead]``.
    """

    graphs: Tensor
    ptr: Tensor
    index: Tensor
    node: Tensor
    first: Tensor
    mask: Tensor
    y: Tensor | None
    active: Tensor


def lay_out(
    node_ptr: Tensor,
    order: Tensor,
    num_slots: int,
    *,
    classes: Tensor | None = None,
    cursor: Tensor | None = None,
    batch_size: int | None = None,
) -> Slots:
    """Lays graphs out one after another.

    Args:
        node_ptr (Tensor): First node of each graph of the store, and the end, ``[G + 1]``.
        order (Tensor): Graphs, −1 for none, ``[*lead, B]``; with a cursor more of them, ``[*lead, ≥ B]``.
        num_slots (int): V; at least the nodes of each replica's graphs together.
        classes (Tensor, optional): Class of each graph of the store, ``[G]``.
        cursor (Tensor, optional): Number of the step ``[]``: the graphs are those from ``cursor · B`` on.
        batch_size (int, optional): B, with a cursor.
    """
    if order.is_cuda and kernels_serve(order):
        from graphcaps.ops.batch_layout.layout_triton import slots

        return slots(node_ptr, order, num_slots, classes=classes, cursor=cursor, batch_size=batch_size)
    graphs = order
    if cursor is not None and batch_size is not None:
        places = cursor * batch_size + torch.arange(batch_size, device=order.device)
        graphs = order.index_select(-1, places)
    *lead, B = graphs.shape
    known, none = graphs.clamp_min(0), graphs < 0
    start = node_ptr[known]
    sizes = (node_ptr[known + 1] - start).masked_fill(none, 0)
    ptr = torch.nn.functional.pad(sizes.cumsum(-1), (1, 0))  # [*lead, B + 1]
    slot = torch.arange(num_slots, device=graphs.device).expand(*lead, num_slots).contiguous()
    index = torch.searchsorted(ptr[..., 1:].contiguous(), slot, right=True)  # B after the last graph
    own = index.clamp_max(B - 1)
    outside = index == B
    first = ptr[..., :-1].gather(-1, own)
    node = (start.gather(-1, own) + slot - first).masked_fill_(outside, -1)
    y = None if classes is None else classes[known].masked_fill(none, -1)
    return Slots(graphs, ptr, index, node, first.masked_fill_(outside, 0), ~outside, y, ~none.all(-1))
