"""Weighted means over neighbours, whose weights are attention along the edges."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.autocast import full_precision
from graphcaps.ops.propagation.propagation import edge_list
from graphcaps.ops.row_sums import select_rows, sum_rows
from graphcaps.types import EdgeTable

__all__ = ["edge_attention"]


@full_precision
def edge_attention(
    x: Tensor,
    centre: Tensor,
    member: Tensor,
    edges: EdgeTable,
    bias: Tensor | None = None,
    slope: float = 0.2,
) -> Tensor:
    r"""Sum over a node and its neighbours, weighted by the attention of a graph attention network.

    .. math::
        y_i = \sum_{j \in N(i) \cup \{i\}} \alpha_{ij} w_{ij} x_j, \quad
        \alpha_{ij} = \mathrm{softmax}_j \, \mathrm{LeakyReLU}(\mathrm{centre}_i + \mathrm{member}_j + b_{k(ij)})

    with edge weights :math:`w` and a bias :math:`b` for each kind of edge (:mod:`graphcaps.ops.edge_kinds`). A node
    has the weight 1 and no bias for itself.

    Args:
        x (Tensor): One row per node of the batch, ``[*lead, V, d]``.
        centre, member (Tensor): The two terms of a logit, ``[*lead, V]`` each.
        edges (EdgeTable): The edges.
        bias (Tensor, optional): Term of each of R kinds, ``[*lead, R]``. (default: none, kinds are not read)
        slope (float): Slope of the LeakyReLU below 0. (default: 0.2)

    Returns:
        Tensor: ``[*lead, V, d]``; padding rows have no neighbours.

    Raises:
        ShapeError: If there is a bias, and the edges have no kinds.
    """
    if bias is not None and edges.kind is None:
        fix = "Pass edge_attr, or graphs that a recipe with edge_labels='messages' encoded."
        raise ShapeError("edge_attention", "edges", "have kinds", "none", fix)
    form = select("edge_attention", _edge_attention, x, centre, member, edges.node, edges.weight, bias)
    return form(x, centre, member, edges, bias, slope)


def _edge_attention(
    x: Tensor, centre: Tensor, member: Tensor, edges: EdgeTable, bias: Tensor | None, slope: float
) -> Tensor:
    """Every message is stored; a node is one more entry of its own neighbourhood."""
    V, d = x.shape[-2:]
    rows, pairs = x.reshape(-1, d), edge_list(edges)
    own = torch.arange(rows.size(0), device=x.device)
    source, target = torch.cat([pairs.source, own]), torch.cat([pairs.target, own])
    a, b = centre.reshape(-1), member.reshape(-1)
    logits = select_rows(a, target) + select_rows(b, source)
    if bias is not None:
        assert pairs.kind is not None
        kind = pairs.kind + pairs.target // max(V, 1) * bias.size(-1)  # in the biases of all replicas
        none = logits.new_zeros(rows.size(0))
        logits = logits + torch.cat([select_rows(bias.reshape(-1), kind), none])
    logits = torch.nn.functional.leaky_relu(logits, slope)
    # The largest logit is subtracted for the range of numbers only; it has no effect on the gradient.
    largest = torch.full_like(a, -torch.inf).scatter_reduce(0, target, logits.detach(), "amax")
    exponential = (logits - largest.index_select(0, target)).exp()
    attention = exponential / select_rows(sum_rows(exponential, target, rows.size(0)), target)
    if pairs.weight is not None:
        weight = torch.cat([pairs.weight.to(x.dtype), attention.new_ones(rows.size(0))])
        attention = attention * weight
    messages = select_rows(rows, source) * attention.unsqueeze(-1)
    return sum_rows(messages, target, rows.size(0)).reshape(x.shape)
