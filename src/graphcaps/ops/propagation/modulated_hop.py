"""One hop of a graph convolution whose messages depend on the labels of the edges."""

from __future__ import annotations

import torch
from torch import Tensor

from graphcaps.errors import ShapeError
from graphcaps.ops._triton.dispatch import select
from graphcaps.ops.propagation.propagation import degrees, edge_list
from graphcaps.types import EdgeTable

__all__ = ["kind_table", "modulated_hop"]


def modulated_hop(
    x: Tensor, scale: Tensor, shift: Tensor, edges: EdgeTable, edge_kinds: tuple[int, ...]
) -> Tensor:
    r"""One hop of :func:`propagate`, with a factor and a term for each label of the edge that a message passes.

    .. math::
        y_i = \hat A_{ii} x_i + \sum_{j \ne i} \hat A_{ij} (\gamma_{k(ij)} \odot x_j + \beta_{k(ij)}), \quad
        \gamma_k = 1 + \sum_c \mathrm{scale}_{c, k_c}, \quad \beta_k = \sum_c \mathrm{shift}_{c, k_c}

    with :math:`\hat A` of :func:`graphcaps.ops.propagate`, kinds :math:`k` of :mod:`graphcaps.ops.edge_kinds` and
    :math:`k_c` the value of kind k in label column c. A value that is not among the :math:`n_c` of its column adds
    nothing. With scale and shift zero it equals :func:`propagate`.

    Args:
        x (Tensor): One row per node of the batch, ``[*lead, V, d]``.
        scale, shift (Tensor): A row for each value of each label column, one column after another,
            ``[*lead, n_1 + … + n_C, d]``.
        edges (EdgeTable): The edges, with kinds.
        edge_kinds (tuple): Number of values n_c of each label column.

    Returns:
        Tensor: ``[*lead, V, d]``; padding rows have no neighbours.

    Raises:
        ShapeError: If the edges have no kinds.
    """
    if edges.kind is None:
        fix = "Pass edge_attr, or graphs that a recipe with edge_labels='messages' encoded."
        raise ShapeError("modulated_hop", "edges", "have kinds", "none", fix)
    form = select("modulated_hop", _modulated_hop, x, scale, shift, edges.node, edges.weight)
    return form(x, scale, shift, edges, edge_kinds)


def kind_table(rows: Tensor, edge_kinds: tuple[int, ...]) -> Tensor:
    """Sum over the label columns of the row of each kind's value: ``[*lead, n_1 + … + n_C, d]`` to ``[*lead, R, d]``.

    A sum of broadcast blocks, so that the gradient is a sum over axes, in a fixed order.
    """
    *lead, _, d = rows.shape
    table = rows.new_zeros(*lead, 1, d)
    for block in rows.split(edge_kinds, -2):
        other = rows.new_zeros(*lead, 1, d)
        values = torch.cat([other, block], -2)
        table = (table.unsqueeze(-2) + values.unsqueeze(-3)).flatten(-3, -2)
    return table


def _modulated_hop(
    x: Tensor, scale: Tensor, shift: Tensor, edges: EdgeTable, edge_kinds: tuple[int, ...]
) -> Tensor:
    """Every message is stored."""
    V, d = x.shape[-2:]
    flat, pairs = x.reshape(-1, d), edge_list(edges)
    assert pairs.kind is not None
    gamma, beta = kind_table(scale, edge_kinds) + 1, kind_table(shift, edge_kinds)
    row = pairs.kind + pairs.target // max(V, 1) * gamma.size(-2)  # of the kind in the tables of all replicas
    root = (degrees(edges).to(x.dtype) + 1).clamp_min(1).rsqrt().reshape(-1)
    weight = root[pairs.source] * root[pairs.target]
    if pairs.weight is not None:
        weight = weight * pairs.weight.to(x.dtype)
    messages = flat[pairs.source] * gamma.reshape(-1, d)[row] + beta.reshape(-1, d)[row]
    own = flat * root.square().unsqueeze(-1)
    return own.index_add(0, pairs.target, messages * weight.unsqueeze(-1)).reshape(x.shape)
