r"""Soft assignment of rows to the keys of a memory, by several heads whose results are merged.

A head h has K keys. The distance of a row to them gives an assignment by a Student distribution with one degree of
freedom, and the heads are merged by one weight each (Memory-Based Graph Networks, https://arxiv.org/abs/2002.09518):

.. math::
    s_{ihk} = \frac{(1 + \|q_i - k_{hk}\|^2)^{-1}}{\sum_{l} (1 + \|q_i - k_{hl}\|^2)^{-1}}, \quad
    c_{ik} = \mathrm{softmax}_k \Big(\sum_h w_h s_{ihk}\Big)

:func:`assignment_divergence` is the loss that makes such an assignment sharper.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphcaps.ops.autocast import full_precision
from graphcaps.ops.compilation import is_traced
from graphcaps.ops.ragged.tiles import segment_broadcast, segment_sum
from graphcaps.types import Segments

__all__ = ["assignment_divergence", "key_assignment", "split_key_assignment"]


@full_precision
def key_assignment(q: Tensor, keys: Tensor, merge: Tensor) -> Tensor:
    """The assignment of rows to keys.

    Args:
        q (Tensor): Rows, ``[*lead, V, d]``.
        keys (Tensor): K keys of each of H heads, ``[*lead, H, K, d]``.
        merge (Tensor): Weight w of each head, ``[*lead, H]``.

    Returns:
        Tensor: ``[*lead, V, K]``; each row sums to 1.
    """
    return _assign(q, keys, merge)[-1]


@full_precision
def split_key_assignment(q: Tensor, keys: Tensor, merge: Tensor) -> tuple[Tensor, Tensor]:
    """The assignment of :func:`key_assignment` twice; only the gradient of the second one reaches the keys.

    Rows and heads get the gradients of both. A loss on the second one then moves the keys alone, with one computation
    of the distances.
    """
    if is_traced():
        return _assign(q, keys.detach(), merge)[-1], _assign(q, keys, merge)[-1]
    both: tuple[Tensor, Tensor] = _SplitAssignment.apply(q, keys, merge)
    return both


def _assign(q: Tensor, keys: Tensor, merge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unnormalised and normalised assignment of each head, ``[*lead, V, H, K]``, and the merged one."""
    H, K = keys.shape[-3:-1]
    flat = keys.flatten(-3, -2)  # [*lead, H K, d]
    squares = q.square().sum(-1, keepdim=True) + (flat.square().sum(-1) + 1).unsqueeze(-2)
    near = (squares - 2 * q @ flat.mT).clamp_min(1).reciprocal().unflatten(-1, (H, K))
    heads = near / near.sum(-1, keepdim=True)
    merged = (heads * merge[..., None, :, None]).sum(-2).softmax(-1)
    return near, heads, merged


class _SplitAssignment(torch.autograd.Function):
    """The assignment twice; the backward pass computes both gradients of the distances side by side."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, keys: Tensor, merge: Tensor) -> tuple[Tensor, Tensor]:
        near, heads, merged = _assign(q, keys, merge)
        ctx.save_for_backward(q, keys, merge, near, heads, merged)
        return merged, merged.clone()

    @staticmethod
    @once_differentiable
    @full_precision
    def backward(ctx: Any, pooled: Tensor, divergence: Tensor) -> Any:
        q, keys, merge, near, heads, merged = ctx.saved_tensors
        grad = torch.stack([pooled + divergence, divergence])  # of all, and of the keys
        logits = merged * (grad - (grad * merged).sum(-1, keepdim=True))  # [2, *lead, V, K]
        grad_merge = (heads * logits[0].unsqueeze(-2)).sum((-3, -1))
        change = logits.unsqueeze(-2) * merge[..., None, :, None]
        change = -near * heads * (change - (change * heads).sum(-1, keepdim=True))
        of_rows, of_keys = change.flatten(-2).mul_(2).unbind(0)  # twice the gradient of the squared distances
        flat = keys.flatten(-3, -2)
        grad_q = of_rows.sum(-1, keepdim=True) * q - of_rows @ flat
        grad_keys = of_keys.sum(-2).unsqueeze(-1) * flat - of_keys.mT @ q
        return grad_q, grad_keys.reshape(keys.shape), grad_merge


@full_precision
def assignment_divergence(assignment: Tensor, segments: Segments | None = None) -> Tensor:
    r"""How far an assignment is from a sharper one with clusters of similar size.

    .. math::
        \sum_{ik} p_{ik} \log \frac{p_{ik}}{c_{ik}}, \quad
        p_{ik} \propto \frac{c_{ik}^2}{\sum_i c_{ik}}, \quad \sum_k p_{ik} = 1

    Gradients flow through p too, as in :meth:`torch_geometric.nn.MemPooling.kl_loss`, whose value is the mean over
    graphs.

    Args:
        assignment (Tensor): Rows c that sum to 1, ``[*lead, V, K]``, or ``[*lead, B, n, K]`` for coarse graphs.
        segments (Segments, optional): Graph of each row of a ragged batch. (default: coarse graphs)

    Returns:
        Tensor: One number per graph, ``[*lead, B]``; 0 without nodes.
    """
    if segments is None:
        totals = assignment.sum(-2, keepdim=True)
    else:
        totals = segment_broadcast(segment_sum(assignment, segments), segments)
        mask = segments.row_mask
        if mask is not None:
            totals = totals.masked_fill(~mask.unsqueeze(-1), 1)
    sharper = assignment.square() / totals
    scale = sharper.sum(-1, keepdim=True)
    # log p − log c = log c − log totals − log scale, and the sum of p is 1.
    rows = (sharper * (assignment / totals).log()).sum(-1, keepdim=True) / scale - scale.log()
    return rows.squeeze(-1).sum(-1) if segments is None else segment_sum(rows, segments).squeeze(-1)
